"""The order in which people count: ``gpu-2`` before ``gpu-10``."""

import re

_DIGITS = re.compile(r"(\d+)")


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """The sort key of natural order: ``gpu-2`` sorts before ``gpu-10``."""
    return [
        (0, int(part), "") if part.isascii() and part.isdigit() and len(part) < 19 else (1, 0, part)
        for part in _DIGITS.split(text)
        if part
    ]
