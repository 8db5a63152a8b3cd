"""Whole numbers in labels and taints, as Go reads them (strconv.ParseInt with base 10 and 64 bits)."""

import re

_DIGITS = re.compile(r"[+-]?[0-9]{1,40}")


def parse_int(text: str) -> int | None:
    """The number; None where the text is not one or does not fit an int64."""
    if not _DIGITS.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None
