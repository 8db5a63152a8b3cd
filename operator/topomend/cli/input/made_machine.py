"""A machine that a user names: a shape, a known machine, a file of what lscpu and numactl print, or a recorded one.

Owns how they are told from each other, and their errors.
"""

import os
from pathlib import Path

from topomend.base.plain_text import plain
from topomend.cli.input.did_you_mean import did_you_mean
from topomend.cli.input.manifests import GZIP
from topomend.cli.output.console import echo
from topomend.cli.output.failures import BadInput
from topomend.discover.capture import NotACapture, unpacked
from topomend.discover.documents.text import decoded
from topomend.discover.host import read_host
from topomend.model.shapes.known_machines import MACHINES, find_machine
from topomend.model.shapes.pasted_machine import BEGINNING, InvalidPaste, PastedMachine, read_pasted_machine
from topomend.model.shapes.shape import InvalidShape, parse_shape

MOST_BYTES = 1 << 22
"""lscpu prints some 80 bytes a CPU, numactl 7 a CPU and 5 a pair of NUMA nodes."""

ANY_MACHINE = (
    "A shape; a name that topomend machines lists; a file with what lscpu -e and numactl -H print; an archive of "
    "topomend capture; or a folder with a recorded sys/."
)
"""What ``any_machine`` takes, for the help of a flag."""


def any_machine(source: str, flag: str) -> PastedMachine:
    """The machine that ``source`` names, made up or recorded. Raises BadInput."""
    made = made_machine(source, flag)
    if made is not None:
        return made
    recorded = recorded_machine(source, flag)
    if recorded is not None:
        return recorded
    if os.path.isfile(source):  # noqa: PTH113 - Path.is_file raises where a folder is closed
        raise BadInput(f"{flag} {source}: neither lscpu -e and numactl -H, nor an archive of topomend capture")
    raise BadInput(
        f"{flag} {source!r} is neither a shape such as 'numa:2 cores:8 memory:32Gi', nor a known machine, nor a file "
        f"of lscpu -e and numactl -H, nor a capture, nor a folder that contains sys/{nearest_machine(source)}"
    )


def recorded_machine(source: str, flag: str) -> PastedMachine | None:
    """The machine of a folder with a recorded sys/, or of an archive of ``capture``; None for anything else.

    Raises BadInput for one that cannot be read.
    """
    path = Path(source)
    if os.path.isdir(path / "sys"):  # noqa: PTH112 - Path.is_dir raises where a folder is closed
        return _recorded(path, source, flag)
    if not is_archive(path):
        return None
    try:
        with unpacked(path) as folder:
            return _recorded(folder, source, flag)
    except NotACapture as error:
        raise BadInput(f"{flag} {source}: not an archive of topomend capture: {error}") from error


def is_archive(path: Path) -> bool:
    """Whether a file is gzipped, as an archive of ``capture`` is."""
    try:
        with path.open("rb") as file:
            return file.read(len(GZIP)) == GZIP
    except OSError:
        return False  # whoever reads it as something else says what is wrong


def _recorded(folder: Path, source: str, flag: str) -> PastedMachine:
    host = read_host(folder)
    if not host.machine.cores:
        raise BadInput(f"{flag} {source}: {'; '.join(host.problems) or 'no CPU is online there'}")
    return PastedMachine(host.machine, problems=host.problems)


def made_machine(source: str, flag: str) -> PastedMachine | None:
    """The machine that ``source`` names; None if it names none. A file goes before a shape of the same text.

    Raises BadInput for a wrong shape, or a file that begins as lscpu or numactl do and is wrong.
    """
    # What Path.exists raises, reading the file says in one line.
    if source != "-" and not os.path.exists(source):  # noqa: PTH110
        return _of_shape(source, flag)
    return None if source == "-" else _pasted(Path(source), flag)


def warn_of_problems(made: PastedMachine, source: str, flag: str) -> None:
    """Print a warning for what of a recorded machine could not be read."""
    for problem in made.problems:
        echo(f"warning: {flag} {source}: {problem}", err=True)


def nearest_machine(source: str) -> str:
    """The end of an error about a text that names no machine: ``: did you mean ...?``; empty where none is close."""
    return did_you_mean(source, [machine.name for machine in MACHINES])


def _of_shape(text: str, flag: str) -> PastedMachine | None:
    words = text.split()
    if not words or (":" not in text and find_machine(words[0]) is None):
        return None
    try:
        shape = parse_shape(text)
    except InvalidShape as error:
        near = "" if ":" in words[0] else nearest_machine(words[0])
        raise BadInput(f"{flag} {text!r} is neither a file nor a valid shape: {error}{near}") from error
    return PastedMachine(shape.machine(), shape.offered_devices(), shape.claimable_devices())


def _pasted(path: Path, flag: str) -> PastedMachine | None:
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return None
        text = decoded(path.read_bytes())
    except (OSError, UnicodeDecodeError):
        return None  # whoever reads it as something else says what is wrong
    if not BEGINNING.search(text):
        return None
    try:
        return read_pasted_machine(text)
    except InvalidPaste as error:
        raise BadInput(f"{flag} {path}: {plain(str(error), 300)}") from error
