"""Resource quantities as the API server stores them, as integers in thousandths.

The API server rounds every quantity of a container up to a thousandth (pkg/apis/core/v1/defaults.go:
SetDefaults_ResourceList) and writes it in canonical form (``1.5Gi`` is stored as ``1536Mi``), so an integer number of
thousandths represents each one exactly. Amounts beyond an int64 are capped there. apimachinery's ParseQuantity caps
only those with binary suffixes; replay reports that it does not model such amounts.
"""

import re
from functools import lru_cache
from typing import TypeAlias

MilliQuantity: TypeAlias = int
"""A quantity in thousandths of its unit: of a CPU, of a byte, of a device."""

MAX_INT64 = (1 << 63) - 1

MAX_CHARACTERS = 90
"""No quantity is longer: a sign, twice 40 digits with a point, and a suffix or an exponent."""

MAX_KEPT = 4096
"""How many texts that were read are kept with what they mean."""

_FORM = re.compile(r"([+-]?)(\d{0,40})(?:\.(\d{0,40}))?(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,3}))?", re.ASCII)

_BINARY: dict[str, int] = {
    suffix: 1 << 10 * power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)
}
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
"""The powers of ten that the decimal suffixes mean."""


class InvalidQuantity(ValueError):
    """A text that the API server rejects as a quantity."""


def parse_quantity(text: object) -> MilliQuantity:
    """Read a quantity such as ``"2"``, ``"1500m"``, ``"64Gi"``, ``"1e3"`` or a bare YAML number, in thousandths.

    A part below a thousandth rounds away from zero. Raises InvalidQuantity for a text that the API server rejects.
    Source: apimachinery pkg/api/resource/quantity.go:ParseQuantity.
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        shown = f"{text}" if text is None or isinstance(text, bool) else f"a {type(text).__name__}"
        raise InvalidQuantity(f"{shown} is not a quantity")
    if isinstance(text, int) and abs(text) >= 10**MAX_CHARACTERS:  # Python writes none of more than 4,300 digits
        raise InvalidQuantity(f"a number of more than {MAX_CHARACTERS} digits is not a quantity")
    stripped = str(text).strip()
    milli = _parsed(stripped) if len(stripped) <= MAX_CHARACTERS else None
    if milli is None:
        raise InvalidQuantity(f"{str(text)[:60]!r} is not a quantity such as 2, 500m or 64Gi")
    return milli


@lru_cache(MAX_KEPT)
def _parsed(text: str) -> MilliQuantity | None:
    """The quantity; None where it is none. The pods of a cluster repeat a few quantities thousands of times."""
    matched = _FORM.fullmatch(text)
    if matched is None or not (matched[2] or matched[3]):
        return None
    sign, whole, fraction, suffix, exponent = matched.groups()
    digits = int((whole or "0") + (fraction or "")) * _BINARY.get(suffix, 1)
    power = 3 - len(fraction or "") + _POWERS.get(suffix, int(exponent or 0))
    milli: int = digits * 10**power if power >= 0 else -(-digits // 10**-power)
    milli = min(milli, MAX_INT64 * 1000)
    return -milli if sign == "-" else milli


def value(quantity: MilliQuantity) -> int:
    """The quantity in whole units, rounded up (apimachinery Quantity.Value)."""
    return -(-quantity // 1000)


def is_whole(quantity: MilliQuantity) -> bool:
    """Whether the quantity is a whole number of units."""
    return quantity % 1000 == 0


def as_int64(quantity: MilliQuantity) -> int | None:
    """The quantity in whole units, or None where it is not a whole number (apimachinery Quantity.AsInt64)."""
    return quantity // 1000 if is_whole(quantity) else None


def exact_thousandths(quantity: MilliQuantity) -> str:
    """The quantity as text that says exactly that: ``3``, ``1500m``."""
    return f"{quantity}m" if quantity % 1000 else f"{quantity // 1000}"


def exact_bytes(number: int) -> str:
    """A number of bytes as a quantity that says exactly that: ``18Gi``, ``1536Mi``, ``1000``."""
    for suffix, size in reversed(_BINARY.items()):
        if number and number % size == 0:
            return f"{number // size}{suffix}"
    return str(number)


def format_bytes(number: int) -> str:
    """A number of bytes for people, in the largest binary unit that is not above it: ``18Gi``, ``512Mi``, ``1.5Gi``."""
    for suffix, size in reversed(_BINARY.items()):
        if abs(number) >= size:
            return f"{number / size:.1f}".removesuffix(".0") + suffix
    return str(number)
