"""Resource quantities as the API server stores them, as integers in thousandths.

The API server rounds every quantity of a container up to a thousandth (pkg/apis/core/v1/defaults.go:
SetDefaults_ResourceList) and writes it in canonical form (``1.5Gi`` is stored as ``1536Mi``), so an integer number of
thousandths represents each one exactly. Amounts beyond an int64 are capped there. apimachinery's ParseQuantity caps
only those with binary suffixes; replay reports that it does not model such amounts.
"""

import re
from fractions import Fraction
from typing import TypeAlias

MilliQuantity: TypeAlias = int
"""A quantity in thousandths of its unit: of a CPU, of a byte, of a device."""

MAX_INT64 = (1 << 63) - 1

_FORM = re.compile(r"([+-]?)(\d{0,40})(?:\.(\d{0,40}))?(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,3}))?", re.ASCII)

_BINARY: dict[str, int] = {
    suffix: 1 << 10 * power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)
}
_DECIMAL: dict[str, Fraction | int] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
}
_SUFFIXES: dict[str, Fraction | int] = {**_BINARY, **_DECIMAL}


class InvalidQuantity(ValueError):
    """A text that the API server rejects as a quantity."""


def parse_quantity(text: str | int | float) -> MilliQuantity:
    """Read a quantity such as ``"2"``, ``"1500m"``, ``"64Gi"``, ``"1e3"`` or a bare YAML number, in thousandths.

    A part below a thousandth rounds away from zero. Raises InvalidQuantity for a text that the API server rejects.
    Source: apimachinery pkg/api/resource/quantity.go:ParseQuantity.
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise InvalidQuantity(f"{text!r:.60} is not a quantity")
    matched = _FORM.fullmatch(str(text).strip())
    if matched is None or not (matched[2] or matched[3]):
        raise InvalidQuantity(f"{str(text)[:60]!r} is not a quantity such as 2, 500m or 64Gi")
    sign, whole, fraction, suffix, exponent = matched.groups()
    number = Fraction(int((whole or "0") + (fraction or "")), 10 ** len(fraction or ""))
    if suffix:
        number *= _SUFFIXES[suffix]
    elif exponent:
        number *= Fraction(10) ** int(exponent)
    milli = min(-(-number.numerator * 1000 // number.denominator), MAX_INT64 * 1000)
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
