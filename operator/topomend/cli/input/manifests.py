"""Read files of YAML or JSON documents that a user names, as kubectl reads them; ``-`` is stdin.

Errors are one line each.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from topomend.base.plain_text import plain
from topomend.cli.output.failures import BadInput


def read_documents(source: str, flag: str) -> Iterator[Any]:
    """The documents in the file ``source``; errors name the flag ``flag``. Raises BadInput."""
    # Imported here: few commands are given a file.
    from topomend.discover.documents.read import read_documents as documents_of  # noqa: PLC0415
    from topomend.discover.documents.value import NotADocument, NotTold, plain_value  # noqa: PLC0415

    content = b""
    try:
        content = _content(source)
        for document in documents_of(content):
            yield plain_value(document.value)
    except OSError as error:
        raise BadInput(f"{flag} {source}: {error.strerror or error}") from error
    except NotTold as error:
        raise BadInput(f"{flag} {source} is not read as YAML: {plain(str(error), 200)}; give it as JSON") from error
    except (NotADocument, UnicodeDecodeError) as error:
        words = _what_it_is(content) or plain(str(error).replace(' in "<byte string>"', ""), 200)
        raise BadInput(f"{flag} {source} is neither YAML nor JSON: {words}") from error


def _what_it_is(content: bytes) -> str:
    """What a file is that people give by mistake, and what to do; empty for any other."""
    if content.startswith(GZIP):
        return "it is an archive; topomend discover --root prints the machine in one of topomend capture"
    if _HEADING.match(content):
        return "it is a table; print it with -o yaml"
    return ""


GZIP = b"\x1f\x8b"

_HEADING = re.compile(rb"[A-Z][A-Z-]* {3,}[A-Z]")
"""The beginning of a table of ours or of kubectl."""


def _content(source: str) -> bytes:
    return sys.stdin.read().encode() if source == "-" else Path(source).read_bytes()
