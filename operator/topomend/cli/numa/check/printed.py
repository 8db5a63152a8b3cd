"""How a report is printed: lines for people, a document or names for programs."""

from collections.abc import Iterator, Sequence
from typing import Any

from topomend.check.finding import Finding, NotDone, Report, Severity, grouped
from topomend.cli.output.console import echo, echo_lines
from topomend.cli.output.formats import DOCUMENTS, NAME, WIDE, echo_document

PAGE = "docs/reference/checks.md"


def print_report(report: Report, output: str, *, nodes: int) -> None:
    """Print a report of a cluster with so many nodes in one of the formats of ``-o``."""
    if output in DOCUMENTS:
        echo_document(document(report), output)
    elif output == NAME:
        echo_lines(dict.fromkeys(_name(finding) for finding in report.findings))
    else:
        echo_lines(_lines(report, is_wide=output == WIDE))
        echo(_summary(report, nodes))


def document(report: Report) -> dict[str, Any]:
    """What programs read; docs/reference.md lists the fields."""
    return {
        "ok": not report.has_errors and report.is_complete,
        "problems": [_record(finding) for finding in report.findings],
        "notDone": [
            {"code": check.code, "title": check.title, "why": "; ".join(check.reasons)} for check in report.not_done
        ],
        "done": report.done,
    }


def _record(finding: Finding) -> dict[str, Any]:
    subject = finding.subject
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "object": {"kind": subject.kind, "namespace": subject.namespace or None, "name": subject.name or None},
        "message": finding.message,
        "cure": finding.cure,
        "node": subject.name if subject.kind == "Node" else None,
        "problem": finding.message,
    }


def _name(finding: Finding) -> str:
    """The object as kubectl takes it: ``node/gpu-1``."""
    return f"{finding.subject.kind.lower()}/{finding.subject.name}" if finding.subject.name else "cluster"


def _lines(report: Report, *, is_wide: bool) -> Iterator[str]:
    for group in grouped(report.findings):
        first = group.first
        yield f"{first.severity.value.upper():<8} {first.code}  {group.subjects}: {first.message}"
        yield f"                cure: {first.cure}"
        if is_wide:
            yield f"                page: {PAGE}#{first.code.lower()}"
            yield from (f"                {finding.subject}" for finding in group.findings if len(group.findings) > 1)
    by_reason = dict[str, list[NotDone]]()
    for check in report.not_done:
        for reason in check.reasons:
            by_reason.setdefault(reason, []).append(check)
    for reason, checks in by_reason.items():
        yield f"NOT DONE {_codes(checks)}: {reason}"


def _codes(checks: Sequence[NotDone]) -> str:
    """``TM106, TM112, TM201-TM222``: codes that follow each other are one range."""
    ranges = list[list[str]]()
    for code in sorted(check.code for check in checks):
        if ranges and int(code[2:]) == int(ranges[-1][-1][2:]) + 1:
            ranges[-1].append(code)
        else:
            ranges.append([code])
    return ", ".join(each[0] if len(each) == 1 else f"{each[0]}-{each[-1]}" for each in ranges)


def _summary(report: Report, nodes: int) -> str:
    counts = {severity: sum(one.severity is severity for one in report.findings) for severity in Severity}
    found = ", ".join(
        f"{count} {severity.value}{'s' if count != 1 and severity is not Severity.INFO else ''}"
        for severity, count in counts.items()
        if count
    )
    left = f", {len(report.not_done)} not done" if report.not_done else ""
    nothing = "Nothing is wrong" if report.is_complete else "Nothing wrong was found"
    of_nodes = f" of {nodes} node{'s' if nodes != 1 else ''}" if nodes else ""
    return f"{found or nothing}: {report.done} check{'s' if report.done != 1 else ''}{of_nodes}{left}."
