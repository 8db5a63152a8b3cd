"""Read the selectors of DeviceClasses and requests: CEL expressions, of which only comparisons are understood.

Nearly every class selects by its driver alone, and what a claim adds is mostly an attribute, such as the NUMA node. All
else is CEL, which is the scheduler's to evaluate.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from topomend.model.devices.offered_device import AttributeValue, Selector, Selectors
from topomend.wire.document import Document

MAX_EXPRESSION = 1_000
"""Longer ones are not understood: comparisons are short."""

MAX_KEPT = 1_024
"""How many expressions are kept with what they mean: the claims of many pods are made of one template."""

_LITERAL = r"""(?P<value>"[^"\\]*"|'[^'\\]*'|-?\d{1,18}|true|false)"""
_DRIVER = re.compile(rf"device\.driver\s*==\s*{_LITERAL}")
_ATTRIBUTE = re.compile(
    rf"""device\.attributes\[\s*(?P<domain>"[^"\\]*"|'[^'\\]*')\s*\]\.(?P<name>[A-Za-z_]\w*)\s*==\s*{_LITERAL}"""
)
_AND, _STRING = "&&", re.compile(r""""[^"]*"|'[^']*'""")


def read_selectors(holder: Document) -> Selectors:
    """The field ``selectors`` of a class or of a request. Raises MalformedObject."""
    return tuple(_read(selector["cel"]["expression"].text("")) for selector in holder["selectors"])


def _read(expression: str) -> Selector | None:
    return _understood(expression) if len(expression) <= MAX_EXPRESSION else None


@lru_cache(MAX_KEPT)
def _understood(expression: str) -> Selector | None:
    driver, attributes = "", list[tuple[str, AttributeValue]]()
    for term in _terms(expression):
        if found := _DRIVER.fullmatch(term):
            value = _value(found["value"])
            if not isinstance(value, str) or driver not in ("", value):
                return None
            driver = value
        elif found := _ATTRIBUTE.fullmatch(term):
            attributes.append((f"{found['domain'][1:-1]}/{found['name']}", _value(found["value"])))
        else:
            return None
    return Selector(driver, tuple(attributes))


def _terms(expression: str) -> Iterator[str]:
    """What is between the operators that are outside of strings, in time in proportion to the length."""
    without_strings = _STRING.sub(lambda found: " " * len(found[0]), expression)
    begin = 0
    for part in without_strings.split(_AND):
        end = begin + len(part)
        yield expression[begin:end].strip()
        begin = end + len(_AND)


def _value(literal: str) -> AttributeValue:
    if literal[0] in "\"'":
        return literal[1:-1]
    return {"true": True, "false": False}[literal] if literal in ("true", "false") else int(literal)
