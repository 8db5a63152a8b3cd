"""Quantities are parsed and printed as the kubelet does it."""

import pytest

from topomend.replay.startup.quantity import FORMAT_WRONG, SUFFIX_WRONG, InvalidQuantity, Quantity, parse


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("1.5Gi", "1536Mi"),
        ("1e3", "1e3"),
        ("2000", "2k"),
        ("0.5", "500m"),
        (".", "0"),
        ("-1.500", "-1.500"),
        ("0.1n", "1n"),
    ],
)
def test_a_quantity_has_the_kubelets_canonical_form(text: str, printed: str) -> None:
    assert str(parse(text)) == printed


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", FORMAT_WRONG),
        ("abc", FORMAT_WRONG),
        (" 1", FORMAT_WRONG),
        ("1Zi", FORMAT_WRONG),
        ("1e", SUFFIX_WRONG),
        ("1ii", SUFFIX_WRONG),
    ],
)
def test_a_text_that_is_no_quantity_has_the_kubelets_error(text: str, error: str) -> None:
    with pytest.raises(InvalidQuantity) as raised:
        parse(text)
    assert str(raised.value) == error


def test_a_zero_takes_the_format_of_what_is_added() -> None:
    assert str(sum([parse("512Mi"), parse("512Mi")], start=Quantity(0))) == "1Gi"


@pytest.mark.parametrize(("text", "number"), [("1k", 1000), ("5", 5), ("1Ki", 1024), ("1000m", None), ("1.5Gi", None)])
def test_only_some_whole_amounts_are_an_int64_for_the_kubelet(text: str, number: int | None) -> None:
    assert parse(text).int64 == number


@pytest.mark.parametrize("text", ["9" * 100_000, "0." + "0" * 100_000 + "1", "1e999999999", "1e-999999999"])
def test_a_huge_text_is_an_amount_at_once(text: str) -> None:
    assert parse(text).nano > 0
