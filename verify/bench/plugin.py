"""The kubectl plugin as a whole program whose time is taken, the start of Python included.

Its byte code is there, as after pip has installed it, and after the first call of an archive of krew: without it each
start takes 0.2 to 0.3 s longer.
"""

import compileall
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import topomend

_PROGRAM = (sys.executable, "-c", "from topomend.cli.kubectl_numa import main; main()")


@dataclass(frozen=True)
class Timed:
    """One run: how long it took in all, the seconds of a CPU that it took itself, and its output."""

    seconds: float
    cpu_seconds: float
    stdout: str
    stderr: str


def timed(*arguments: str) -> Timed:
    """Run the plugin with these arguments, whatever it exits with."""
    _compile()
    begun, before = time.monotonic(), _cpu_seconds()
    done = subprocess.run([*_PROGRAM, *arguments], capture_output=True, text=True, check=False)
    return Timed(time.monotonic() - begun, _cpu_seconds() - before, done.stdout, done.stderr)


@cache
def _compile() -> None:
    compileall.compile_dir(Path(topomend.__file__).parent, quiet=1)


def _cpu_seconds() -> float:
    """The CPU time of the programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
