"""A page as a session of a terminal: its commands, and what it shows of their answers.

A block of a page without a language is part of the session. A line that begins with ``$`` is a command, which goes on
behind a backslash; the lines below it are its answer, in which ``...`` stands for any text.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

from tests.clusters import ROOT

PAGES = sorted((ROOT / "docs" / "reference" / "sites").glob("*.md"))

UP = ("topomend", "sandbox", "up")

_BLOCK = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CONTINUED = re.compile(r"\\\n *")
_PROMPT = re.compile(r"^\$ ", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A command on one line, and the lines that the page shows below it."""

    command: str
    shown: tuple[str, ...]

    @property
    def arguments(self) -> list[str]:
        """The command's words."""
        return shlex.split(self.command, comments=True)

    def is_shown_by(self, printed: str) -> bool:
        """Whether this is the answer that the page shows; of a command without one, any is."""
        return not self.shown or bool(self._pattern.fullmatch(printed.strip()))

    @property
    def _pattern(self) -> re.Pattern[str]:
        parts = "\n".join(self.shown).split("...")
        return re.compile(".*?".join(re.escape(part) for part in parts), re.DOTALL)


def steps_of(page: Path) -> tuple[Step, ...]:
    """All commands of a page, in its order."""
    texts = [text for block in _BLOCK.findall(page.read_text()) for text in _PROMPT.split(block)[1:]]
    return tuple(map(_step, texts))


def _step(text: str) -> Step:
    command, *lines = _CONTINUED.sub("", text).splitlines()
    return Step(command, tuple(line.rstrip() for line in lines))


def up_of(steps: Sequence[Step]) -> int:
    """The place of the command that brings the page's sandbox up; those before it need no cluster."""
    return next(place for place, step in enumerate(steps) if tuple(step.arguments[:3]) == UP)


def name_of(step: Step) -> str:
    """The name of the sandbox that a command brings up."""
    return step.arguments[step.arguments.index("--name") + 1]


_KUBECTL = """#!/bin/sh
if [ "$1" = numa ]; then shift; exec kubectl-numa "$@"; fi
exec {python} -m topomend.cli sandbox kubectl --name {name} -- "$@"
"""
"""Stands in for kubectl, which the machine need not have: that of the sandbox takes flags of its own before a verb, and
kubectl calls no plugin behind flags."""


@dataclass
class Shell:
    """A fresh shell in a clone whose programs are found, as after ``. .venv/bin/activate``; it keeps its variables."""

    folder: Path
    sandbox: str
    _process: subprocess.Popen[str] = field(init=False)

    def __enter__(self) -> Self:
        kubectl = self.folder / "kubectl"
        kubectl.write_text(_KUBECTL.format(python=sys.executable, name=self.sandbox))
        kubectl.chmod(0o755)
        programs = Path(sys.executable).parent
        environment = {
            **{name: os.environ[name] for name in ("HOME", "XDG_CACHE_HOME") if name in os.environ},
            "PATH": f"{self.folder}:{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "operator"),
        }
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],  # noqa: S607 - the reader's own
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def ask(self, command: str) -> tuple[int, str]:
        """The command's exit code, and what it printed."""
        written, read = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        written.write(f"{command}\necho; echo {_END} $?\n")
        written.flush()
        lines: list[str] = []
        for line in read:
            if line.startswith(_END):
                return int(line.split()[1]), "".join(lines).removesuffix("\n")
            lines.append(line)
        raise AssertionError(f"the shell has ended: {''.join(lines)}")


_END = "end-of-the-answer"
