"""YAML's scalars as Go's values (go.yaml.in/yaml/v2 resolve.go): text, bool, int, float or None."""

import base64
import binascii
import re
from datetime import datetime
from typing import Any

from topomend.discover.documents.value import NotADocument, scrubbed
from topomend.discover.documents.yaml_nodes import Node

PREFIX = "tag:yaml.org,2002:"

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INTEGER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|([1-9][0-9]*|0))")
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[Tt](\d{1,2}):(\d{1,2}):(\d{1,2})(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)"
    r"| (\d{1,2}):(\d{1,2}):(\d{1,2})(?:[.,]\d+)?)?",
    re.ASCII,
)
_TAGS = {str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}


def resolved(node: Node) -> Any:
    """The scalar's value: text, bool, int, float or None."""
    if node.tag and not node.tag.startswith(PREFIX):
        return node.text
    tag = node.tag.removeprefix(PREFIX)
    if tag == "binary":
        return _binary(node)
    if tag == "str" or (not tag and not node.implicit) or tag not in ("", "timestamp", *_TAGS.values()):
        return node.text
    if tag == "timestamp" and node.text not in _WORDS and _is_timestamp(node.text):
        return node.text
    value = _plain_scalar(node.text)
    if tag == "float" and type(value) is int and -(1 << 63) <= value < 1 << 63:
        return float(value)
    if tag and tag != _TAGS[type(value)]:
        raise NotADocument(f"line {node.line}: {node.text!r:.60} is not a !!{tag}")
    return value


def _plain_scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        return _go_float(text, text)
    if text[0] not in "+-0123456789":
        return text
    digits = text.replace("_", "")
    whole = _go_integer(digits)
    return _go_float(digits, text) if whole is None else whole


def _go_integer(digits: str) -> int | None:
    """strconv.ParseInt, then ParseUint, with base 0."""
    matched = _INTEGER.fullmatch(digits)
    if matched is None:
        return None
    sign, *parts = matched.groups()
    base, number = next((base, part) for base, part in zip((16, 2, 8, 10), parts, strict=True) if part is not None)
    if len(number) > 80:
        return None
    value = int(number, base)
    if sign == "-":
        return -value if value <= 1 << 63 else None
    return value if value < 1 << (63 if sign else 64) else None


def _go_float(digits: str, otherwise: str) -> float | str:
    """strconv.ParseFloat; the text itself where that fails, also for a number that is too large."""
    if not _FLOAT.fullmatch(digits):
        return otherwise
    value = float(digits)
    return otherwise if value in (float("inf"), float("-inf")) else value


def _is_timestamp(text: str) -> bool:
    matched = _TIMESTAMP.fullmatch(text)
    if matched is None:
        return False
    year, month, day, *times = [int(part) for part in matched.groups() if part is not None]
    hour, minute, second = times or (0, 0, 0)
    try:
        datetime(year or 4, month, day, hour, minute, second)  # noqa: DTZ001 - only whether it exists
    except ValueError:
        return False
    return True


def _binary(node: Node) -> str:
    try:
        content = base64.b64decode(re.sub("[\r\n]", "", node.text), validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotADocument(f"line {node.line}: !!binary is not base64") from error
    return scrubbed(content.decode(errors="surrogateescape"))
