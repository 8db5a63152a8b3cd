"""``python -m tests.mutants``: break each rule of the replay in turn; the suite must notice every one.

The suite is what replay is tested with, made fast and the same each time: the kept cases and a fixed slice of random
ones against the kubelet's recorded answers, then the tests of replay with fixed seeds, but for the properties that are
sought in nodes and pods at random. Each mutant has a copy of the project of its own in a temporary folder.

Ends with 0 where all are noticed, 1 where one survives, 2 where the list is out of step, 3 where the suite cannot run.
"""

import argparse
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

from tests.mutants.mutant import REPLAY, ROOT, Mutant, OutOfStep
from tests.mutants.recording import record
from tests.mutants.rules import mutants
from tests.oracle.build import OracleNotBuilt, oracle_binary

from topomend.sandbox.failures import SandboxUnavailable

SECONDS = 120
"""How much of a processor's time each half of the suite may use: replay as it is needs 20 s."""

SEARCHING = ("test_fast_admission.py", "test_merge.py")
"""Tests that take long because they compare thousands of answers: they come last."""

PYTEST = ("pytest", "--exitfirst", "--quiet", "--no-header", "--tb=line", "--hypothesis-seed=0")

LEFT_OUT = "test_properties.py"
"""Seeks in nodes and pods at random, which is never twice the same."""


class SuiteFails(RuntimeError):
    """The suite complains of replay as it is; the text is its own."""


@dataclass(frozen=True)
class Workshop:
    """A temporary ``folder`` that holds the project as it is (``whole``) and the recorded cases."""

    folder: Path
    binary: Path

    @property
    def whole(self) -> Path:
        """The project as it is."""
        return self.folder / "whole"

    @property
    def recorded(self) -> Path:
        """The cases with the kubelet's answers."""
        return self.folder / "recorded.jsonl"

    def prepare(self) -> None:
        """Copy the project, record the cases, and see that nothing is amiss. Raises SuiteFails."""
        _copy(ROOT, self.whole)
        sys.stdout.write(f"{record(self.recorded, self.binary)} cases recorded\n")
        complaint = self._complaint_of(self.whole)
        if complaint:
            raise SuiteFails(f"the suite fails on replay as it is:\n{complaint}")

    def complaint_of(self, mutant: Mutant) -> str:
        """What the suite says of a mutant; empty where it survives. Raises OutOfStep."""
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            project = Path(place) / "project"
            _copy(self.whole, project)
            file = project / REPLAY / mutant.file
            file.write_text(mutant.applied_to(file.read_text()))
            return self._complaint_of(project, mutant.file)

    def _complaint_of(self, project: Path, broken: str = "") -> str:
        """What the first part that fails says: the tests of the broken file, the cases, all other tests.

        What Python compiled of the whole project is copied with it: each mutant compiles its own file alone.
        """
        surroundings = {**os.environ, "PYTHONPATH": str(project / "operator"), "TOPOMEND_SEED": "1"}
        surroundings.pop("PYTHONDONTWRITEBYTECODE", None)
        own, others = _tests_of_replay(project, broken)
        cases = ["tests.mutants.suite", str(self.recorded), str(self.binary)]
        for module in ([*PYTEST, *own] if own else [], cases, [*PYTEST, *others]):
            if not module:
                continue
            command = [sys.executable, "-m", "tests.mutants.limited", str(SECONDS), *module]
            done = subprocess.run(command, cwd=project, env=surroundings, capture_output=True, text=True, check=False)
            if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
                return f"{module[0]} had no end in {SECONDS} s"
            if done.returncode:
                return done.stdout + done.stderr
        return ""


def _tests_of_replay(project: Path, broken: str) -> tuple[list[str], list[str]]:
    """The files of tests: those of the ``broken`` file, likeliest to complain unless they search, and all others."""
    folder = project / "tests" / "replay"
    files = [each for each in folder.rglob("test_*.py") if each.name != LEFT_OUT]
    own = {folder / Path(broken).parent / f"test_{Path(broken).name}"} & set(files)
    first = [str(each) for each in own if each.name not in SEARCHING]
    rest = sorted(map(str, files), key=lambda each: (Path(each) not in own, Path(each).name in SEARCHING, each))
    return first, [each for each in rest if each not in first]


def _copy(source: Path, target: Path) -> None:
    """What the suite needs of the project."""
    (target / "tests").mkdir(parents=True)
    for part in ("pyproject.toml", "tests/merging.py"):
        shutil.copy(source / part, target / part)
    for part in ("operator/topomend", "tests/mutants", "tests/oracle", "tests/replay"):
        shutil.copytree(source / part, target / part)


def main() -> int:
    """Run the mutants that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="mutants whose sentence or file holds this text")
    options = parser.parse_args()
    chosen = [each for each in mutants() if options.only in each.breaks or options.only in each.file]
    try:
        for each in chosen:
            each.applied_to((ROOT / REPLAY / each.file).read_text())
        with tempfile.TemporaryDirectory(prefix="topomend-mutants-") as folder:
            workshop = Workshop(Path(folder), oracle_binary())
            workshop.prepare()
            return _run_all(workshop, chosen, options.processes)
    except OutOfStep as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (OracleNotBuilt, SandboxUnavailable, SuiteFails) as error:
        sys.stderr.write(f"{error}\n")
        return 3


def _run_all(workshop: Workshop, chosen: Sequence[Mutant], processes: int) -> int:
    begin = time.monotonic()
    survivors = []
    with ThreadPoolExecutor(processes) as pool:
        for mutant, complaint in zip(chosen, pool.map(workshop.complaint_of, chosen), strict=True):
            if complaint:
                sys.stdout.write(f"noticed  {mutant.file}: {mutant.breaks}\n         by {_first_words(complaint)}\n")
            else:
                sys.stdout.write(f"SURVIVED {mutant.file}: {mutant.breaks}\n")
                survivors.append(mutant)
            sys.stdout.flush()
    sys.stdout.write(
        f"\n{len(chosen)} mutants in {time.monotonic() - begin:.0f} s: "
        f"{len(chosen) - len(survivors)} noticed, {len(survivors)} survived\n"
    )
    sys.stdout.writelines(f"SURVIVED {each.file}: {each.breaks}\n" for each in survivors)
    return 1 if survivors else 0


def _first_words(complaint: str) -> str:
    """Which case or test it was."""
    lines = [line for line in complaint.splitlines() if line.startswith("FAILED")] or complaint.splitlines()
    return " ".join("".join(lines[:1]).split())[:160]


if __name__ == "__main__":
    sys.exit(main())
