"""Runs this machine's commands for the programs, and says what this machine lacks.

A command that fails leaves the program nothing to do: Unavailable ends it with the command's own words.
"""

import os
import subprocess
from pathlib import Path

RUN_SECONDS = 900.0

SHOWN_CHARACTERS = 1500
"""How much of a failed command's output an error shows: its end."""


class Unavailable(Exception):
    """This machine cannot do what the program needs; the text says why, and what to install or change."""


def run(*argv: str, folder: Path | None = None, seconds: float = RUN_SECONDS, **environment: str) -> str:
    """Run a command in ``folder`` and return its output. Raises Unavailable."""
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except FileNotFoundError as error:
        raise Unavailable(f"{argv[0]} is missing") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{' '.join(argv)} took longer than {seconds:.0f} s") from error
    if done.returncode:
        output = f"{done.stdout.strip()}\n{done.stderr.strip()}".strip()[-SHOWN_CHARACTERS:]
        raise Unavailable(f"{' '.join(argv)} ended with {done.returncode}: {output}")
    return done.stdout


def succeeds(*argv: str, seconds: float = 60.0) -> bool:
    """Whether a command exists and exits with 0."""
    try:
        run(*argv, seconds=seconds)
    except Unavailable:
        return False
    return True
