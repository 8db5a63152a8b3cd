from topomend.base.bounded_dict import BoundedDict


def test_the_key_that_was_put_in_first_is_forgotten_first() -> None:
    recent: BoundedDict[str, int] = BoundedDict(2)
    recent["a"], recent["b"], recent["a"] = 1, 2, 3
    assert recent == {"a": 3, "b": 2}
    recent["c"] = 4
    assert recent == {"b": 2, "c": 4}
