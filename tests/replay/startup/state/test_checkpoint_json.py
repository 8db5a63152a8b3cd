"""JSON as Go reads it, with Go's errors."""

from typing import Any

import pytest

from topomend.replay.startup.state.checkpoint_json import (
    MAX_DEPTH,
    Bytes,
    Field,
    GoError,
    Integer,
    Map,
    Number,
    Slice,
    Struct,
    Text,
    atoi,
    parse,
    unmarshal,
    zero,
)

INNER = Struct("p", "Inner", (Field("Count", "count", Integer("uint8", 8)),), pointer=True)
FILE = Struct(
    "p",
    "File",
    (
        Field("Name", "name", Text()),
        Field("Sizes", "sizes", Slice(Integer("int", signed=True), "[]int")),
        Field("Parts", "parts", Map(INNER, "map[int]*p.Inner", Integer("int", signed=True))),
        Field("Raw", "raw", Bytes()),
    ),
)


def read(content: bytes) -> Any:
    return unmarshal(content, FILE, zero(FILE))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "unexpected end of JSON input"),
        (b'"a', "unexpected end of JSON input"),
        (b"tru", "invalid character ' ' in literal true (expecting 'e')"),
        (b"nulx", "invalid character 'x' in literal null (expecting 'l')"),
        (b"-", "invalid character ' ' in numeric literal"),
        (b"1.", "invalid character ' ' after decimal point in numeric literal"),
        (b"1e+", "invalid character ' ' in exponent of numeric literal"),
        (b"01", "invalid character '1' after top-level value"),
        (b"{} {}", "invalid character '{' after top-level value"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"{1:2}", "invalid character '1' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        (b'"\\x"', "invalid character 'x' in string escape code"),
        (b'"\\u12g"', "invalid character 'g' in \\u hexadecimal character escape"),
        (b'"\n"', "invalid character '\\n' in string literal"),
        (b"\xef\xbb\xbf{}", "invalid character 'ï' looking for beginning of value"),
        (b"\x00", "invalid character '\\x00' looking for beginning of value"),
        (b"'", "invalid character '\\'' looking for beginning of value"),
        (b"[" * (MAX_DEPTH + 1), "invalid character '[' exceeded max depth"),
    ],
)
def test_what_is_no_json_is_told_as_go_tells_it(content: bytes, error: str) -> None:
    with pytest.raises(GoError) as raised:
        parse(content)
    assert str(raised.value) == error


def test_values_are_read() -> None:
    assert parse(b' {"a": [1, -2.5e3, true, null], "b": {}} ') == [
        ("a", [Number("1"), Number("-2.5e3"), True, None]),
        ("b", []),
    ]


def test_texts_are_unquoted_and_what_is_no_text_is_replaced() -> None:
    assert parse(b'"\\u00e9\\ud83d\\ude00 \\ud800 \xff\xc3\xa9\\n"') == "é😀 � �é\n"


def test_names_count_in_any_case_and_unknown_ones_not_at_all() -> None:
    assert read(b'{"NAME": "x", "other": {"deep": [1]}}')["Name"] == "x"
    assert read(b'{"name": "x", "Name": "y"}')["Name"] == "y"


def test_null_empties_what_can_be_empty_and_leaves_the_rest() -> None:
    value = unmarshal(b'{"name":null,"sizes":null,"parts":{"1":null}}', FILE, {**zero(FILE), "Name": "x", "Sizes": [1]})
    assert value == {"Name": "x", "Sizes": None, "Parts": {1: None}, "Raw": None}


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"[]", "json: cannot unmarshal array into Go value of type p.File"),
        (b'{"name":1}', "json: cannot unmarshal number into Go struct field File.name of type string"),
        (b'{"sizes":["x"]}', "json: cannot unmarshal string into Go struct field File.sizes of type int"),
        (b'{"sizes":[1.5]}', "json: cannot unmarshal number 1.5 into Go struct field File.sizes of type int"),
        (b'{"parts":{"x":{}}}', "json: cannot unmarshal number x into Go struct field File.parts of type int"),
        (
            b'{"parts":{"1":{"count":256}}}',
            "json: cannot unmarshal number 256 into Go struct field Inner.parts.count of type uint8",
        ),
        (b'{"parts":{"1":{"count":-1}}}', "json: cannot unmarshal number -1 into Go struct field Inner.parts.count of"),
        (b'{"name":{},"sizes":{}}', "json: cannot unmarshal object into Go struct field File.name of type string"),
        (b'{"raw":"*"}', "illegal base64 data"),
    ],
)
def test_a_value_of_another_type_is_told_and_the_rest_is_read(content: bytes, error: str) -> None:
    value = zero(FILE)
    with pytest.raises(GoError) as raised:
        unmarshal(content[:-1] + b',"name":"last"}' if content.startswith(b"{") else content, FILE, value)
    assert str(raised.value).startswith(error)
    assert value["Name"] == ("last" if content.startswith(b"{") else "")


def test_bytes_are_base64() -> None:
    assert read(b'{"raw":"AQI="}')["Raw"] == [1, 2]


@pytest.mark.parametrize("text", ["", "x", "1 ", "1_0", "-", "٣"])
def test_what_is_no_number_is_told_as_go_tells_it(text: str) -> None:
    with pytest.raises(GoError, match="invalid syntax"):
        atoi(text)


def test_numbers_have_64_bits() -> None:
    assert (atoi("+7"), atoi("-1")) == (7, -1)
    with pytest.raises(GoError, match="value out of range"):
        atoi("9" * 20)
