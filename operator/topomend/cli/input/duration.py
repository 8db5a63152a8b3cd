"""Durations as kubectl and Prometheus take them on a command line."""

import re
from datetime import timedelta

from topomend.cli.output.failures import BadInput

MOST_PARTS = 10
"""More numbers with units could come to more than a timedelta holds."""

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def read_duration(flag: str, text: str) -> timedelta:
    """``90m``, ``24h``, ``7d`` or ``1h30m``: at least a second. Raises BadInput."""
    parts = re.findall("([0-9]{1,6})([dhms])", text)
    if "".join(map("".join, parts)) != text or not 0 < len(parts) <= MOST_PARTS:
        raise BadInput(f"{flag} {text!r} is no duration, such as 90m, 24h or 7d")
    duration = sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta())
    if duration < timedelta(seconds=1):
        raise BadInput(f"{flag} {text!r} is too short")
    return duration
