import pytest
from tests.wire.test_hostile_objects import nested

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
        (lambda d: d["huge"].integer(), "huge: one int too large to show where a whole number"),
        (lambda d: d["huge"].quantity(), "huge: a number of more than 90 digits is not a quantity"),
        (lambda d: d["deep"].text(), r"deep: (one list too large to show|\[+) where a string"),  # by Python's release
        (lambda d: list(d["keys"].fields()), "keys: one dict too large to show where an object with names"),
    ],
)
def test_what_is_wrong_is_reported_with_its_path(read, words: str) -> None:  # type: ignore[no-untyped-def] # lambdas of many types
    huge = 10**5_000  # which a YAML file has in hexadecimal digits
    document = Document(
        {"a": {"b": 1}, "n": 7, "t": True, "cpus": "3-1", "huge": huge, "deep": nested(5_000), "keys": {huge: 1}}
    )
    with pytest.raises(MalformedObject, match=words):
        read(document)


def test_a_path_names_fields_positions_and_keys() -> None:
    document = Document({"a": [{"m": {"k.1": {"b": 1}}}]}, "file")
    (entry,) = document["a"]
    ((_, value),) = entry["m"].fields()
    assert value["b"].path == "file.a[0].m['k.1'].b"
    assert [each.path for each in Document([1])] == ["[0]"]


def test_fields_of_absent_objects_are_absent() -> None:
    assert Document({})["status"]["machine"]["numaNodes"].absent


def test_an_absent_list_is_empty() -> None:
    assert list(Document({})["items"]) == []
