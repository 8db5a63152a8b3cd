"""The summary of pools: which pods of a cluster are typical, and how it is shown."""

import json
import re
from dataclasses import replace
from typing import Any

import click
import pytest
from tests.builders import node, node_state, pod, pod_manifest, snapshot_of

from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod
from topomend.cli.numa.summary import of_cluster, of_file, print_pools, read_seen, record_of
from topomend.decide.pools.pools import pools
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import REFUSAL_PREFIX, Placement

HALVED = node_state(name="a", pods=[pod("x", "cpu=2 memory=1Mi"), pod("y", "cpu=2 memory=1Mi")])
"""1 CPU is free on NUMA node 0 and 2 are on NUMA node 1."""

FOUR = "cpu=4 memory=1Mi"


def manifest(name: str, container: str = FOUR, *, node: str = "", **status: Any) -> dict[str, Any]:
    content = pod_manifest(name, container, node=node)
    content["metadata"]["namespace"] = "default"
    return {**content, "status": status}


def asked_by_kind(snapshot: Snapshot, *contents: dict[str, Any]) -> list[tuple[int, int]]:
    """The number of pods and the CPUs of each kind of the only pool, the largest first."""
    seen = [one for content in contents for one in read_seen(content)]
    [found] = pools(snapshot, of_cluster(snapshot, seen))
    return [(typical.number, typical.asked["cpu"]) for typical, _ in found.typical]


def printed(snapshot: Snapshot, *asked: RequestedPod, wide: bool = False) -> None:
    typical = of_file(asked) if asked else of_cluster(snapshot, [])
    print_pools(pools(snapshot, typical), wide=wide)


def requested(wanted: Pod, replicas: int = 1) -> RequestedPod:
    return RequestedPod(wanted, Placement(), {}, replicas)


def test_pods_that_hold_wait_were_refused_or_have_ended_here_are_typical() -> None:
    waits = manifest("waits", phase="Pending")
    refused = manifest("refused", node="elsewhere", phase="Failed", message=f"{REFUSAL_PREFIX}no room")
    ended = manifest("ended", node="a", phase="Succeeded")
    ended_elsewhere = manifest("other", node="b", phase="Succeeded")
    starts = manifest("starts", node="a", phase="Pending")
    found = asked_by_kind(snapshot_of(HALVED), waits, refused, ended, ended_elsewhere, starts)
    assert found == [(3, 12), (2, 4)]


def test_a_malformed_pod_is_named_and_hides_no_other() -> None:
    broken = manifest("broken", phase="Pending")
    broken["spec"]["containers"] = "none"
    [seen] = read_seen(broken)
    assert seen.problem.startswith("default/broken: ")
    assert asked_by_kind(snapshot_of(HALVED), broken, manifest("waits", phase="Pending")) == [(1, 4), (2, 4)]


def test_a_file_gives_as_many_pods_as_its_workloads_have(capsys: pytest.CaptureFixture[str]) -> None:
    printed(snapshot_of(HALVED), requested(pod("p", FOUR), 3), requested(pod("none", "cpu=1 memory=1Mi"), 0))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["cpu=4", "memory=1Mi", "3", "0", "of", "1"] in lines
    assert ["cpu", "3", "3", "100%", "a", "(3)", "ns/y"] in lines


def test_a_pool_without_typical_pods_says_so_and_shows_no_share(capsys: pytest.CaptureFixture[str]) -> None:
    printed(snapshot_of(node_state(name="a")))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "pool none   1 node"
    assert lines[2].split() == ["cpu", "7", "-", "-", "-", "-"]
    assert lines[3].startswith("no pod holds")
    assert lines[3].endswith("name typical pods with -f FILE")


def test_nodes_that_do_not_count_are_said_to_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = snapshot_of(HALVED)
    printed(replace(snapshot, nodes={"a": node("a", ready=False)}))
    assert capsys.readouterr().out == (
        "pool none   0 nodes, 1 left out: not Ready, cordoned, or their state is unknown\n"
    )


def test_kinds_beyond_three_are_shown_by_wide_alone(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [requested(pod("p", f"cpu={cpus} memory=1Mi")) for cpus in range(1, 6)]
    printed(snapshot_of(HALVED), *kinds)
    assert capsys.readouterr().out.splitlines()[-1] == "and 2 more kinds of pods: -o wide shows them"
    printed(snapshot_of(HALVED), *kinds, wide=True)
    assert "more kinds" not in capsys.readouterr().out


def painted_in(text: str) -> list[tuple[str, str]]:
    """The parts of a text that are painted, each with the number of its colour."""
    return [(words, colour) for colour, words in re.findall(r"\x1b\[(3\d)m([^\x1b]+)", text)]


RED, GREEN, YELLOW = "31", "32", "33"


@pytest.mark.parametrize(
    ("states", "asked", "painted"),
    [
        ([HALVED], FOUR, [("3", RED), ("100%", RED), ("0 of 1", RED)]),
        ([HALVED, node_state(name="b")], FOUR, [("3", YELLOW), ("30%", YELLOW), ("1 of 2", YELLOW)]),
        ([HALVED], "cpu=1 memory=1Mi", [("0", GREEN), ("0%", GREEN), ("1 of 1", GREEN)]),
        ([HALVED], "", []),
    ],
    ids=["all", "some", "none", "unknown"],
)
def test_on_a_terminal_the_unusable_share_is_painted_by_how_large_it_is(
    states: list[NodeState], asked: str, painted: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = snapshot_of(*states)
    typical = of_file([requested(pod("p", asked))] if asked else [])
    with click.Context(click.Command("c"), color=True):
        print_pools(pools(snapshot, typical), wide=False)
    assert painted_in(capsys.readouterr().out) == painted


def test_the_document_has_null_where_nothing_is_known() -> None:
    [found] = pools(snapshot_of(HALVED, node_state(name="b")), of_file([requested(pod("p", FOUR))]))
    assert json.loads(json.dumps(record_of(found))) == {
        "name": "none",
        "nodes": 2,
        "leftOut": 0,
        "resources": [
            {
                "resource": "cpu",
                "free": 10,
                "unusable": 3.0,
                "fragmentation": 0.3,
                "covered": 1.0,
                "mostOn": [{"node": "a", "free": 3, "unusable": 3.0, "pods": [{"namespace": "ns", "name": "y"}]}],
            }
        ],
        "typicalPods": [{"number": 1, "asks": {"cpu": 4.0, "memory": 1048576.0}, "admittedOn": 1}],
    }
    [unknown] = pools(snapshot_of(HALVED), of_file([]))
    assert record_of(unknown)["resources"][0]["fragmentation"] is None
