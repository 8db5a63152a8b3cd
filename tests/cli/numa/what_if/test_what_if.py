"""``kubectl numa what-if`` on the lists of a cluster: the table, the document, and what is left out of both."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click import style, unstyle
from click.testing import CliRunner, Result
from tests.builders import node_state, pod_manifest
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import ServedLists, cluster_of, started_pod

from topomend.cli.kubectl_numa import numa
from topomend.cli.numa.cluster.pods import arrivals
from topomend.cli.numa.what_if import comparison

ROOT = Path(__file__).parents[4]

TWO, THREE = "cpu=2 memory=1Mi", "cpu=3 memory=1Mi"

X, Y = started_pod("x", TWO, node="a", start=1), started_pod("y", TWO, node="a", start=2)
WIDE = started_pod("wide", THREE, node="a", start=3)
"""On a node with 3 and 4 free CPUs, x and y leave 1 and 2: wide fits on no NUMA node, and on both together."""

Ask = Callable[..., Result]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Ask about a cluster that is served."""
    with ExitStack() as stack:

        def asked(cluster: ServedLists, *arguments: str, color: bool = False) -> Result:
            file = stack.enter_context(kubeconfig_of(cluster, tmp_path))
            return CliRunner().invoke(numa, ["what-if", *arguments, "--kubeconfig", str(file)], color=color)

        yield asked


def one_node(*pods: dict[str, Any], policy: str = "best-effort") -> ServedLists:
    return cluster_of([node_state(policy=policy)], pods)


def rows(result: Result) -> list[list[str]]:
    """The cells of the table and the words of the lines below it."""
    return [re.split(r" {2,}", line) for line in result.stdout.splitlines()]


def test_each_policy_has_a_line_beside_the_one_as_it_is(ask: Ask) -> None:
    waits = started_pod("waits", "cpu=4 memory=1Mi", start=4)
    result = ask(one_node(WIDE, Y, X, waits), "--policy", "single-numa-node,none")
    assert (result.exit_code, result.stderr) == (0, "")
    assert rows(result) == [
        ["POLICY", "SCOPE", "NODES", "ADMITTED", "REFUSED", "ELSEWHERE", "WAITING", "ALIGNED", "TOGETHER", "REASONS"],
        ["as it is", "as it is", "1", "3", "0", "0", "1", "2 of 3", "2 of 3", "-"],
        ["single-numa-node", "as it is", "1", "2", "1", "0", "1", "2 of 2", "2 of 2", "TopologyAffinityError 1"],
        ["none", "as it is", "1", "3", "0", "0", "1", "2 of 3", "2 of 3", "-"],
        ["as it is: waiting: default/waits"],
        ["single-numa-node: refused: default/wide on a"],
        ["single-numa-node: waiting: default/waits"],
        ["none: waiting: default/waits"],
    ]


def test_on_a_terminal_what_is_refused_or_waits_is_painted(ask: Ask) -> None:
    cluster = one_node(WIDE, Y, X, started_pod("waits", "cpu=4 memory=1Mi", start=4))
    painted, plain = (ask(cluster, "--policy", "single-numa-node", color=color).stdout for color in (True, False))
    assert unstyle(painted) == plain
    as_it_is, other = painted.splitlines()[1:3]
    green, red, yellow = (partial(style, fg=colour) for colour in ("green", "red", "yellow"))
    assert re.findall(r"\x1b\[3.*?\x1b\[0m", as_it_is) == [green("0"), yellow("1"), yellow("2 of 3"), yellow("2 of 3")]
    assert re.findall(r"\x1b\[3.*?\x1b\[0m", other) == [red("1"), yellow("1"), green("2 of 2"), green("2 of 2")]
    assert f"single-numa-node: {red('refused')}: default/wide on a\n" in painted
    assert f"single-numa-node: {yellow('waiting')}: default/waits\n" in painted


