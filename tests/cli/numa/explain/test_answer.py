"""The answer about one pod as ``kubectl numa explain`` prints it. A server of lists is in the API server's place."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.builders import node_state, pod, pod_manifest
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import ServedLists, cluster_of, started_pod

from topomend.cli.kubectl_numa import numa
from topomend.wire.group import ALIGNMENT_ANNOTATION

SIX, FOUR, TWO = "cpu=6 memory=1Mi", "cpu=4 memory=1Mi", "cpu=2 memory=1Mi"

DATE = "2026-01-01T00:00:00Z"

REFUSES = "a refuses container c0: cpu requests 4 and fits no NUMA node: free 3 on NUMA 0, 0 on NUMA 1, lacks 1 "

EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "}
REFUSED = {
    "phase": "Failed",
    "reason": "TopologyAffinityError",
    "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
}


def of_node(container: str, status: dict[str, Any], node: str = "a", **metadata: Any) -> dict[str, Any]:
    """The pod ``p``, which is or was on the node."""
    known = {"namespace": "default", "uid": "uid-p", "resourceVersion": "1", "creationTimestamp": DATE} | metadata
    return pod_manifest("p", container, node=node, status=status, **known)


def beside_big(*pods: dict[str, Any]) -> ServedLists:
    """The node ``a``, of which ``big`` has one NUMA node and ``p`` has nothing; and these pods."""
    big = pod("big", FOUR, namespace="default")
    return cluster_of([node_state(pods=[big])], [started_pod("big", FOUR, node="a"), *pods])


def ask(tmp_path: Path, cluster: ServedLists, *arguments: str) -> Result:
    cluster.items.setdefault("relaunches", [])
    with kubeconfig_of(cluster, tmp_path) as config:
        return CliRunner().invoke(numa, ["explain", *arguments, "--kubeconfig", str(config)])


def first_lines(result: Result, count: int = 3) -> list[str]:
    return result.stdout.splitlines()[:count]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"phase": "Succeeded"}, "has ended (Succeeded)"),
        (EVICTED, "has ended (Evicted: The node was low on resource: memory.)"),
        ({"phase": "Failed"}, "has ended (Failed)"),
    ],
)
def test_a_pod_that_has_ended_is_told_so_and_what_a_pod_like_it_would_meet(
    status: dict[str, Any], words: str, tmp_path: Path
) -> None:
    result = ask(tmp_path, beside_big(of_node(FOUR, status)), "pod/p")
    said, heading, meets = first_lines(result)
    assert (result.exit_code, said, heading) == (0, f"p {words}", "a pod like it now:")
    assert meets.startswith(REFUSES)
    fits = ask(tmp_path, beside_big(of_node(TWO, status)), "pod/p")
    assert first_lines(fits) == [f"p {words}", "a pod like it now:", "a admits p on NUMA 0"]


def test_programs_are_told_of_no_refusal_of_a_pod_that_has_ended(tmp_path: Path) -> None:
    record = json.loads(ask(tmp_path, beside_big(of_node(FOUR, EVICTED)), "pod/p", "-o", "json").stdout)
    assert (record["node"], record["admitted"]) == ("a", None)
    assert not {"cause", "remedy", "nearest", "aligned"} & record.keys()


@pytest.mark.parametrize("node", ["", "gone"])
def test_a_pod_that_has_ended_needs_no_node_that_is_there(node: str, tmp_path: Path) -> None:
    result = ask(tmp_path, beside_big(of_node(TWO, EVICTED, node)), "pod/p")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0].startswith("p has ended (Evicted: ")
    assert "a NUMA 0 would admit it now" in result.stdout.splitlines()[2]


def test_a_pod_that_has_ended_while_its_resize_was_pending_is_told_so(tmp_path: Path) -> None:
    pending = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}
    result = ask(tmp_path, beside_big(of_node(TWO, EVICTED | pending)), "pod/p")
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_pod_that_is_being_deleted_is_told_so(tmp_path: Path) -> None:
    leaving = of_node(FOUR, {"phase": "Running"}, deletionTimestamp=DATE)
    result = ask(tmp_path, beside_big(leaving), "pod/p")
    said, heading, meets = first_lines(result)
    assert (result.exit_code, said, heading) == (0, "p is being deleted", "a pod like it now:")
    assert meets.startswith(REFUSES)


def test_a_pod_that_is_being_deleted_and_still_published_is_still_on_its_node(tmp_path: Path) -> None:
    leaving = started_pod("big", FOUR, node="a", deletionTimestamp=DATE)
    cluster = cluster_of([node_state(pods=[pod("big", FOUR, namespace="default")])], [leaving])
    result = ask(tmp_path, cluster, "pod/big")
    says = "a has admitted big; see: kubectl numa show a"
    assert (result.exit_code, first_lines(result, 2)) == (0, ["big is being deleted", says])


def test_a_refused_pod_has_not_ended(tmp_path: Path) -> None:
    for metadata in ({}, {"deletionTimestamp": DATE}):
        result = ask(tmp_path, beside_big(of_node(FOUR, REFUSED, **metadata)), "pod/p")
        assert (result.exit_code, result.stdout.startswith(REFUSES)) == (1, True)


def test_of_a_pod_that_has_ended_a_node_that_is_named_says_whether_it_would_admit_it(tmp_path: Path) -> None:
    result = ask(tmp_path, beside_big(of_node(FOUR, EVICTED)), "pod/p", "--node", "a")
    assert (result.exit_code, result.stdout.startswith(REFUSES)) == (1, True)


@pytest.mark.parametrize("container", [FOUR, TWO])
@pytest.mark.parametrize("arguments", [[], ["--node", "a"]])
def test_a_running_pod_that_its_node_does_not_show_is_not_known_instead_of_refused(
    container: str, arguments: list[str], tmp_path: Path
) -> None:
    result = ask(tmp_path, beside_big(of_node(container, {"phase": "Running"})), "pod/p", *arguments)
    said = "p runs, and a has not published it: ask again in a moment, then run kubectl numa check"
    assert (result.exit_code, first_lines(result, 1)) == (3, [said])


def test_a_running_pod_that_holds_nothing_exclusive_is_in_no_publication(tmp_path: Path) -> None:
    shared = of_node("request:cpu=1", {"phase": "Running"})
    result = ask(tmp_path, beside_big(shared), "pod/p")
    assert (result.exit_code, first_lines(result, 1)) == (0, ["a admits p"])


def ask_of_file(tmp_path: Path, content: dict[str, Any], *arguments: str) -> Result:
    """What is said of the pod of a file, on the node ``a`` with ``big``."""
    (file := tmp_path / "p.json").write_text(json.dumps(content))
    return ask(tmp_path, beside_big(), "-f", str(file), *arguments)


@pytest.mark.parametrize(
    "empty",
    [
        {"spec": pod_manifest("p", TWO)["spec"] | {"affinity": None, "tolerations": None}},
        {"status": None},
        {"metadata": None},
        {"status": {"phase": "Pending", "conditions": [None]}},
    ],
    ids=["affinity", "status", "metadata", "a condition"],
)
def test_an_empty_field_of_a_file_is_an_absent_one(empty: dict[str, Any], tmp_path: Path) -> None:
    for arguments in ([], ["--node", "a"]):
        result = ask_of_file(tmp_path, pod_manifest("p", TWO) | empty, *arguments)
        assert (result.exit_code, result.exception) == (0, None)


def test_a_pod_of_a_file_with_a_uid_needs_a_namespace_only_if_it_was_refused(tmp_path: Path) -> None:
    content = pod_manifest("p", TWO, node="a", uid="uid-p")
    assert first_lines(ask_of_file(tmp_path, content)) == ["a admits p on NUMA 0", "elsewhere: there is no other node"]
    refused = ask_of_file(tmp_path, content | {"status": REFUSED})
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == "Error: pod p: metadata.namespace: missing where a string belongs\n"


CORDONED: dict[str, Any] = {"unschedulable": True}
TAINTED: dict[str, Any] = {"taints": [{"key": "dedicated", "effect": "NoExecute"}]}


@pytest.mark.parametrize(
    ("of_node", "of_pod", "reason"),
    [
        (TAINTED, {}, "Taint"),
        (CORDONED, {}, "Unschedulable"),
        ({}, {"nodeSelector": {"disk": "ssd"}}, "NodeSelector"),
    ],
    ids=["a taint", "a cordon", "a selector"],
)
def test_a_node_that_is_named_and_that_the_scheduler_would_not_use_says_no(
    of_node: dict[str, Any], of_pod: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    (file := tmp_path / "p.json").write_text(json.dumps(pod_manifest("p", TWO, spec=of_pod)))
    cluster = beside_big()
    cluster.items["nodes"][0]["spec"] = of_node
    result = ask(tmp_path, cluster, "-f", str(file), "--node", "a")
    why = f"the scheduler would not use a: {reason}"
    assert (result.exit_code, first_lines(result, 2)) == (1, [why, "a admits p on NUMA 0"])
    record = json.loads(ask(tmp_path, cluster, "-f", str(file), "--node", "a", "-o", "json").stdout)
    assert (record["admitted"], record["explanation"][0]) == (False, why)
    assert [(each["admits"], each["reason"]) for each in record["nodes"]] == [(False, reason)]


def test_a_node_that_the_scheduler_would_not_use_and_that_would_not_align_the_pod_does_not_admit_it(
    tmp_path: Path,
) -> None:
    annotations = {ALIGNMENT_ANNOTATION: "single-numa-node"}
    (file := tmp_path / "p.json").write_text(json.dumps(pod_manifest("p", SIX, annotations=annotations)))
    cluster = cluster_of([node_state(policy="best-effort")], [])
    arguments = ["-f", str(file), "--node", "a", "-o", "json"]
    record = json.loads(ask(tmp_path, cluster, *arguments).stdout)
    assert (record["admitted"], record["aligned"]) == (True, False)
    cluster.items["nodes"][0]["spec"] = CORDONED
    record = json.loads(ask(tmp_path, cluster, *arguments).stdout)
    assert (record["admitted"], "aligned" in record) == (False, False)


def test_a_cordon_says_nothing_of_a_pod_that_is_on_the_node(tmp_path: Path) -> None:
    cluster = beside_big()
    cluster.items["nodes"][0]["spec"] = CORDONED | TAINTED
    for arguments in ([], ["--node", "a"]):
        result = ask(tmp_path, cluster, "pod/big", *arguments)
        assert (result.exit_code, first_lines(result, 1)) == (0, ["a has admitted big; see: kubectl numa show a"])
