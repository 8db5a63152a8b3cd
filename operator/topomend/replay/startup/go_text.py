"""Values as Go prints them, and the errors of Go's ``strconv`` and ``time``: the words of the kubelet's sentences."""

import math
import re

_ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}
_INT64 = 1 << 63
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d[\d_]*+(?:\.[\d_]*+)?|\.\d[\d_]*+)(?:[eE][+-]?\d[\d_]*+)?", re.ASCII)
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX]_?(?:[\da-fA-F][\da-fA-F_]*+(?:\.[\da-fA-F_]*+)?|\.[\da-fA-F_]++)[pP][+-]?\d++", re.ASCII
)
_SPECIAL = re.compile(r"(?:[+-]?inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE)
_MAX_FLOAT32 = 2.0**128 - 2.0**103
"""Half a step above the largest float32: from here on Go's ParseFloat is out of range."""

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_SECOND, _MINUTE, _HOUR = _UNITS["s"], _UNITS["m"], _UNITS["h"]


class InvalidText(ValueError):
    """A text that Go does not parse. The error's text is Go's."""


def quote(text: str) -> str:
    """``text`` as Go's %q prints it (strconv.Quote)."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter.isprintable():
        return letter
    number = ord(letter)
    if number < 0x20 or number == 0x7F:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def quoted_list(texts: tuple[str, ...]) -> str:
    """A slice of strings as Go's %q prints it."""
    return "[" + " ".join(map(quote, texts)) + "]"


def duration(nanoseconds: int) -> str:
    """A time.Duration as Go prints it: ``1m30s``, ``100ms``, ``0s``."""
    sign, size = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if size < _SECOND:
        return sign + _below_a_second(size)
    seconds = _decimal(size % _MINUTE, 9) + "s"
    minutes = size // _MINUTE
    if minutes >= 60:
        return f"{sign}{minutes // 60}h{minutes % 60}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else sign + seconds


def duration_struct(nanoseconds: int) -> str:
    """A metav1.Duration as Go's %v prints it."""
    return f"{{{duration(nanoseconds)}}}"


def _below_a_second(size: int) -> str:
    if size == 0:
        return "0s"
    if size < 1_000:
        return f"{size}ns"
    return _decimal(size, 3) + "µs" if size < 1_000_000 else _decimal(size, 6) + "ms"


def _decimal(number: int, places: int) -> str:
    whole, fraction = divmod(number, 10**places)
    return f"{whole}.{fraction:0{places}d}".rstrip("0").removesuffix(".")


def floating(number: float) -> str:
    """A float64 as Go's %v prints it: the shortest decimal, with an exponent below 1e-4 and from 1e6 on."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if number == 0 or 1e-4 <= abs(number) < 1e6:
        return repr(number).removesuffix(".0")
    digits, _, exponent = next(
        text for places in range(18) if float(text := f"{number:.{places}e}") == number
    ).partition("e")
    return f"{digits}e{int(exponent):+03d}"


def integer(text: str) -> int:
    """strconv.Atoi. Raises InvalidText."""
    if not _INTEGER.fullmatch(text):
        raise InvalidText(f"strconv.Atoi: parsing {quote(text)}: invalid syntax")
    digits = text.lstrip("+-").lstrip("0")
    number = int(digits or "0") if len(digits) <= 19 else _INT64 + 1
    number = -number if text.startswith("-") else number
    if not -_INT64 <= number < _INT64:
        raise InvalidText(f"strconv.Atoi: parsing {quote(text)}: value out of range")
    return number


def float32(text: str) -> float:
    """strconv.ParseFloat of 32 bits, without its rounding. Raises InvalidText."""
    wrong = f"strconv.ParseFloat: parsing {quote(text)}: "
    if _SPECIAL.fullmatch(text):
        return float(text)
    try:
        number = _finite(text)
    except ValueError as error:
        raise InvalidText(wrong + "invalid syntax") from error
    if abs(number) >= _MAX_FLOAT32:
        raise InvalidText(wrong + "value out of range")
    return number


def _finite(text: str) -> float:
    if _DECIMAL.fullmatch(text):
        return float(text)
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text.replace("_", ""))
        except OverflowError:
            return math.inf
    raise ValueError(text)


def duration_of(text: str) -> int:
    """time.ParseDuration, in nanoseconds. Raises InvalidText."""
    place = 1 if text[:1] in ("+", "-") else 0
    if text[place:] == "0":
        return 0
    total = 0
    if place == len(text):
        raise _no_duration(text)
    while place < len(text):
        part, place = _part_of_duration(text, place)
        total += part
        if total > _INT64:
            raise _no_duration(text)
    if text.startswith("-"):
        return -total
    if total > _INT64 - 1:
        raise _no_duration(text)
    return total


def _no_duration(text: str) -> InvalidText:
    return InvalidText(f"time: invalid duration {_quoted_by_time(text)}")


_NUMBER = re.compile(r"(\d*+)(?:\.(\d*+))?+", re.ASCII)
_UNIT = re.compile(r"[^.0-9]*+")


def _part_of_duration(text: str, place: int) -> tuple[int, int]:
    """The nanoseconds of one number with its unit, and the place of what follows it."""
    matched = _NUMBER.match(text, place)
    whole, fraction = (matched[1], matched[2] or "") if matched else ("", "")
    if matched is None or not (whole or fraction) or len(whole.lstrip("0")) > 19:
        raise _no_duration(text)
    place = matched.end()
    matched = _UNIT.match(text, place)
    unit = matched[0] if matched else ""
    if not unit:
        raise InvalidText(f"time: missing unit in duration {_quoted_by_time(text)}")
    if unit not in _UNITS:
        raise InvalidText(f"time: unknown unit {_quoted_by_time(unit)} in duration {_quoted_by_time(text)}")
    number = int(whole.lstrip("0") or "0")
    # Go drops the digits of a fraction that an int64 cannot hold.
    digits = fraction[:18]
    part = number * _UNITS[unit] + (int(float(int(digits)) * (_UNITS[unit] / 10 ** len(digits))) if digits else 0)
    if number > _INT64 or part > _INT64:
        raise _no_duration(text)
    return part, place + len(unit)


def _quoted_by_time(text: str) -> str:
    """Quoted as package ``time`` does it, byte by byte."""
    letters = []
    for letter in text:
        if letter in ('"', "\\"):
            letters.append("\\" + letter)
        elif letter < " " or letter >= "\x7f":
            letters.append("".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass")))
        else:
            letters.append(letter)
    return '"' + "".join(letters) + '"'
