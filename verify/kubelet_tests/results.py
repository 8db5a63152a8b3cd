"""What came of a release's tests: the table, the remarks, and whether all is as ``expected``."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tools.prereleases import minor_of
from verify.kubelet_tests.expected import entry_for, reason_for, why_unasked
from verify.kubelet_tests.overlay import FUNCTIONS, PACKAGES, Function
from verify.kubelet_tests.run import Case

COLUMNS = ("PACKAGE", "FUNCTION", "CALLS", "CASES", "PASSED", "FAILED", "NOT APPLICABLE")


@dataclass(frozen=True)
class Results:
    """The cases of a release's tests, and those of FUNCTIONS that replay answered there."""

    version: str
    functions: Collection[Function]
    cases: Sequence[Case]

    @property
    def minor(self) -> int:
        return minor_of(self.version)

    @property
    def answered(self) -> list[Case]:
        """The cases that asked replay anything."""
        return [case for case in self.cases if case.answered]

    @property
    def failed(self) -> list[Case]:
        """The cases that should have passed and did not. A skipped one did not."""
        return [case for case in self.cases if not case.passed and not reason_for(case, self.minor)]

    @property
    def needless(self) -> list[Case]:
        """The cases that passed although they are listed as not applicable."""
        return [case for case in self.cases if case.passed and entry_for(case, self.minor)]

    @property
    def never_asked(self) -> list[Function]:
        """The replaced functions that no test asked and that tests of this release should ask."""
        asked = {question for case in self.cases for question in case.answered}
        return [
            function
            for function in self.functions
            if function.question not in asked and not why_unasked(function, self.minor)
        ]

    @property
    def as_expected(self) -> bool:
        return bool(self.answered) and not (self.failed or self.needless or self.never_asked)

    def table(self) -> Iterator[tuple[str, ...]]:
        """One row for each function, two for each package: its cases that asked replay, and those that did not."""
        yield COLUMNS
        for package in PACKAGES:
            name = package.removeprefix("pkg/")
            for function in FUNCTIONS:
                if function.package == package:
                    yield (name, str(function), *self._function_cells(function))
            cases = [case for case in self.cases if case.package == package]
            yield (name, "(any)", _calls(cases), *self._counts([case for case in cases if case.answered]))
            yield (name, "(none)", "", *self._counts([case for case in cases if not case.answered]))
        yield ("all", "(any)", _calls(self.cases), *self._counts(self.answered))

    def remarks(self) -> Iterator[str]:
        """A remark on each case that did not pass, and on whatever else is not as expected."""
        for case in self.cases:
            reason = "" if case.passed else reason_for(case, self.minor)
            if reason:
                yield f"not applicable: {case.name}: {reason}"
        for case in self.failed:
            printed = "".join(case.output)[-3000:]
            yield f"FAILED {case.package} {case.name} ({case.result or 'did not end'})\n{printed}"
        for case in self.needless:
            yield f"FAILED {case.package} {case.name} passes, and expected.py lists it as not applicable"
        for function in self.never_asked:
            yield f"FAILED {function.package} {function} was never asked"

    def sum(self) -> str:
        """All in one line."""
        passed, excused = sum(case.passed for case in self.answered), len(self._excused(self.answered))
        return (
            f"{self.version}: of {len(self.answered)} cases that replay answered {passed} passed and {excused} are not "
            f"applicable, {len(self.failed)} of all {len(self.cases)} failed"
        )

    def _function_cells(self, function: Function) -> tuple[str, ...]:
        if function not in self.functions:
            return ("", "", "", "", f"{self.version} has no such function")
        asking = [case for case in self.cases if case.answered[function.question]]
        if not asking and why_unasked(function, self.minor):
            return ("0", "", "", "", why_unasked(function, self.minor))
        return (str(sum(case.answered[function.question] for case in asking)), *self._counts(asking))

    def _excused(self, cases: Sequence[Case]) -> list[Case]:
        return [case for case in cases if not case.passed and reason_for(case, self.minor)]

    def _counts(self, cases: Sequence[Case]) -> tuple[str, str, str, str]:
        passed, excused = sum(case.passed for case in cases), len(self._excused(cases))
        return str(len(cases)), str(passed), str(len(cases) - passed - excused), str(excused)


def _calls(cases: Sequence[Case]) -> str:
    return str(sum(case.answered.total() for case in cases))