@pytest.mark.parametrize("since", [(), ("--since", "24h")], ids=["now", "since"])
def test_how_far_it_is_is_told_by_the_pods_of_each_simulation(
    ask: Ask, since: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    @contextmanager
    def noted(words: Callable[[], str]) -> Iterator[None]:
        told.append(words())
        yield
        told.append(words())

    monkeypatch.setattr(comparison, "waiting", noted)
    waits = started_pod("waits", "cpu=4 memory=1Mi", start=4)
    assert ask(one_node(WIDE, Y, X, waits), "--policy", "single-numa-node,none", *since).exit_code == 0
    assert told == ["simulation 0 of 3: 0 of 4 pods", "simulation 3 of 3: 4 of 4 pods"]


def test_many_pods_are_told_in_groups_of_digits() -> None:
    progress = comparison.Progress(3, 100_000)
    progress.begin()
    for _ in range(1_234):
        progress.settle()
    assert progress.words() == "simulation 1 of 3: 1,234 of 100,000 pods"


def test_every_scope_is_tried_with_every_policy(ask: Ask) -> None:
    result = ask(one_node(X), "--policy", "restricted, none", "--scope", "pod,container", "-o", "json")
    outcomes = json.loads(result.stdout)["outcomes"]
    assert [(outcome["policy"], outcome["scope"]) for outcome in outcomes] == [
        ("", ""),
        ("restricted", "pod"),
        ("restricted", "container"),
        ("none", "pod"),
        ("none", "container"),
    ]


def test_the_document_has_every_pod_and_its_fields_are_documented(ask: Ask) -> None:
    cluster = cluster_of([node_state(policy="none"), node_state(name="b", policy="none")], [X, Y, WIDE])
    document = json.loads(ask(cluster, "--policy", "single-numa-node", "-o", "json").stdout)
    assert document["pods"] == 3
    assert document["outcomes"][1] == {
        "policy": "single-numa-node",
        "scope": "",
        "addedNodes": 0,
        "nodes": 2,
        "admitted": 2,
        "refused": 1,
        "elsewhere": 1,
        "waiting": 0,
        "exclusive": 3,
        "aligned": 3,
        "together": 3,
        "reasons": [{"reason": "TopologyAffinityError", "pods": 1}],
        "refusedPods": [
            {
                "namespace": "default",
                "name": "wide",
                "node": "a",
                "reason": "TopologyAffinityError",
                "elsewhere": "b",
            }
        ],
        "waitingPods": [],
        "notStarted": [],
    }
    documented = (ROOT / "docs" / "reference.md").read_text().split("\n### what-if\n")[1].split("\n### ")[0]
    assert [path for path in sorted(set(paths(document))) if f"`{path}`" not in documented] == []


def paths(content: Any, path: str = "") -> Iterator[str]:
    """The paths of a document's fields, such as ``outcomes[].policy``."""
    if isinstance(content, list):
        for item in content:
            yield from paths(item, f"{path}[]")
    elif isinstance(content, dict):
        for key, value in content.items():
            where = f"{path}.{key}" if path else key
            yield where
            yield from paths(value, where)


def test_what_is_malformed_or_on_an_unknown_node_is_named_and_left_out(ask: Ask) -> None:
    broken = started_pod("broken\x1b[2J", TWO, node="a", start=1)
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "many"
    cluster = one_node(X, broken, started_pod("far", TWO, node="gone"), started_pod("near", TWO, node="silent"))
    silent = cluster_of([node_state(name="silent")], []).items["nodes"]
    cluster.items["nodes"] = [*cluster.items["nodes"], *silent, {"metadata": {"name": "bad"}, "spec": {"taints": 7}}]
    unreadable = {"metadata": {"name": "odd", "resourceVersion": "1"}, "status": {"machine": 7}}
    cluster.items["nodetopologies"] = [*cluster.items["nodetopologies"], unreadable]
    result = ask(cluster, "--policy", "none")
    assert result.exit_code == 0
    assert rows(result)[1][2:4] == ["1", "1"]
    first, second, third = result.stderr.splitlines()
    assert first.startswith("Node bad is skipped: spec.taints")
    assert second.startswith(r"3 pods left out: default/broken\x1b[2J (spec.containers[0].resources.requests['cpu']")
    assert second.endswith(
        "default/far (gone: there is no such node), default/near (silent: no agent publishes its state)"
    )
    assert third == "the state of 1 node is unknown: silent"
    document = json.loads(ask(cluster, "--policy", "none", "-o", "json").stdout)
    assert [left_out["name"] for left_out in document["leftOut"]] == ["broken\x1b[2J", "far", "near"]
    assert document["unknownNodes"] == ["silent"]


def test_kubelets_that_would_not_start_are_named(ask: Ask) -> None:
    many = node_state("numa:16 cores:2 memory:1Gi", "none")
    result = ask(cluster_of([many], [X]), "--policy", "restricted")
    assert result.stdout.splitlines()[-1] == (
        "restricted: 1 kubelet would not start (a): unsupported on machines with more than 8 NUMA Nodes"
    )


def test_of_very_many_pods_that_wait_the_last_are_left_out(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "MOST_WAITING", 2)
    waiting = [started_pod(f"w{number}", "cpu=4 memory=1Mi", start=number) for number in range(4)]
    result = ask(one_node(*waiting, X), "--policy", "none")
    assert rows(result)[1][3:7] == ["2", "0", "0", "1"]
    assert result.stderr.startswith(
        "2 pods left out: default/w2 (it is beyond the first 2 pods that wait), default/w3 ("
    )


def test_only_a_few_pods_are_named_in_a_line(ask: Ask) -> None:
    many = [started_pod(f"w{number}", "cpu=4 memory=1Mi", start=number) for number in range(6)]
    result = ask(one_node(*many), "--scope", "pod")
    assert result.stdout.splitlines()[-1] == ("scope pod: waiting: default/w1, default/w2, default/w3 and 2 more")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "say what is to be different: --policy POLICY,..., --scope SCOPE,... or --add-nodes POOL=NUMBER"),
        (
            ("--policy", "none,restrited"),
            "--policy 'restrited' is none of none, best-effort, restricted, single-numa-node: did you mean restricted?",
        ),
        (("--scope", "pods"), "--scope 'pods' is none of container, pod: did you mean pod?"),
        *(
            (
                ("--add-nodes", wrong),
                f"--add-nodes '{wrong}' is not POOL=NUMBER, such as gpu=3, of at most 1000 nodes",
            )
            for wrong in ("gpu", "=3", "gpu=0", "gpu=1001", "gpu=-1", "gpu=\u0663", "gpu=10000")
        ),
        (("--add-nodes", "nome=1"), "--add-nodes nome=1: no node is of pool nome: did you mean none?"),
    ],
)
def test_a_wrong_flag_says_what_there_is(ask: Ask, arguments: tuple[str, ...], words: str) -> None:
    result = ask(one_node(), *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"Error: {words}\n")


