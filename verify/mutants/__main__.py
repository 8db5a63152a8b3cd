"""``python -m verify.mutants``: break each rule of the replay in turn; the suite must kill the mutants.

Those of ``rules`` are written by hand, and each must be killed. Those of ``operators`` are generated, some of every
function, always the same; a few of them change nothing that can be seen, so ``LEAST_KILLED`` of them must be killed.

The suite is a fast and repeatable form of replay's tests: the kept cases and a fixed set of random ones against the
kubelet's recorded answers, then the tests of replay with fixed seeds, without the property tests. Each mutant gets its
own copy of the project in a temporary folder.

Exit codes: 0 enough are killed, 1 too many survive, 2 the list does not match the source, 3 the suite cannot run.
"""

import argparse
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from verify.mutants.mutant import REPLAY, ROOT, Mutant, OutOfStep
from verify.mutants.operators import Generated, every_generated, some_generated
from verify.mutants.recording import record
from verify.mutants.rules import mutants as by_hand
from verify.oracle.build import OracleNotBuilt, oracle_binary

from topomend.sandbox.failures import SandboxUnavailable

SECONDS = 120
"""How much CPU time each part of the suite may use: the unchanged replay needs 20 s."""

SLOW = ("fast_path/test_admission.py", "topology/test_merge.py", "topology/test_wide.py")
"""Tests that compare thousands of answers, or merge hints on wide machines: they run last."""

PYTEST = ("pytest", "--exitfirst", "--quiet", "--no-header", "--tb=line", "--hypothesis-seed=0")

EXCLUDED = "test_properties.py"
"""Searches random nodes and pods: its result would differ between runs."""


LEAST_KILLED = 0.6
"""The share of the generated mutants that must be killed: a shortcut left out, for one, changes no answer."""


class SuiteFails(RuntimeError):
    """The suite fails on the unchanged replay; the text is its output."""


@dataclass(frozen=True)
class Workshop:
    """A temporary ``folder`` with an unchanged copy of the project and the recorded cases."""

    folder: Path
    binary: Path

    @property
    def original(self) -> Path:
        """The unchanged copy."""
        return self.folder / "original"

    @property
    def recorded(self) -> Path:
        """The cases with the kubelet's answers."""
        return self.folder / "recorded.jsonl"

    def prepare(self) -> None:
        """Copy the project, record the cases, and run the suite once. Raises SuiteFails."""
        _copy(ROOT, self.original)
        sys.stdout.write(f"{record(self.recorded, self.binary)} cases recorded\n")
        failure = self._failure(self.original)
        if failure:
            raise SuiteFails(f"the suite fails on the unchanged replay:\n{failure}")

    def failure(self, mutant: Mutant | Generated) -> str:
        """How the suite fails on a mutant; empty if the mutant survives. Raises OutOfStep."""
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            project = Path(place) / "project"
            _copy(self.original, project)
            file = project / REPLAY / mutant.file
            file.write_text(mutant.applied_to(file.read_text()))
            return self._failure(project, mutant.file)

    def _failure(self, project: Path, broken: str = "") -> str:
        """The output of the first part that fails: the tests of the broken file, the cases, or all other tests.

        The copy includes Python's compiled files, so a mutant compiles only its own file.
        """
        environment = {**os.environ, "PYTHONPATH": str(project / "operator"), "TOPOMEND_SEED": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        own, others = _tests_of_replay(project, broken)
        cases = ["verify.mutants.suite", str(self.recorded), str(self.binary)]
        for module in ([*PYTEST, *own] if own else [], cases, [*PYTEST, *others]):
            if not module:
                continue
            command = [sys.executable, "-m", "verify.mutants.limited", str(SECONDS), *module]
            done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
            if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
                return f"{module[0]} did not finish in {SECONDS} s"
            if done.returncode:
                return done.stdout + done.stderr
        return ""


def _tests_of_replay(project: Path, broken: str) -> tuple[list[str], list[str]]:
    """The test files: first that of the broken file unless it is slow, as the likeliest to fail, then all others."""
    folder = project / "tests" / "replay"
    files = [file for file in folder.rglob("test_*.py") if file.name != EXCLUDED]
    own = {folder / Path(broken).parent / f"test_{Path(broken).name}"} & set(files)
    first = [str(file) for file in own if not _is_slow(file)]
    rest = sorted(files, key=lambda file: (file not in own, _is_slow(file), file))
    return first, [str(file) for file in rest if str(file) not in first]


def _is_slow(file: Path) -> bool:
    return any(file.match(pattern) for pattern in SLOW)


def _copy(source: Path, target: Path) -> None:
    """Copy the parts of the project that the suite needs."""
    for part in ("operator/topomend", "verify/mutants", "verify/oracle", "tests/replay"):
        shutil.copytree(source / part, target / part)
    for path in (source / "pyproject.toml", *(source / "tests").glob("*.py")):
        shutil.copy(path, target / path.relative_to(source))


def main() -> int:
    """Run the chosen mutants."""
    parser = argparse.ArgumentParser(prog="python -m verify.mutants", description=__doc__)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="only mutants whose description or file contains this text")
    parser.add_argument("--each", type=int, default=1, help="so many generated mutants of each function (default: 1)")
    parser.add_argument("--part", type=_part, help="I/N: the I-th of N parts of all generated mutants, and no others")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin with no further mutant after so long")
    options = parser.parse_args()
    generated = every_generated(*options.part) if options.part else some_generated(options.each)
    mutants: list[Mutant | Generated] = [*([] if options.part else by_hand()), *generated]
    chosen = [mutant for mutant in mutants if options.only in mutant.breaks or options.only in mutant.file]
    try:
        for mutant in chosen:
            if isinstance(mutant, Mutant):
                mutant.applied_to((ROOT / REPLAY / mutant.file).read_text())
        with tempfile.TemporaryDirectory(prefix="topomend-mutants-") as folder:
            workshop = Workshop(Path(folder), oracle_binary())
            workshop.prepare()
            return _run_all(workshop, chosen, options.processes, options.minutes * 60)
    except OutOfStep as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (OracleNotBuilt, SandboxUnavailable, SuiteFails) as error:
        sys.stderr.write(f"{error}\n")
        return 3


