"""Rules of a JSON schema that name the right name for a misspelt one: helm's own error only says which is wrong.

Helm checks values against the schema before it renders a template, so that no template could say it.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

LONG = 8
"""From so many letters on, the first or the last letters are enough to know a name by."""


def rules(names: Collection[str], at: str, elsewhere: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What an object with these ``names`` must also obey; ``at`` is the path before a name, such as ``agent.``.

    A name that is a value ``elsewhere`` is answered with the paths there. (A rule ``propertyNames`` alone would be
    shorter, but the library that helm has shows another object's path with its errors.)
    """
    near = [
        _rule({"anyOf": [{"const": name}, {"not": {"pattern": f"^({'|'.join(alternatives)})$"}}]}, at + name)
        for name in names
        if (alternatives := list(_alternatives(name, set(names) - {name})))
    ]
    moved = [_rule({"not": {"const": name}}, " or ".join(paths)) for name, paths in elsewhere.items()]
    return {"allOf": near + moved} if near or moved else {}


def _rule(every_name: Mapping[str, Any], meant: str) -> dict[str, Any]:
    """What is said where some name of an object is not as ``every_name``. No object is a text."""
    return {"if": {"propertyNames": every_name}, "else": {"const": f"did you mean {meant}?"}}


def _alternatives(name: str, others: Collection[str]) -> Iterator[str]:
    """Expressions that match the name's misspellings and none of the ``others``.

    One slip, also two letters that changed places, is within two neighbouring letters: those before and after are
    right. In a long name it leaves the first or the last letters right.
    """
    middle = len(name) // 2
    halves = [f"{_any_case(name[: middle - 1])}.*", f".*{_any_case(name[middle + 1 :])}"]
    if len(name) >= LONG and not any(_matches(half, others) for half in halves):
        yield from halves
        return
    for position in range(len(name) - 1):
        before, after = _any_case(name[:position]), _any_case(name[position + 2 :])
        window = f"{before}.{{0,3}}{after}"
        slips = _slips(name, position) if _matches(window, others) else [window]
        yield from (slip for slip in slips if not _matches(slip, others))


def _slips(name: str, position: int) -> Iterator[str]:
    """Each slip at a letter or the next on its own, where both together would be another name."""
    for at in (position, position + 1):
        before, after = _any_case(name[:at]), _any_case(name[at + 1 :])
        yield f"{before}.?{after}"
        yield f"{before}.{_any_case(name[at:])}"
    yield f"{_any_case(name[:position] + name[position + 1] + name[position] + name[position + 2 :])}"
    yield f"{_any_case(name)}.?"


def _matches(expression: str, names: Collection[str]) -> bool:
    return any(re.fullmatch(expression, name) for name in names)


def _any_case(text: str) -> str:
    """Without a flag, which not every reader of schemas knows."""
    return "".join(f"[{letter.lower()}{letter.upper()}]" if letter.isalpha() else re.escape(letter) for letter in text)
