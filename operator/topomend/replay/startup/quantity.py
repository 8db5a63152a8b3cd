"""Quantities with the errors and the form of the kubelet's own parser: apimachinery pkg/api/resource.

``model.quantity`` reads what the API server has stored; a kubelet's configuration may hold anything.
"""

import re
from dataclasses import dataclass, replace
from fractions import Fraction

FORMAT_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_WRONG = "unable to parse quantity's suffix"

DECIMAL_SI, BINARY_SI, DECIMAL_EXPONENT = "DecimalSI", "BinarySI", "DecimalExponent"

# Nothing is ever given back, so that a long text costs no more than its length.
_FORM = re.compile(r"([+-]?)(0*+)([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[+-]?[0-9]*+)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
_MOST_EXPONENT = 400
"""No sum that a kubelet computes depends on larger ones; their digits would not fit into memory."""

_MOST_DIGITS = 400

_MAX_INT64 = (1 << 63) - 1
_NANO = 10**9


class InvalidQuantity(ValueError):
    """A text that the kubelet does not parse. The error's text is the kubelet's."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount in billionths of its unit, and the format in which it was written.

    ``written`` is the text itself where the kubelet takes it for canonical; it is not always right. ``int64`` is what
    Quantity.AsInt64 gives: nothing for ``1.5Gi`` and ``1000m``, which are kept in another form.
    """

    nano: int
    format: str = DECIMAL_SI
    written: str = ""
    int64: int | None = None

    def __add__(self, other: "Quantity") -> "Quantity":
        """Quantity.Add: a zero takes the format of what is added to it."""
        return Quantity(self.nano + other.nano, self.format if self.nano else other.format)

    def __str__(self) -> str:
        """Quantity.String, in canonical form."""
        if self.written:
            return self.written
        if self.nano == 0:
            return "0"
        whole, rest = divmod(abs(self.nano), _NANO)
        sign = "-" if self.nano < 0 else ""
        if self.format == BINARY_SI and whole >= 1024 and not rest:
            return sign + _in_powers(whole, 1024, ("", *_BINARY))
        if self.format == DECIMAL_EXPONENT:
            return sign + _in_decimal_exponents(abs(self.nano))
        return sign + _in_powers(abs(self.nano), 1000, tuple(_DECIMAL))


def _in_powers(number: int, base: int, suffixes: tuple[str, ...]) -> str:
    """As the kubelet has it: above the largest suffix it drops what no suffix says."""
    place = 0
    while number % base == 0:
        number, place = number // base, place + 1
    return f"{number}{suffixes[place] if place < len(suffixes) else ''}"


def _in_decimal_exponents(nano: int) -> str:
    exponent = -9
    while nano % 1000 == 0:
        nano, exponent = nano // 1000, exponent + 3
    return f"{nano}e{exponent}" if exponent else str(nano)


def parse(text: str) -> Quantity:
    """The quantity of ``text``. Raises InvalidQuantity (quantity.go:ParseQuantity)."""
    matched = _FORM.fullmatch(text)
    if not text or matched is None:
        raise InvalidQuantity(FORMAT_WRONG)
    sign, _, whole, fraction, suffix = matched.groups()
    digits = (whole or "0", fraction or "")
    whole, fraction = whole[:_MOST_DIGITS], _shortened(fraction or "")
    base, exponent, written = _interpret(suffix)
    factor = Fraction(base) ** max(min(exponent, _MOST_EXPONENT), -_MOST_EXPONENT)
    amount = Fraction(int((whole or "0") + fraction), 10 ** len(fraction)) * factor
    # A part below a billionth rounds away from zero.
    nano = -(-amount.numerator * _NANO // amount.denominator)
    if written == BINARY_SI:
        nano = min(nano, _MAX_INT64 * _NANO)
        written = BINARY_SI if nano >= _NANO or not nano else DECIMAL_SI
    parsed = Quantity(-nano if sign == "-" else nano, written)
    return _as_int64_amount(parsed, text, digits, exponent)


def _as_int64_amount(amount: Quantity, text: str, digits: tuple[str, str], exponent: int) -> Quantity:
    """The amount, with what only the form has that ParseQuantity calls the fast path."""
    whole, fraction = digits
    number = whole + fraction
    if amount.format == BINARY_SI:
        if fraction or 14 - len(whole) - exponent * 3 // 10 < 0:
            return amount
        kept, scale = exponent % 10 == 0 and int(whole) & 7 != 0, 0
    else:
        scale = exponent - len(fraction)
        if len(number) > 18 or scale < -9:
            return amount
        kept = scale % 3 == 0 and not number.endswith("000") and number[0] != "0"
    fits = scale >= 0 and abs(amount.nano) <= _MAX_INT64 * _NANO
    return replace(amount, written=text if kept else "", int64=amount.nano // _NANO if fits else None)


def _shortened(fraction: str) -> str:
    """So few digits of a fraction that it rounds as all of them do."""
    rest = fraction[_MOST_DIGITS:].strip("0")
    return fraction[:_MOST_DIGITS] + ("1" if rest else "")


def _interpret(suffix: str) -> tuple[int, int, str]:
    """The base, the exponent and the format that a suffix means (suffix.go:interpret)."""
    if suffix in _DECIMAL:
        return 10, _DECIMAL[suffix], DECIMAL_SI
    if suffix in _BINARY:
        return 2, _BINARY[suffix], BINARY_SI
    matched = _EXPONENT.fullmatch(suffix)
    if matched is None or len(matched[1].lstrip("+-0")) > 18:
        raise InvalidQuantity(SUFFIX_WRONG)
    return 10, int(matched[1]), DECIMAL_EXPONENT
