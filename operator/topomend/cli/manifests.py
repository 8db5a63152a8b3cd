"""Read files of YAML or JSON documents that a user names; ``-`` is stdin. Errors are one line each."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

import yaml

from topomend.cli.failures import BadInput
from topomend.model.plain_text import plain


def read_documents(source: str, flag: str) -> Iterator[Any]:
    """The documents in the file ``source``; errors name the flag ``flag``. Raises BadInput."""
    try:
        with _open(source) as stream:
            yield from yaml.safe_load_all(stream)
    except OSError as error:
        raise BadInput(f"{flag} {source}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        words = plain(str(error), 200)
        raise BadInput(f"{flag} {source} is neither YAML nor JSON: {words}") from error


def _open(source: str) -> AbstractContextManager[IO[str]]:
    return nullcontext(sys.stdin) if source == "-" else Path(source).open(encoding="utf-8")
