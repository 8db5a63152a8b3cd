"""Who killed a process of the tests: three runs lost one to a SIGKILL of which neither kernel nor test told.

Linux' trace of signals has the sender of each. It takes root, and is left out where it is not to be had.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

NAME = "topomend-tests"


@contextmanager
def traced() -> Iterator[Callable[[int], str]]:
    """During the block: the last lines of the trace about SIGKILL of a process, and of the kernel's own errors."""
    with suppress(OSError, subprocess.CalledProcessError), _mounted() as folder:
        instance = folder / "instances" / NAME
        instance.mkdir(exist_ok=True)
        (instance / "events" / "signal" / "signal_generate" / "filter").write_text("sig == 9")
        (instance / "events" / "signal" / "signal_generate" / "enable").write_text("1")
    yield _killer_of
    with suppress(OSError, subprocess.CalledProcessError), _mounted() as folder:
        (folder / "instances" / NAME).rmdir()


def _killer_of(pid: int) -> str:
    lines: list[str] = []
    with suppress(OSError, subprocess.CalledProcessError), _mounted() as folder:
        for line in (folder / "instances" / NAME / "trace").read_text().splitlines():
            if f" pid={pid} " in line:
                lines += [line.strip(), *map(_command, re.findall(r"-(\d+) ", line)[:1])]
    with suppress(OSError, subprocess.CalledProcessError):
        lines += _run("dmesg", "--level=emerg,alert,crit,err").splitlines()[-3:]
    return "\n".join(lines) or "nothing tells who killed it"


def _command(pid: str) -> str:
    try:
        return f"{pid} is {Path('/proc', pid, 'cmdline').read_text().replace(chr(0), ' ')}"
    except OSError:
        return f"{pid} has ended"


@contextmanager
def _mounted() -> Iterator[Path]:
    """The trace's file system, for as short as possible: a test looks at what is mounted."""
    with TemporaryDirectory() as folder:
        _run("mount", "-t", "tracefs", "none", folder)
        try:
            yield Path(folder)
        finally:
            _run("umount", "--lazy", folder)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
