"""The kubelet's flags, which override its configuration file: on the command line of the process that runs here, or in
the file that a distribution starts it with.

Owns which process it is and how flags are written. A container sees the processes of the host only where it shares
their namespace, which the agent's does not; a kubelet that is part of a larger program (k3s) has no process of its own.
"""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from topomend.discover.host_files import Unreadable, read_bytes

PROC = Path("/proc")
MAX_COMMAND_LINE = 1 << 17
"""As much as Linux lets an argument have (binfmts.h:MAX_ARG_STRLEN)."""

Flags = Mapping[str, Sequence[str]]
"""Each flag's values in their order, by its name without dashes."""


@dataclass(frozen=True)
class KubeletProcess:
    """One kubelet that runs here; its configuration file and drop-in folder as they are reached from here."""

    flags: Flags
    config: Path | None
    config_dir: Path | None


def kubelet_of(file: Path, proc: Path = PROC) -> KubeletProcess | None:
    """The one kubelet that was started with this configuration file; None where none is seen, or several are."""
    found = [each for each in kubelets(proc) if each.config is not None and _is_same(each.config, file)]
    return found[0] if len(found) == 1 else None


def kubelets(proc: Path = PROC) -> Iterator[KubeletProcess]:
    """Every kubelet whose process is visible here."""
    try:
        pids = sorted(int(each.name) for each in proc.iterdir() if each.name.isascii() and each.name.isdigit())
    except OSError:
        return
    for pid in pids:
        arguments = _command_line(proc / str(pid))
        # Programs that hold several of Kubernetes' own take the name as their first argument.
        place = next((at for at, each in enumerate(arguments[:2]) if each.rpartition("/")[2] == "kubelet"), None)
        if place is not None:
            flags = read_flags(arguments[place + 1 :])
            process = proc / str(pid)
            yield KubeletProcess(flags, _path(process, flags, "config"), _path(process, flags, "config-dir"))


def read_flags(arguments: Sequence[str]) -> Flags:
    """The flags among ``arguments``, each written ``--name=value`` or ``--name value``.

    A flag without a value is taken to have what stands next: those asked for here all have one. Underscores count as
    dashes (component-base/cli/flag:WordSepNormalizeFunc).
    """
    flags: dict[str, list[str]] = {}
    for place, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            given = value if equals else "".join(arguments[place + 1 : place + 2])
            flags.setdefault(name.replace("_", "-"), []).append(given)
    return flags


def read_flags_file(path: Path) -> Flags:
    """The flags in a file that holds them as a shell takes them, comments left out: MicroK8s keeps its kubelet's so.

    Variables stay as they are written: none stands in a flag that is asked for here. Raises Unreadable.
    """
    try:
        text = read_bytes(path, MAX_COMMAND_LINE).decode(errors="replace")
    except Unreadable as error:
        raise type(error)(f"{path} {error}") from error
    try:
        return read_flags(shlex.split(text, comments=True))
    except ValueError as error:
        raise Unreadable(f"{path} holds no flags: {error}") from error


def _command_line(process: Path) -> list[str]:
    try:
        text = read_bytes(process / "cmdline", MAX_COMMAND_LINE).decode(errors="replace")
    except Unreadable:
        return []
    return text.removesuffix("\0").split("\0")


def _path(process: Path, flags: Flags, flag: str) -> Path | None:
    name = flags.get(flag, [""])[-1]
    if not name:
        return None
    # The kubelet may live in a container with files of its own.
    return Path(f"{process}/root{name}") if name.startswith("/") else process / "cwd" / name


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)  # noqa: PTH121 - Path.samefile does the same with an object more
    except OSError:
        return False
