"""``kubectl numa make-room`` on real kubelets: its advice is carried out, and the pod then runs.

What it says of nodes without an agent is asked of served lists.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.builders import node_state, pod_manifest
from tests.check.cluster import node_object
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import cluster_of
from tests.clusters import NODE_A, Cluster, pod, priority_class
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.kube.errors import Refused
from topomend.kube.resources import BUDGETS, PODS
from topomend.model.nodes.node import HOSTNAME_LABEL

FILLERS = ("filler-0", "filler-1")
APP = {"app": "filler"}


@pytest.fixture
def full(two_nodes: Cluster) -> Iterator[Cluster]:
    """On numa-a two pods of two CPUs leave three, on no NUMA node together; numa-b is not asked about."""
    two_nodes.fragment()
    yield two_nodes
    two_nodes.clear()


def ask(cluster: Cluster, *arguments: str) -> Result:
    command = ["make-room", *arguments, "--node", NODE_A, "--kubeconfig", str(cluster.sandbox.kubeconfig)]
    return CliRunner().invoke(numa, command)


def file_of(content: dict[str, Any], folder: Path) -> str:
    path = folder / "pod.json"
    path.write_text(json.dumps(content))
    return str(path)


@contextmanager
def budget(cluster: Cluster, name: str, selector: dict[str, Any], allowed: int = 0) -> Iterator[None]:
    """A budget of which its controller has said that so many pods may go."""
    head = {"apiVersion": BUDGETS.api_version, "kind": "PodDisruptionBudget", "metadata": {"name": name}}
    spec = {"minAvailable": len(FILLERS) - allowed, "selector": selector}
    made = cluster.client.create(BUDGETS, head | {"spec": spec}, "default")

    def is_understood() -> bool:
        status = cluster.client.get(BUDGETS, name, "default").get("status", {})
        return bool(status.get("currentHealthy") == len(FILLERS) and status["disruptionsAllowed"] == allowed)

    try:
        eventually("the budget's controller", is_understood)
        yield
    finally:
        cluster.client.delete(BUDGETS, name, "default", uid=made["metadata"]["uid"])


@pytest.mark.cluster
def test_once_the_named_pod_has_gone_the_pod_runs(full: Cluster, tmp_path: Path) -> None:
    wide = pod("wide", 3, node=NODE_A)
    source = file_of(wide, tmp_path)
    asked = ask(full, "-f", source, "-o", "json")
    assert asked.exit_code == 0, asked.output
    answer = json.loads(asked.stdout)
    assert (answer["node"], answer["mayBeEvicted"], answer["fewest"]) == (NODE_A, True, True)
    (named,) = answer["pods"]
    in_words = ask(full, "-f", source).stdout.splitlines()
    assert in_words[0].split() == ["NODE", "POD", "PRIORITY", "OWNER"]
    assert in_words[1].split() == [NODE_A, f"default/{named['name']}", "0", "-"]
    assert in_words[2].startswith(f"wide fits on {NODE_A} (NUMA ")
    assert in_words[2].endswith(") once this pod has ended")
    assert in_words[3] == f"nobody creates default/{named['name']} again"
    full.vacate(NODE_A, named["name"])
    assert "no pod has to go" in ask(full, "-f", source).stdout
    full.create(wide)
    eventually("the pod to run", lambda: full.running("wide"))
    assert ask(full, "pod/wide").stderr == "Error: pod wide needs no room: its phase is Running\n"


@pytest.mark.cluster
def test_a_refused_pod_may_be_named(full: Cluster) -> None:
    full.create(pod("wide", 3, node=NODE_A))
    eventually("the refusal", lambda: full.phase("wide") == "Failed")
    assert "wide fits on numa-a" in ask(full, "pod/wide").stdout


@pytest.mark.cluster
def test_pods_of_a_higher_priority_may_end_and_are_not_to_be_evicted(full: Cluster, tmp_path: Path) -> None:
    with priority_class(full, "low", -1):
        low = pod("wide", 3)
        low["spec"]["priorityClassName"] = "low"
        asked = ask(full, "-f", file_of(low, tmp_path))
    assert asked.exit_code == 1
    assert "may not be evicted for it, but it may end" in asked.stdout
    assert "no eviction makes room for wide" in asked.stdout


@pytest.mark.cluster
def test_what_budgets_keep_is_not_to_be_evicted(full: Cluster, tmp_path: Path) -> None:
    source = file_of(pod("wide", 3), tmp_path)
    for name in FILLERS:
        full.client.merge(PODS, name, {"metadata": {"labels": APP}}, "default")
    with budget(full, "keep", {"matchLabels": APP}):
        assert ask(full, "-f", source).exit_code == 1
        with budget(full, "keep-all", {}):
            assert ask(full, "-f", source).exit_code == 1


@pytest.mark.cluster
def test_the_api_server_evicts_nobody_whom_two_budgets_select_and_the_advice_knows_it(
    full: Cluster, tmp_path: Path
) -> None:
    source = file_of(pod("wide", 3), tmp_path)
    for name in FILLERS:
        full.client.merge(PODS, name, {"metadata": {"labels": APP}}, "default")
    with budget(full, "one", {"matchLabels": APP}, allowed=2):
        assert ask(full, "-f", source).exit_code == 0
        for name in FILLERS:
            full.client.evict(name, "default", uid=full.get(name)["metadata"]["uid"], dry_run=True)
        with budget(full, "two", {}, allowed=2):
            assert ask(full, "-f", source).exit_code == 1
            with pytest.raises(Refused):
                full.client.evict(FILLERS[0], "default", uid=full.get(FILLERS[0])["metadata"]["uid"], dry_run=True)


@pytest.mark.cluster
def test_a_pod_that_no_node_would_take_is_said_to_be_one(full: Cluster, tmp_path: Path) -> None:
    asked = ask(full, "-f", file_of(pod("huge", 5), tmp_path))
    assert asked.exit_code == 1
    assert asked.stdout == "huge: no node would admit it, whoever ended; see kubectl numa explain\n"


TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "asked", "code"),
    [
        ({}, {}, 3),
        ({"taints": [TAINT]}, {}, 1),
        ({"taints": [TAINT]}, {"tolerations": [{"key": TAINT["key"], "operator": "Exists"}]}, 3),
        ({"unschedulable": True}, {}, 1),
        ({}, {"nodeSelector": {HOSTNAME_LABEL: "a"}}, 1),
    ],
    ids=["any node", "tainted", "tolerated", "cordoned", "not selected"],
)
def test_a_node_without_an_agent_is_unknown_only_where_the_scheduler_may_choose_it(
    spec: dict[str, Any], asked: dict[str, Any], code: int, tmp_path: Path
) -> None:
    lists = cluster_of([node_state()], [])
    agentless = node_object(node_state("numa:2 cores:8 memory:8Gi", name="plain"), {HOSTNAME_LABEL: "plain"}) | {
        "spec": spec
    }
    lists.items |= {"nodes": [*lists.items["nodes"], agentless], "poddisruptionbudgets": [], "priorityclasses": []}
    huge = pod_manifest("huge", "cpu=9 memory=1Mi", namespace="default", spec=asked)
    with kubeconfig_of(lists, tmp_path) as config:
        arguments = ["make-room", "-f", file_of(huge, tmp_path), "-o", "json", "--kubeconfig", str(config)]
        result = CliRunner().invoke(numa, arguments)
    assert result.exit_code == code, result.output
    assert json.loads(result.stdout)["unknownNodes"] == (["plain"] if code == 3 else [])
