"""The nearest name to one that was mistyped, for the end of an error."""

from collections.abc import Iterable

LEAST = 3
"""Letters of a beginning that means its longer name."""


def nearest(name: str, names: Iterable[str]) -> str:
    """The one of ``names`` that is close to ``name``; empty where none is. Upper and lower case are alike."""
    from difflib import get_close_matches  # noqa: PLC0415  slow to import, and needed where a name is wrong

    by_lower = {each.lower(): each for each in names}
    lower = name.lower()
    close = get_close_matches(lower, list(by_lower), n=1)
    if not close and len(lower) >= LEAST:
        close = sorted(each for each in by_lower if each.startswith(lower))
    return by_lower[close[0]] if close else ""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``: did you mean train-9?``, or empty where no name is close to ``name``."""
    near = nearest(name, names)
    return f": did you mean {near}?" if near else ""
