"""The kubelet's flags, which override its configuration file.

They are on the command line of its process, or in a file from which the distribution starts it. Owns finding the
process and parsing flags. A container sees the host's processes only if it shares their namespace, which the agent's
does not. A kubelet inside a larger program (k3s) has no process of its own. Applying the flags is left to
``kubelet_config``.
"""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from topomend.discover.host_files import SourceUnreadable, read_bytes

PROC = Path("/proc")
MAX_COMMAND_LINE = 1 << 17
"""Bytes that Linux allows for one argument (binfmts.h:MAX_ARG_STRLEN)."""

Flags = Mapping[str, Sequence[str]]
"""Values in the order of the command line, by the flag's name without leading dashes."""


@dataclass(frozen=True)
class KubeletProcess:
    """One running kubelet. The paths are reachable from this process: they lead through /proc/PID/root or cwd."""

    flags: Flags
    config: Path | None
    config_dir: Path | None


def kubelet_of(file: Path, proc: Path = PROC) -> KubeletProcess | None:
    """The kubelet that was started with this configuration file; None if none is visible, or several are."""
    matching = [kubelet for kubelet in kubelets(proc) if kubelet.config is not None and _is_same(kubelet.config, file)]
    return matching[0] if len(matching) == 1 else None


def kubelets(proc: Path = PROC) -> Iterator[KubeletProcess]:
    """Every kubelet whose process is visible under ``proc``."""
    try:
        pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isascii() and entry.name.isdigit())
    except OSError:
        return
    for pid in pids:
        arguments = _command_line(proc / str(pid))
        # Programs that bundle several components (hyperkube) take the component's name as first argument.
        place = next(
            (at for at, argument in enumerate(arguments[:2]) if argument.rpartition("/")[2] == "kubelet"), None
        )
        if place is not None:
            flags = read_flags(arguments[place + 1 :])
            process = proc / str(pid)
            yield KubeletProcess(flags, _path(process, flags, "config"), _path(process, flags, "config-dir"))


def read_flags(arguments: Sequence[str]) -> Flags:
    """The flags among ``arguments``, each written ``--name=value`` or ``--name value``.

    The next argument counts as the value of a flag without ``=``, and two dashes if there is none. A flag that is true
    or false takes no value from it: a value that begins with dashes is none.
    Underscores count as dashes (component-base/cli/flag:WordSepNormalizeFunc).
    """
    flags: dict[str, list[str]] = {}
    for place, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            given = value if equals else "".join(arguments[place + 1 : place + 2] or ["--"])
            flags.setdefault(name.replace("_", "-"), []).append(given)
    return flags


def read_flags_file(path: Path) -> Flags:
    """The flags in a file in shell syntax with comments, such as MicroK8s has.

    Variables are not expanded: no flag that is used here contains one. Raises SourceUnreadable.
    """
    try:
        text = read_bytes(path, MAX_COMMAND_LINE).decode(errors="replace")
    except SourceUnreadable as error:
        raise type(error)(f"{path} {error}") from error
    try:
        return read_flags(shlex.split(text, comments=True))
    except ValueError as error:
        raise SourceUnreadable(f"{path} does not contain flags: {error}") from error


def _command_line(process: Path) -> list[str]:
    try:
        text = read_bytes(process / "cmdline", MAX_COMMAND_LINE).decode(errors="replace")
    except SourceUnreadable:
        return []
    return text.removesuffix("\0").split("\0")


def _path(process: Path, flags: Flags, flag: str) -> Path | None:
    name = flags.get(flag, [""])[-1]
    if not name:
        return None
    # The kubelet may run in a container with its own root file system.
    return Path(f"{process}/root{name}") if name.startswith("/") else process / "cwd" / name


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)  # noqa: PTH121 - Path.samefile does the same with an object more
    except OSError:
        return False
