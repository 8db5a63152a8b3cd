from topomend.base.natural_order import natural_key


def test_numbers_in_names_count_as_numbers() -> None:
    names = ["gpu-10", "gpu-2", "gpu", "nic-1", "gpu-2a"]
    assert sorted(names, key=natural_key) == ["gpu", "gpu-2", "gpu-2a", "gpu-10", "nic-1"]


def test_what_only_looks_like_a_number_is_text() -> None:
    assert natural_key("x²") == [(1, 0, "x²")]
    assert natural_key("9" * 19) == [(1, 0, "9" * 19)]
