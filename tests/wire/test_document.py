import pytest

from topomend.wire.document import Document, MalformedObject


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda d: d["a"]["b"]["c"].text(), r"a\.b: 1 where an object belongs"),
        (lambda d: list(d["a"]), "a: .* where a list belongs"),
        (lambda d: d["n"].text(), "n: 7 where a string belongs"),
        (lambda d: d["n"].integer(most=6), "from 0 to 6"),
        (lambda d: d["missing"].text(), "missing: missing where a string belongs"),
        (lambda d: d["n"]["deeper"].text(), "n: 7 where an object belongs"),
        (lambda d: d["t"].integer(), "whole number"),
        (lambda d: d["t"].id_list(), "t: True where a string belongs"),
        (lambda d: d["cpus"].id_list(), "cpus: '3-1'"),
        (lambda d: d["cpus"].quantity(), "cpus: '3-1' is not a quantity"),
        (lambda d: d["n"].boolean(), "true or false"),
        (lambda d: list(d["n"].fields()), "an object"),
    ],
)
def test_what_is_wrong_is_reported_with_its_path(read, words: str) -> None:  # type: ignore[no-untyped-def] # lambdas of many types
    document = Document({"a": {"b": 1}, "n": 7, "t": True, "cpus": "3-1"})
    with pytest.raises(MalformedObject, match=words):
        read(document)


def test_fields_of_absent_objects_are_absent() -> None:
    assert Document({})["status"]["machine"]["numaNodes"].absent


def test_an_absent_list_is_empty() -> None:
    assert list(Document({})["items"]) == []
