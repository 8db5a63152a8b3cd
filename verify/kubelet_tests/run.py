"""Runs test binaries and reads, test by test, what came of it and which of its answers are replay's.

A case is a test without subtests: most of the kubelet's tables run each of their entries as one. Owns the reading of
``go tool test2json``. Leaves to ``expected`` which failures are none of replay's.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from verify.kubelet_tests.build import MINIMUM_GO, Binaries, on_progress

from topomend.sandbox.releases import toolchain

PROJECT = Path(__file__).parents[2]

TEST_SECONDS = 900

_MARKS = {0x0E: None, 0x0F: None}
"""What tests that were built with Go 1.27 put around their errors, and an older ``go tool test2json`` does not know."""

_ANSWERED = re.compile(r"answered by replay: (\S+)")


@dataclass
class Case:
    """A test without subtests: its result, what it printed, and how often replay answered each function."""

    package: str
    name: str
    result: str = ""
    output: list[str] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)

    @property
    def passed(self) -> bool:
        return self.result == "pass"


def run(binaries: Binaries, package: str, *, python_path: str = "") -> list[Case]:
    """Run the tests of one package in the folder of its sources, where their test data are.

    ``python_path`` precedes the paths from which replay is imported.
    """
    go = toolchain.find_go(MINIMUM_GO, on_progress)
    command = [str(go), "tool", "test2json", "-p", package, str(binaries.binaries[package])]
    options = ["-test.v=test2json", f"-test.timeout={TEST_SECONDS}s"]
    paths = [python_path, str(PROJECT / "operator"), str(PROJECT)]
    environment = {
        **os.environ,
        "TOPOMEND_PYTHON": sys.executable,
        "TOPOMEND_PROJECT": str(PROJECT),
        "TOPOMEND_VERSION": binaries.version,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    done = subprocess.run(
        [*command, *options],
        cwd=binaries.kubernetes / package,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    found = list(cases(package, done.stdout.splitlines()))
    if done.returncode and all(case.passed for case in found):
        found.append(Case(package, "(the test binary itself)", "fail"))
    return found


def cases(package: str, lines: Iterable[str]) -> Iterator[Case]:
    """The cases of a package, from the events of ``go tool test2json``. A test that never ended has failed.

    A test may print by the name of the test that started it; what is printed belongs to the innermost that runs.
    """
    tests: dict[str, Case] = {}
    running: list[str] = []
    for event in map(json.loads, lines):
        if "Test" not in event:
            continue
        name, action = event["Test"], event["Action"]
        test = tests.setdefault(name, Case(package, name))
        if action == "run":
            running.append(name)
        elif action in ("pass", "fail", "skip"):
            test.result = action
            running.remove(name)
        elif action == "output":
            inner = next((other for other in reversed(running) if other.startswith(f"{name}/")), name)
            _read_output(tests[inner], event["Output"])
    parents = {prefix for name in tests for prefix in _prefixes(name)}
    yield from (test for name, test in tests.items() if name not in parents or _failed_itself(tests, name))


def _read_output(test: Case, text: str) -> None:
    answered = _ANSWERED.match(text)
    if answered:
        test.answered[answered[1]] += 1
    else:
        test.output.append(text.translate(_MARKS))


def _prefixes(name: str) -> Iterator[str]:
    """The names that a parent of the test may have: a name of a subtest may contain slashes of its own."""
    *parts, _ = name.split("/")
    return accumulate(parts, "{}/{}".format)


def _failed_itself(tests: Mapping[str, Case], name: str) -> bool:
    """Whether a test failed although each of its subtests passed: it counts as a case of its own then."""
    below = [test for other, test in tests.items() if other.startswith(f"{name}/")]
    return tests[name].result not in ("pass", "skip") and all(test.passed or test.result == "skip" for test in below)
