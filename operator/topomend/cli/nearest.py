"""The nearest name to one that was mistyped, for the end of an error."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``: did you mean train-9?``, or empty where no name is close to ``name``."""
    close = get_close_matches(name, list(names), n=1)
    return f": did you mean {close[0]}?" if close else ""
