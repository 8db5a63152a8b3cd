"""All checks, and a report of what they find: one faulty check or missing fact keeps no other from being done."""

from collections.abc import Collection, Iterator
from types import ModuleType

from topomend.check.check import Check
from topomend.check.facts import Facts, Part
from topomend.check.finding import ORDER, Finding, NotDone, Report, Severity
from topomend.check.rules import functions, kubelets, publications, topomend_itself, workloads

_MODULES = (topomend_itself, functions, publications, kubelets, workloads)

GROUPS = {"TM1": "topomend itself", "TM2": "nodes", "TM3": "workloads"}


def _checks_of(module: ModuleType) -> Iterator[Check]:
    for item in vars(module).values():
        if isinstance(item, Check):
            yield item


CHECKS = tuple(sorted((item for module in _MODULES for item in _checks_of(module)), key=lambda item: item.code))
"""Ordered by code. A module's checks are those that it defines."""

KINDS = "TM101"


def examine(facts: Facts, skipped: Collection[str] = ()) -> Report:
    """What is wrong by all checks but those whose codes begin with one of ``skipped``.

    Where nothing of topomend is installed only the kinds are looked at: all else would follow from that.
    """
    wanted = [item for item in CHECKS if not item.code.startswith(tuple(skipped))]
    if Part.KINDS not in facts.unread and not facts.is_installed:
        wanted = [item for item in wanted if item.code == KINDS]
    findings, not_done = list[Finding](), list[NotDone]()
    for item in wanted:
        reasons = item.unread(facts)
        if reasons:
            not_done.append(NotDone(item.code, item.title, reasons, item.severity is Severity.ERROR))
        else:
            findings += item.findings(facts)
    return Report(tuple(sorted(findings, key=_place)), tuple(not_done), len(wanted) - len(not_done))


def _place(finding: Finding) -> tuple[int, str, str, str, str]:
    """Errors first, then by code, and the objects of a code by name."""
    subject = finding.subject
    return ORDER[finding.severity], finding.code, subject.kind, subject.namespace, subject.name