@pytest.mark.parametrize("plural", ["nodes", "nodetopologies", "pods"])
def test_without_the_right_to_list_everything_nothing_is_claimed(ask: Ask, plural: str) -> None:
    cluster = one_node(X)
    cluster.forbidden = {plural}
    result = ask(cluster, "--policy", "none")
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"{plural} is forbidden" in result.stderr
    assert "the ClusterRole topomend-viewer has the right" in result.stderr


# More nodes


def test_added_nodes_take_what_waits(ask: Ask) -> None:
    waiting = [started_pod(f"w{number}", "cpu=4 memory=1Mi", start=number) for number in range(4)]
    result = ask(one_node(*waiting), "--add-nodes", "none=2")
    assert [row[:8] for row in rows(result)[1:3]] == [
        ["as it is", "as it is", "1", "1", "0", "0", "3", "1 of 1"],
        ["as it is", "as it is", "3", "3", "0", "0", "1", "3 of 3"],
    ]
    assert result.stdout.splitlines()[-1] == "2 more nodes: waiting: default/w3"


def test_nodes_are_added_to_every_policy_but_the_one_as_it_is(ask: Ask) -> None:
    result = ask(one_node(X), "--add-nodes", "none=2", "--policy", "restricted,none", "-o", "json")
    outcomes = json.loads(result.stdout)["outcomes"]
    assert [(outcome["policy"], outcome["addedNodes"], outcome["nodes"]) for outcome in outcomes] == [
        ("", 0, 1),
        ("restricted", 2, 3),
        ("none", 2, 3),
    ]


def test_a_pool_without_a_node_to_copy_says_so(ask: Ask) -> None:
    cluster = one_node()
    cluster.items["nodes"][0]["spec"] = {"unschedulable": True}
    result = ask(cluster, "--add-nodes", "none=1")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "Error: pool none has no node to copy: none is Ready, takes pods and has a known state\n"


