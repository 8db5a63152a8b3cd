"""What a check says: a fault of one object in a sentence with its cure, and which checks could not be done."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How bad a finding is.

    ERROR: something does not work. WARNING: it works, and will not or not as people expect. INFO: worth knowing.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


ORDER = {severity: place for place, severity in enumerate(Severity)}
"""Errors come first."""


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """The object that a finding is about. The whole cluster has kind ``Cluster`` and no name."""

    kind: str
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        if not self.name:
            return "the cluster"
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


CLUSTER = Subject("Cluster")


def node(name: str) -> Subject:
    """A Node as a subject."""
    return Subject("Node", name)


@dataclass(frozen=True, slots=True)
class Found:
    """A fault of ``subject``. ``message`` is a clause that follows its name, ``cure`` what the reader can do."""

    subject: Subject
    message: str
    cure: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, with the code and the severity of the check that found it."""

    code: str
    severity: Severity
    subject: Subject
    message: str
    cure: str


@dataclass(frozen=True, slots=True)
class NotDone:
    """A check that lacked facts, and the reasons why. ``is_grave`` is whether it could have found an error."""

    code: str
    title: str
    reasons: tuple[str, ...]
    is_grave: bool


@dataclass(frozen=True, slots=True)
class Report:
    """All findings in the order in which they are shown, the checks that were not done, and how many were."""

    findings: tuple[Finding, ...]
    not_done: tuple[NotDone, ...]
    done: int

    @property
    def has_errors(self) -> bool:
        """Whether something does not work."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def is_complete(self) -> bool:
        """Whether no check was left out that could have found an error."""
        return not any(check.is_grave for check in self.not_done)


NAMES_SHOWN = 3
"""So many objects of a group are named, and the others counted."""


@dataclass(frozen=True, slots=True)
class Group:
    """The findings that differ in their objects alone."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """What all of them say."""
        return self.findings[0]

    @property
    def subjects(self) -> str:
        """``Node gpu-1``, or ``12 Nodes (gpu-1, gpu-2, gpu-3 and 9 more)``."""
        if len(self.findings) == 1:
            return str(self.first.subject)
        shown = [str(finding.subject).partition(" ")[2] for finding in self.findings[:NAMES_SHOWN]]
        more = len(self.findings) - len(shown)
        names = ", ".join(shown) + (f" and {more} more" if more else "")
        return f"{len(self.findings)} {self.first.subject.kind}s ({names})"


def grouped(findings: Sequence[Finding]) -> Iterator[Group]:
    """The findings, those together that say the same about objects of one kind, in the order of each group's first."""
    groups: dict[tuple[str, str, str, str], list[Finding]] = {}
    for finding in findings:
        key = finding.code, finding.subject.kind, finding.message, finding.cure
        groups.setdefault(key, []).append(finding)
    for members in groups.values():
        yield Group(tuple(members))
