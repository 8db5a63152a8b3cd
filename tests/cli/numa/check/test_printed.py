"""How a report is printed. The verb against a cluster: tests/check/test_seeded_faults.py."""

import json
from typing import Any

import pytest
from tests.builders import node_state
from tests.check.cluster import facts_of, node_object, published

from topomend.check.catalogue import examine
from topomend.check.facts import Facts, Part
from topomend.check.finding import Report
from topomend.cli.numa.check.printed import document, print_report


def three_bad_nodes(**fields: Any) -> Facts:
    states = [node_state(name=name, reserved_cpus="4-7") for name in ("c", "a", "b")]
    return facts_of(map(node_object, states), map(published, states), **fields)


def printed(report: Report, output: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_report(report, output, nodes=3)
    return capsys.readouterr().out.splitlines()


def test_nodes_with_the_same_fault_are_one_line_with_its_cure(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(examine(three_bad_nodes(), ["TM1"]), "table", capsys) == [
        "WARNING  TM211  3 Nodes (a, b, c): its reserved CPUs 4-7 take all of NUMA 1",
        "                cure: spread reservedSystemCPUs over the NUMA nodes",
        "3 warnings: 29 checks of 3 nodes.",
    ]


def test_wide_adds_the_page_and_each_object(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(examine(three_bad_nodes(), ["TM1"]), "wide", capsys)
    assert "                page: docs/reference/checks.md#tm211" in lines
    assert [line.strip() for line in lines if line.strip().startswith("Node ")] == ["Node a", "Node b", "Node c"]


def test_names_are_what_kubectl_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(examine(three_bad_nodes()), "name", capsys)[-3:] == ["node/a", "node/b", "node/c"]


def test_what_was_not_done_is_listed_by_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    facts = three_bad_nodes(unread={Part.NODES: "nodes is forbidden", Part.PODS: "pods is forbidden"})
    lines = printed(examine(facts, ["TM1"]), "table", capsys)
    assert lines[0].startswith("NOT DONE TM201-TM223, TM301-TM303: nodes is forbidden")
    assert lines[1].startswith("NOT DONE TM301-TM306: pods is forbidden")
    assert lines[2] == "Nothing wrong was found: 0 checks of 3 nodes, 29 not done."


def test_the_document_has_a_record_for_each_object() -> None:
    facts = three_bad_nodes(unread={Part.PODS: "pods is forbidden"})
    found = json.loads(json.dumps(document(examine(facts, ["TM1"]))))
    assert found["ok"] is True, "workloads have no check that finds errors"
    first = found["problems"][0]
    assert first == {
        "code": "TM211",
        "severity": "warning",
        "object": {"kind": "Node", "namespace": None, "name": "a"},
        "message": "its reserved CPUs 4-7 take all of NUMA 1",
        "cure": "spread reservedSystemCPUs over the NUMA nodes",
        "node": "a",
        "problem": "its reserved CPUs 4-7 take all of NUMA 1",
    }
    assert [undone["code"] for undone in found["notDone"]] == [f"TM30{number}" for number in range(1, 7)]
