"""Read files of YAML or JSON documents that a user names, as kubectl reads them; ``-`` is stdin.

Errors are one line each.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from topomend.base.plain_text import plain
from topomend.cli.output.failures import BadInput


def read_documents(source: str, flag: str) -> Iterator[Any]:
    """The documents in the file ``source``; errors name the flag ``flag``. Raises BadInput."""
    # Imported here: it takes 0.1 s, and few commands are given a file.
    from topomend.discover.kubelet_config import documents  # noqa: PLC0415

    try:
        for document in documents.read_documents(_content(source)):
            yield documents.plain_value(document.value)
    except OSError as error:
        raise BadInput(f"{flag} {source}: {error.strerror or error}") from error
    except documents.NotTold as error:
        raise BadInput(f"{flag} {source} is not read as YAML: {plain(str(error), 200)}; give it as JSON") from error
    except (documents.NotADocument, UnicodeDecodeError) as error:
        words = plain(str(error), 200)
        raise BadInput(f"{flag} {source} is neither YAML nor JSON: {words}") from error


def _content(source: str) -> bytes:
    return sys.stdin.read().encode() if source == "-" else Path(source).read_bytes()
