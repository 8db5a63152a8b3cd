"""Decode JSON however deeply it is nested, which a decoder that calls itself for each level cannot.

Any user may write such an object: the parameters of a ResourceClaim may be 5,000 lists within one another, and the API
server lists them with all others. What is too deep for any field that is read is left out; the rest of the object, and
all other objects, are read as ever.
"""

import json
import re
from typing import Any

MAX_LEVELS = 100
"""No field that is read is deeper. Only of a value that is too deep for the decoder anything is left out."""

_TOKEN = re.compile(r'[\[{]+|[\]}]+|"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Lists and objects that begin, such as end, and a string, which may be cut short."""

_FIRST = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder()


def decode(text: str, at: int = 0) -> tuple[Any, int]:
    """The value that begins at ``at``, and where it ends; None in the place of each value below MAX_LEVELS levels.

    Raises ValueError where it is no JSON, or not whole, and RecursionError for a caller that has little stack left.
    """
    try:
        return _decoder.raw_decode(text, at)
    except RecursionError:
        shallow, end = without_depths(text, at)
        return _decoder.raw_decode(shallow)[0], end


def loads(body: bytes | str) -> Any:
    """The value that is all of ``body``, as ``decode`` has it. Raises ValueError, RecursionError."""
    try:
        return json.loads(body)
    except RecursionError:
        text = body if isinstance(body, str) else body.decode()
        shallow, end = without_depths(text, _FIRST.match(text).end())  # type: ignore[union-attr]  # it may be empty
        return json.loads(shallow + text[end:])


def without_depths(text: str, at: int) -> tuple[str, int]:
    """The list or object that begins at ``at`` with null for all that is below MAX_LEVELS levels, and where it ends.

    Takes time in proportion to the length. Raises json.JSONDecodeError where it does not end.
    """
    parts, kept, level = list[str](), at, 0
    for token in _TOKEN.finditer(text, at):
        begin, size = token.start(), len(token[0])
        if text[begin] in "[{":
            if level <= MAX_LEVELS < level + size:
                parts.append(text[kept : begin + MAX_LEVELS - level])
            level += size
        elif text[begin] in "]}":
            if level - size <= MAX_LEVELS < level:
                parts.append("null")
                kept = begin + level - MAX_LEVELS
            if size >= level:
                end = begin + level
                return "".join((*parts, text[kept:end])), end
            level -= size
    raise json.JSONDecodeError("a value does not end", text, at)