# The pods of a file


def test_the_pods_of_a_file_come_in_the_place_of_the_cluster_s(ask: Ask, tmp_path: Path) -> None:
    template = {"spec": pod_manifest("", "cpu=2 memory=1Mi")["spec"]}
    workload = {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 4, "template": template}}
    bound = pod_manifest("bound", "cpu=3 memory=1Mi", node="a")
    ended = pod_manifest("ended", "cpu=2 memory=1Mi", status={"phase": "Succeeded"})
    file = tmp_path / "pods.json"
    file.write_text(json.dumps({"kind": "List", "items": [workload, bound, ended, {"kind": "Service"}]}))
    result = ask(one_node(X, Y, WIDE), "--policy", "single-numa-node", "-f", str(file), "-o", "json")
    document = json.loads(result.stdout)
    assert document["pods"] == 5
    _, strict = document["outcomes"]
    assert (strict["admitted"], strict["refused"]) == (3, 0)
    assert [pod["name"] for pod in strict["waitingPods"]] == ["web-2", "web-3"]


def test_workloads_of_one_name_in_a_file_have_pods_of_their_own(ask: Ask, tmp_path: Path) -> None:
    template = {"spec": pod_manifest("", "cpu=2 memory=1Mi")["spec"]}
    kinds = ("Deployment", "StatefulSet")
    workloads = [
        {"kind": kind, "metadata": {"name": "web"}, "spec": {"replicas": 2, "template": template}} for kind in kinds
    ]
    generated = {"kind": "Pod", "metadata": {"generateName": "x-"}, **template}
    file = tmp_path / "pods.json"
    file.write_text(json.dumps({"kind": "List", "items": [*workloads, generated, generated]}))
    result = ask(one_node(X, Y, WIDE), "--policy", "single-numa-node", "-f", str(file), "-o", "json")
    document = json.loads(result.stdout)
    assert document["pods"] == 6
    _, strict = document["outcomes"]
    assert [pod["name"] for pod in strict["waitingPods"]] == ["web-statefulset-1", "x-0", "x-1"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([pod_manifest("p", TWO), pod_manifest("p", THREE)], "2 pods are called default/p"),
        ([{"kind": "Service", "metadata": {"name": "s"}}], "Service s, and no Pod or workload"),
        ([{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": 7}}], "spec.containers"),
    ],
)
def test_a_file_that_makes_no_sense_is_said_to_be_one(
    ask: Ask, tmp_path: Path, content: list[dict[str, Any]], words: str
) -> None:
    file = tmp_path / "pods.json"
    file.write_text(json.dumps({"kind": "List", "items": content}))
    result = ask(one_node(X), "--policy", "none", "-f", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_a_pod_of_a_file_on_a_node_that_there_is_not_is_left_out(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "pods.json"
    file.write_text(json.dumps(pod_manifest("p", TWO, node="gone")))
    result = ask(one_node(X), "--policy", "none", "-f", str(file))
    assert result.stderr == "1 pod left out: default/p (gone: there is no such node)\n"


def test_the_pods_of_a_time_come_and_end_as_they_did(ask: Ask) -> None:
    """Before wide came, x had ended, and left two CPUs beside a third."""
    ended = started_pod("x", TWO, node="a", start=1)
    ended["status"] |= {"phase": "Succeeded", "containerStatuses": [_finished("2026-01-01T00:00:02Z")]}
    cluster = one_node(ended, Y, WIDE, policy="single-numa-node")
    [_, as_it_is, none] = rows(ask(cluster, "--policy", "none", "--since", "100000d"))
    assert as_it_is[3:5] == none[3:5] == ["3", "0"]
    [_, without, *_] = rows(
        ask(one_node(X, Y, WIDE, policy="single-numa-node"), "--policy", "none", "--since", "100000d")
    )
    assert without[3:5] == ["2", "1"]


def _finished(moment: str) -> dict[str, Any]:
    return {"name": "c0", "state": {"terminated": {"finishedAt": moment}}}


def test_pods_of_a_time_and_of_a_file_are_not_asked_about_together(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "pods.json"
    file.write_text(json.dumps(X))
    result = ask(one_node(), "--policy", "none", "--since", "1h", "-f", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "give one of them" in result.stderr
