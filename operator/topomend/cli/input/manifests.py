"""Read files of YAML or JSON documents that a user names, as kubectl reads them; ``-`` is stdin.

Errors are one line each.
"""

import errno
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from topomend.base.plain_text import plain
from topomend.cli.output.failures import BadInput
from topomend.model.quantity import format_bytes

MOST_BYTES = 1 << 26
"""Of pods and nodes that a user names: some 20,000 pods as an API server has them."""


def read_documents(source: str, flag: str, most: int = MOST_BYTES) -> Iterator[Any]:
    """The documents in the file ``source`` of ``most`` bytes; errors name the flag ``flag``. Raises BadInput."""
    # Imported here: few commands are given a file.
    from topomend.discover.documents.read import read_documents as documents_of  # noqa: PLC0415
    from topomend.discover.documents.value import NotADocument, NotTold, plain_value  # noqa: PLC0415

    content = b""
    try:
        content = _content(source, most)
        if len(content) > most:
            raise BadInput(f"{flag} {source} is larger than {format_bytes(most)}: too much to read; give fewer objects")
        for document in documents_of(content):
            yield plain_value(document.value)
    except OSError as error:
        raise BadInput(f"{flag} {source}: {error.strerror or error}") from error
    except MemoryError as error:
        raise BadInput(f"{flag} {source} does not fit into the memory of this process; give fewer objects") from error
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


def _content(source: str, most: int) -> bytes:
    """The file, or more than ``most`` bytes of a larger one: /dev/zero has no end."""
    if source == "-":
        return standard_input().read(most + 1)
    with Path(source).open("rb") as file:
        return file.read(most + 1)


def standard_input() -> BinaryIO:
    """The bytes of stdin. Raises OSError where the program was started without one."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "there is no stdin: it is closed")
    return sys.stdin.buffer
