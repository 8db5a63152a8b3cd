"""Texts as JSON values. That these are Kubernetes' own: tests/verify/config_oracle/test_reading.py."""

import json
from itertools import pairwise
from typing import Any

import pytest

from topomend.discover.documents.read import is_json, read_document, read_documents
from topomend.discover.documents.value import MAX_DEPTH, NotADocument, NotTold, plain_value


def read(text: str) -> Any:
    return plain_value(read_document(text.encode()).value)


def test_yaml_is_read_by_the_rules_of_version_1_1_with_the_integers_of_go() -> None:
    assert read("a: yes\nb: off\nc: 010\nd: 0x10\ne: 1_000\nf: 1e3\ng: 12:30\nh: 2026-01-02\n") == {
        "a": True, "b": False, "c": 8, "d": 16, "e": 1000, "f": 1000, "g": "12:30", "h": "2026-01-02",
    }  # fmt: skip


def test_keys_become_text() -> None:
    assert read("1: a\ntrue: b\n1.5: c\n2026-01-02: d\n") == {"1": "a", "true": "b", "1.5": "c", "2026-01-02": "d"}


def test_a_merge_replaces_what_stands_before_it() -> None:
    assert read("x: &a {b: 1}\nz: {b: 2, <<: *a, c: 3}\n")["z"] == {"b": 1, "c": 3}


def test_text_that_begins_with_a_brace_is_json() -> None:
    assert is_json(b"\n\t {")
    assert not is_json(b"--- {")
    with pytest.raises(NotADocument, match="line 1, column 2"):
        read_document(b"{a: 1}")


def test_names_that_stand_twice_are_named() -> None:
    assert read_document(b"a: 1\nb: {c: 1, c: 2}\n").repeated == ("c",)
    assert read_document(b'{"a": 1, "a": 2}').repeated == ("a",)


def test_every_document_of_a_stream_is_read() -> None:
    assert [plain_value(one.value) for one in read_documents(b"a: 1\n---\n---\nb: 2\n")] == [{"a": 1}, None, {"b": 2}]


def test_a_stream_of_json_needs_no_marks_between_its_documents() -> None:
    stream = b' {"a": 1, "a": 2}\n{"b": [\n1]}{"c": 3}\r\n\t'
    documents = list(read_documents(stream))
    assert [plain_value(one.value) for one in documents] == [{"a": 2}, {"b": [1]}, {"c": 3}]
    assert [one.repeated for one in documents] == [("a",), (), ()]
    with pytest.raises(NotADocument, match="Extra data in line 2, column 1"):
        read_document(stream)


def test_a_stream_that_is_json_only_at_first_is_read_as_yaml() -> None:
    stream = b'{"a": 1}\n---\nb: 2\n'
    assert [plain_value(one.value) for one in read_documents(stream)] == [{"a": 1}, {"b": 2}]
    with pytest.raises(NotADocument):
        list(read_documents(b'{"a": 1}\n{"b": '))


def test_bytes_that_are_not_utf_8_are_refused_in_yaml_and_replaced_in_json() -> None:
    with pytest.raises(NotADocument):
        read_document(b"a: \xff")
    assert plain_value(read_document(b'{"a": "\xff\xe2\x82"}').value) == {"a": "\ufffd\ufffd\ufffd"}
    assert read('{"a": "\\ud800"}') == {"a": "\ufffd"}


LAUGHS = "a: &a [1]\n" + "".join(f"{b}: &{b} [{f'*{a},' * 9}]\n" for a, b in pairwise("abcdefgh"))
"""Each list repeats the one before nine times."""


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "- " * 30_000,
        '{"a":' * 30_000,
        '{"a":' + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1) + "}",
        LAUGHS,
        "a: &a [*a]",
        "a: *b",
        "a: .inf",
        "? [a]\n: b\n",
        "~: a",
        "a: !!int b",
        "a: !!binary '*'",
        "a: <<\n<<: 1\n",
        '{"a": NaN}',
        '{"a": 1} x',
    ],
)
def test_what_kubernetes_does_not_read_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(NotADocument) as refused:
        read_document(text.encode())
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "a: [!, b]",
        "[]: a",
        "![]",
        "a: {b:}",
        '"it\\\'s"',
        "a: 1\n\ufeffb: 2\n",
        "1: a\n'1': b\n",
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
    ],
)
def test_a_text_that_kubernetes_may_read_otherwise_is_not_read(text: str) -> None:
    with pytest.raises(NotTold):
        read_document(text.encode())


@pytest.mark.parametrize("text", ['a: "b\\/c"', "%YAML 1.2\n---\na: 1", "a: [b?]"])
def test_what_libyaml_reads_and_kubernetes_does_not_is_refused(text: str) -> None:
    with pytest.raises(NotADocument) as refused:
        read_document(text.encode())
    assert not isinstance(refused.value, NotTold)


def test_a_slash_behind_an_escaped_backslash_is_not_escaped() -> None:
    assert read('a: "b\\\\/c"') == {"a": "b\\/c"}


def test_a_byte_order_mark_before_the_text_is_passed_over() -> None:
    assert read('\ufeffa: "é/"\n') == {"a": "é/"}


def test_a_long_number_is_no_error() -> None:
    assert read(json.dumps({"a": 1})[:-2] + "9" * 9000 + "}") == {"a": float("inf")}
