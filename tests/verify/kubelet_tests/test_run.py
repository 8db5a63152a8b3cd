"""Cases come from the events of ``go tool test2json``: what ran, what came of it, what replay answered."""

import json
from pathlib import Path

from verify.kubelet_tests.build import Binaries
from verify.kubelet_tests.overlay import CPU
from verify.kubelet_tests.run import Case, cases, run


def events(*rows: tuple[str, ...]) -> list[str]:
    return [
        json.dumps({"Action": action, "Test": test} | ({"Output": output[0]} if output else {}))
        for action, test, *output in rows
    ]


def read(*rows: tuple[str, ...]) -> list[Case]:
    return list(cases(CPU, events(*rows)))


def asked(question: str) -> str:
    return f"answered by replay: {question}\n"


def test_a_case_is_a_test_without_subtests_whatever_its_name() -> None:
    read_cases = read(
        ("run", "TestA"),
        ("run", "TestA/two_hints_1/2"),
        ("pass", "TestA/two_hints_1/2"),
        ("pass", "TestA"),
        ("run", "TestB"),
        ("fail", "TestB"),
    )
    assert [(case.name, case.result) for case in read_cases] == [("TestA/two_hints_1/2", "pass"), ("TestB", "fail")]


def test_what_a_test_prints_by_its_parents_name_is_its_own() -> None:
    (case,) = read(
        ("run", "TestA"),
        ("run", "TestA/one"),
        ("output", "TestA", asked("Merge")),
        ("output", "TestA/one", asked("Merge")),
        ("output", "TestA/one", "    a_test.go:1: wrong\n"),
        ("fail", "TestA/one"),
        ("fail", "TestA"),
    )
    assert case.answered == {"Merge": 2}
    assert case.output == ["    a_test.go:1: wrong\n"]


def test_a_test_that_never_ends_has_not_passed() -> None:
    (case,) = read(("run", "TestA"), ("output", "TestA", "panic: out of range\n"))
    assert not case.passed


def test_a_test_that_fails_beside_its_subtests_is_a_case() -> None:
    read_cases = read(("run", "TestA"), ("run", "TestA/one"), ("pass", "TestA/one"), ("fail", "TestA"))
    assert [(case.name, case.passed) for case in read_cases] == [("TestA", False), ("TestA/one", True)]


def test_a_test_binary_that_fails_outside_of_any_test_is_a_failed_case(tmp_path: Path) -> None:
    (tmp_path / CPU).mkdir(parents=True)
    binary = tmp_path / "cpumanager.test"
    binary.write_text('#!/bin/sh\necho "$TOPOMEND_VERSION in $PWD"\nexit 3\n')
    binary.chmod(0o755)
    (case,) = run(Binaries("v1.37.2", {CPU: binary}, (), tmp_path), CPU)
    assert (case.package, case.name, case.passed) == (CPU, "(the test binary itself)", False)


def test_marks_around_errors_are_left_out() -> None:
    """Go 1.27 puts them into what a test prints."""
    (case,) = read(("run", "TestA"), ("output", "TestA", "\x0f    a_test.go:1: wrong\x0e\n"), ("fail", "TestA"))
    assert case.output == ["    a_test.go:1: wrong\n"]
