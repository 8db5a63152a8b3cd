"""Go's values as JSON (sigs.k8s.io/yaml:convertToJSONableObject, then encoding/json)."""

import struct
from decimal import Decimal
from math import isfinite
from typing import Any

from topomend.discover.documents.value import Members, NotADocument, NotTold, Number, Value


def jsonable(value: Any) -> Value:
    """A scalar, a list, or a dict by type and key, as JSON. Raises NotADocument."""
    if isinstance(value, dict):
        # Go writes an object's members in the order of their names.
        named = {_name(*key): jsonable(content) for key, content in value.items()}
        if len(named) < len(value):
            raise NotTold("two keys of different types become one name: which one counts is left to chance")
        return Members(tuple(sorted(named.items())))
    if isinstance(value, list):
        return [jsonable(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    return Number(str(value) if isinstance(value, int) else json_number(value))


def _name(kind: type, key: Any) -> str:
    if kind is str:
        return str(key)
    if kind is bool:
        return "true" if key else "false"
    if kind is int and key < 1 << 63:
        return str(key)
    if kind is float:
        return _short_float(key)
    raise NotADocument(f"{'null' if key is None else key} cannot be a name")


def json_number(value: float) -> str:
    """A float64 as Go's encoding/json writes it. Raises NotADocument for infinities and NaN."""
    if not isfinite(value):
        raise NotADocument(f"{value} is no number of JSON")
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        text = format(Decimal(repr(value)), "f")
        return text.removesuffix(".0")
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    sign, digits = exponent[0], exponent[1:].lstrip("0")
    return f"{mantissa}e{sign}{digits if sign == '-' else digits.zfill(2)}"


def _short_float(value: float) -> str:
    """A float as a name: the shortest text of a float32, in the format %g."""
    special = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
    try:
        single = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        single = float("inf") if value > 0 else float("-inf")
    if str(single) in special:
        return special[str(single)]
    digits = next(text for text in (f"{single:.{size}e}" for size in range(17)) if _as_single(float(text)) == single)
    mantissa, _, power = digits.partition("e")
    if -4 <= int(power) < 21 and int(power) < max(6, len(mantissa.strip("-").replace(".", ""))):
        return format(Decimal(digits), "f")
    return f"{mantissa}e{power[0]}{power[1:].zfill(2)}"


def _as_single(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf")
