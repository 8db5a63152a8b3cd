"""How long ago something was, as kubectl writes it in the column AGE."""

from datetime import datetime

_MINUTE, _HOUR, _DAY = 60, 60 * 60, 24 * 60 * 60
_YEAR = 365 * _DAY

_ROUGH = ((2 * _MINUTE, 1, "s"), (3 * _HOUR, _MINUTE, "m"), (48 * _HOUR, _HOUR, "h"), (2 * _YEAR, _DAY, "d"))
"""Below so many seconds, the age in whole units."""

_FINE = (
    (2 * _MINUTE, 10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, 8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (48 * _HOUR, 8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, 8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""From so many seconds to so many, the age in two units."""


def age(since: str, now: datetime) -> str:
    """``3m20s``: the time from ``since``, in RFC 3339, to ``now``; ``<unknown>`` where ``since`` is no time.

    Source: apimachinery pkg/util/duration/duration.go:HumanDuration.
    """
    try:
        seconds = int((now - datetime.fromisoformat(since)).total_seconds())
    except (ValueError, TypeError):
        return "<unknown>"
    if seconds < 0:
        return "0s" if seconds >= -1 else "<invalid>"
    for least, most, unit, letter, fine, fine_letter in _FINE:
        if least <= seconds < most:
            rest = seconds % unit // fine
            return f"{seconds // unit}{letter}{f'{rest}{fine_letter}' if rest else ''}"
    unit, letter = next(((unit, letter) for most, unit, letter in _ROUGH if seconds < most), (_YEAR, "y"))
    return f"{seconds // unit}{letter}"
