"""Facts that are missing leave checks undone and never passed; errors come first."""

from tests.builders import node_state
from tests.check.cluster import facts_of, node_object, published

from topomend.check.catalogue import CHECKS, examine
from topomend.check.facts import Part
from topomend.check.finding import Severity


def test_a_check_without_its_facts_is_not_done_and_says_why() -> None:
    state = node_state(reserved_cpus="")
    facts = facts_of([node_object(state)], [published(state)], unread={Part.NODES: "nodes is forbidden"})
    report = examine(facts)
    undone = {check.code: check.reasons for check in report.not_done}
    assert undone["TM210"] == ("nodes is forbidden",)
    assert "TM210" not in {finding.code for finding in report.findings}
    assert not report.is_complete
    assert report.done == len(CHECKS) - len(undone)


def test_a_report_is_complete_where_only_a_warning_could_be_missing() -> None:
    facts = facts_of(unread={Part.CERTIFICATE: "secrets is forbidden"})
    report = examine(facts, ["TM2", "TM3"])
    assert [check.code for check in report.not_done] == ["TM117"]
    assert report.is_complete


def test_every_part_that_is_read_is_needed_by_a_check() -> None:
    assert {part for check in CHECKS for part in check.needs} == set(Part)


def test_errors_come_first_and_skipped_checks_not_at_all() -> None:
    state = node_state(policy="best-effort", reserved_cpus="4-7")
    report = examine(facts_of([node_object(state)], [published(state)]))
    severities = [list(Severity).index(finding.severity) for finding in report.findings]
    assert severities == sorted(severities)
    assert {"TM103", "TM211", "TM213"} <= {finding.code for finding in report.findings}
    rest = examine(facts_of([node_object(state)], [published(state)]), ["TM1", "TM213"])
    assert {finding.code for finding in rest.findings} == {"TM211"}