def _part(text: str) -> tuple[int, int]:
    number, of = map(int, text.split("/"))
    if not 1 <= number <= of:
        raise ValueError(text)
    return number, of


def _run_all(workshop: Workshop, chosen: Sequence[Mutant | Generated], processes: int, seconds: float) -> int:
    begin = time.monotonic()
    tried: list[Mutant | Generated] = []
    survivors = []

    def failure(mutant: Mutant | Generated) -> str | None:
        return None if time.monotonic() - begin > seconds else workshop.failure(mutant)

    with ThreadPoolExecutor(processes) as pool:
        for mutant, failed in zip(chosen, pool.map(failure, chosen), strict=True):
            if failed is None:
                continue
            tried.append(mutant)
            if failed:
                sys.stdout.write(f"killed   {mutant.file}: {mutant.breaks}\n         by {_summary(failed)}\n")
            else:
                sys.stdout.write(f"SURVIVED {mutant.file}: {mutant.breaks}\n")
                survivors.append(mutant)
            sys.stdout.flush()
    sys.stdout.write("\n")
    sys.stdout.writelines(f"SURVIVED {mutant.file}: {mutant.breaks}\n" for mutant in survivors)
    print(f"{len(chosen)} mutants in {time.monotonic() - begin:.0f} s, {len(chosen) - len(tried)} of them not tried")
    kinds = [(kind, _of(tried, kind), _of(survivors, kind)) for kind in (Mutant, Generated)]
    print("; ".join(f"{all_ - alive} of {all_} {_NAMES[kind]} killed" for kind, all_, alive in kinds))
    return 0 if all(enough_killed(kind, all_, alive) for kind, all_, alive in kinds) else 1


_NAMES = {Mutant: "written by hand", Generated: "generated"}


def _of(mutants: Sequence[Mutant | Generated], kind: type) -> int:
    return sum(isinstance(mutant, kind) for mutant in mutants)


def enough_killed(kind: type, tried: int, survived: int) -> bool:
    """Whether so many of this kind may survive: none that is written by hand."""
    return survived == 0 if kind is Mutant else survived <= (1 - LEAST_KILLED) * tried


def _summary(failure: str) -> str:
    """The case or test that failed."""
    lines = [line for line in failure.splitlines() if line.startswith("FAILED")] or failure.splitlines()
    return " ".join("".join(lines[:1]).split())[:160]


if __name__ == "__main__":
    sys.exit(main())
