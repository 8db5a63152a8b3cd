"""A run is as expected if every case passed but the listed ones, and every replaced function was asked."""

from collections.abc import Sequence

import pytest
from verify.kubelet_tests import expected
from verify.kubelet_tests.expected import NotApplicable
from verify.kubelet_tests.overlay import CPU, FUNCTIONS
from verify.kubelet_tests.results import Results
from verify.kubelet_tests.run import Case

TAKE = next(function for function in FUNCTIONS if function.name == "takeByTopologyNUMAPacked")


def results(*cases: Case, version: str = "v1.37.2") -> Results:
    return Results(version, (TAKE,), cases)


def case(*, name: str = "TestA", result: str = "pass", output: Sequence[str] = (), question: str = "") -> Case:
    made = Case(CPU, name, result, list(output))
    made.answered.update([question] if question else [])
    return made


GOOD = case(question=TAKE.question)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = NotApplicable(CPU, "TestListed", "no (hugepages|devices)", "replay has none", since=36)
    monkeypatch.setattr(expected, "NOT_APPLICABLE", (entry,))


@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize(
    ("beside", "good"),
    [
        ((), True),
        ((case(),), True),
        ((case(result="fail", output=["    a_test.go:1: wrong\n"]),), False),
        ((case(result="skip"),), False),
        ((case(name="TestListed", result="fail", output=["    a_test.go:7: no devices\n"]),), True),
        ((case(name="TestListed", result="fail", output=["    a_test.go:7: no CPUs\n"]),), False),
        ((case(name="TestListed", result="", output=["panic: out of range\n"]),), False),
        ((case(name="TestListed"),), False),
    ],
)
def test_only_a_listed_complaint_is_excused(beside: tuple[Case, ...], good: bool) -> None:
    assert results(GOOD, *beside).as_expected is good


def test_what_went_wrong_is_said() -> None:
    remarks = list(results(case(result="fail", output=["panic: out of range\n"])).remarks())
    assert remarks == [
        f"FAILED {CPU} TestA (fail)\npanic: out of range\n",
        f"FAILED {CPU} takeByTopologyNUMAPacked was never asked",
    ]


@pytest.mark.usefixtures("listed")
def test_an_entry_holds_from_the_release_on_that_has_the_test() -> None:
    failed = case(name="TestListed", result="fail", output=["    a_test.go:7: no devices\n"])
    assert results(GOOD, failed, version="v1.36.3").as_expected
    assert not results(GOOD, failed, version="v1.35.5").as_expected


def test_a_function_that_is_never_asked_fails_the_run_unless_its_callers_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = results(case(question="Merge"))
    assert not run.as_expected
    monkeypatch.setattr(expected, "UNASKED", {TAKE.question: (37, "nobody calls it")})
    assert run.as_expected


def test_a_run_that_asks_replay_nothing_is_not_as_expected() -> None:
    assert not Results("v1.37.2", (), [case()]).as_expected


def test_a_table_says_of_each_function_who_asked_it_and_what_the_release_lacks() -> None:
    table = {row[1]: row[2:] for row in results(GOOD, case()).table() if row[0] == "kubelet/cm/cpumanager"}
    assert table[str(TAKE)] == ("1", "1", "1", "0", "0")
    assert table["takeByTopologyNUMADistributed"][-1] == "v1.37.2 has no such function"
    assert table["(any)"] == ("1", "1", "1", "0", "0")
    assert table["(none)"] == ("", "1", "1", "0", "0")
