"""``kubectl numa defragment`` on the lists of a cluster: what it names, what it leaves out, and how it says so."""

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from tests.builders import node_state, pod
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import ServedLists, cluster_of, started_pod

from topomend.cli.kubectl_numa import numa
from topomend.decide.defragment.movable import WORDS
from topomend.wire.group import FIT_GATE, STEER_LABEL

Ask = Callable[..., Result]

LOW, TWO, FOUR = "cpu=3 memory=1Mi", "cpu=2 memory=1Mi", "cpu=4 memory=1Mi"


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Ask about a cluster that is served."""
    with ExitStack() as stack:

        def asked(cluster: ServedLists, *arguments: str) -> Result:
            file = stack.enter_context(kubeconfig_of(cluster, tmp_path))
            return CliRunner().invoke(numa, ["defragment", *arguments, "--kubeconfig", str(file)])

        yield asked


def owned(name: str, container: str, *, node: str, kind: str = "ReplicaSet", **fields: Any) -> dict[str, Any]:
    """A pod of the controller ``half``."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "half", "uid": "uid-half", "controller": True}
    return started_pod(name, container, node=node, ownerReferences=[owner], **fields)


def workload(**status: Any) -> dict[str, Any]:
    template = {"spec": started_pod("t", TWO)["spec"]}
    return {
        "metadata": {"name": "half", "namespace": "default", "uid": "uid-half"},
        "spec": {"replicas": 2, "template": template},
        "status": {"replicas": 2, "readyReplicas": 2, **status},
    }


def namespace(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "default", "labels": {STEER_LABEL: "enabled"}, **fields}}


def waiting() -> dict[str, Any]:
    content = started_pod("want", FOUR)
    content["spec"]["schedulingGates"] = [{"name": FIT_GATE}]
    return content


def halves(*more: dict[str, Any]) -> ServedLists:
    """On each of two nodes two of the four CPUs of NUMA node 1 are free, and none is on NUMA node 0."""
    states, pods = [], []
    for name in "ab":
        amounts = {f"low-{name}": LOW, f"half-{name}": TWO}
        there = [pod(each, asked, namespace="default", uid=f"uid-{each}") for each, asked in amounts.items()]
        states.append(node_state(name=name, pods=there))
        pods += [started_pod(f"low-{name}", LOW, node=name), owned(f"half-{name}", TWO, node=name)]
    cluster = cluster_of(states, [*pods, waiting(), *more])
    for node in cluster.items["nodes"]:
        node["status"]["allocatable"] = {"cpu": "7", "memory": "16Gi", "pods": "110"}
    cluster.items |= {
        "namespaces": [namespace()],
        "replicasets": [workload()],
        "statefulsets": [],
        "poddisruptionbudgets": [],
        "deviceclasses": [],
    }
    return cluster


def half(cluster: ServedLists, name: str = "half-b") -> dict[str, Any]:
    [found] = [each for each in cluster.items["pods"] if each["metadata"]["name"] == name]
    return found


def test_the_moves_and_who_runs_then_are_told(ask: Ask) -> None:
    asked = ask(halves())
    assert asked.exit_code == 0, asked.output
    lines = asked.stdout.splitlines()
    assert " ".join(lines[0].split()) == "MOVE POD OWNER FROM TO CORDON FRAGMENTED THEN"
    assert " ".join(lines[1].split()) == "1 default/half-a ReplicaSet/half a NUMA 1 b NUMA 1 a 71.4% 0.0%"
    assert lines[2] == "after move 1 default/want, which waits, runs on a NUMA 1"
    assert lines[3].startswith("one by one: kubectl cordon the nodes named, evict the pod, ")
    assert lines[4] == "pool none   2 nodes   fragmented 71.4%, then -, with those that wait and then run"
    assert lines[5].split() == ["TYPICAL", "POD", "ADMITTED", "ON", "THEN", "ON"]
    assert lines[-2].split() == ["NOT", "MOVED", "PODS"]
    assert lines[-1].split() == [*WORDS["NoOwner"].split(), "2"]


def test_programs_get_one_document_and_the_next_command_gets_names(ask: Ask) -> None:
    answer = json.loads(ask(halves(), "-o", "json", "--dry-run").stdout)
    [move] = answer["moves"]
    assert move["pod"] == {"namespace": "default", "name": "half-a"}
    assert (move["from"], move["to"]) == ({"node": "a", "numaNodes": [1]}, {"node": "b", "numaNodes": [1]})
    assert (move["pool"], move["cordon"], move["orTo"]) == ("none", ["a"], [])
    assert move["thenRun"] == [{"namespace": "default", "name": "want", "node": "a", "numaNodes": [1]}]
    assert move["after"] < move["before"]
    [pool] = answer["pools"]
    assert (pool["nodes"], pool["leftOut"], pool["after"]) == (2, 0, None)
    assert answer["leftOut"] == [{"reason": "NoOwner", "pods": 2}]
    assert (answer["movable"], answer["lookedAt"]) == (2, 2)
    assert yaml.safe_load(ask(halves(), "-o", "yaml").stdout) == answer
    assert ask(halves(), "-o", "name").stdout == "pod/half-a\n"
    wide = ask(halves(), "-o", "wide").stdout.splitlines()
    assert wide[0].split()[-2:] == ["OR-TO", "THEN-RUNS"]
    assert wide[1].split()[-2:] == ["-", "default/want"]


def test_without_a_move_the_answer_is_no(ask: Ask) -> None:
    asked = ask(halves(), "--threshold", "200")
    assert asked.exit_code == 1
    assert asked.stdout.splitlines()[0] == "no move of one of 2 pods brings enough for sure"


def test_typical_pods_may_come_from_a_file(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(started_pod("two", TWO)))
    assert ask(halves(), "-f", str(path)).exit_code == 1, "they fit as it is"


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("Static", {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
        ("Ending", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:09Z"}}),
        ("NotRunning", {"status": {"phase": "Pending"}}),
        ("OptedOut", {"metadata": {"annotations": {"topomend.io/relaunch": "false"}}}),
        ("Critical", {"spec": {"priorityClassName": "system-cluster-critical"}}),
        ("Critical", {"spec": {"priority": 2_000_000_000}}),
        ("Kept", {"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}}),
        ("Kept", {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}),
        ("LocalStorage", {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
        ("LocalStorage", {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/data"}}]}}),
        ("Group", {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}}),
        ("SchedulerRules", {"spec": {"topologySpreadConstraints": [{"maxSkew": 1}]}}),
        ("Volumes", {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}),
        ("Malformed", {"spec": {"tolerations": "all"}}),
    ],
)
def test_a_pod_that_is_not_to_be_moved_is_counted_by_its_reason(
    ask: Ask, reason: str, changes: Mapping[str, Mapping[str, Any]]
) -> None:
    cluster = halves()
    for name in ("half-a", "half-b"):
        for part, fields in changes.items():
            half(cluster, name)[part] |= copy.deepcopy(dict(fields))
    assert left_out(ask(cluster, "-o", "json")) == {"NoOwner": 2, reason: 2}


@pytest.mark.parametrize(
    ("reason", "status", "spec"),
    [
        ("NotComplete", {"readyReplicas": 1}, {}),
        ("OwnerChanges", {"replicas": 3}, {}),
        ("OwnerChanges", {"currentRevision": "1", "updateRevision": "2"}, {}),
        ("OnlyOne", {"replicas": 1, "readyReplicas": 1}, {"replicas": 1}),
        ("OtherTemplate", {}, {"template": {"spec": started_pod("t", FOUR)["spec"]}}),
    ],
)
def test_a_controller_that_is_not_settled_keeps_its_pods(
    ask: Ask, reason: str, status: dict[str, Any], spec: dict[str, Any]
) -> None:
    cluster = halves()
    content = workload(**status)
    content["spec"] |= spec
    cluster.items["replicasets"] = [content]
    assert left_out(ask(cluster, "-o", "json")) == {"NoOwner": 2, reason: 2}


def test_pods_of_other_controllers_stay_and_so_do_those_whose_controller_is_gone(ask: Ask) -> None:
    cluster = halves()
    half(cluster)["metadata"]["ownerReferences"][0] |= {"kind": "Job", "apiVersion": "batch/v1"}
    half(cluster, "half-a")["metadata"]["ownerReferences"][0]["uid"] = "gone"
    assert left_out(ask(cluster, "-o", "json")) == {"NoOwner": 2, "OtherOwner": 1, "OwnerUnknown": 1}


def test_pods_outside_steered_namespaces_stay(ask: Ask) -> None:
    cluster = halves()
    cluster.items["namespaces"] = [namespace(labels={})]
    assert left_out(ask(cluster, "-o", "json")) == {"NoOwner": 2, "NotSteered": 2}
    cluster.items["namespaces"] = [namespace(annotations={"topomend.io/relaunch": "false"})]
    assert left_out(ask(cluster, "-o", "json")) == {"NoOwner": 2, "OptedOut": 2}


def test_pods_of_the_last_hour_stay(ask: Ask) -> None:
    assert left_out(ask(halves(), "-o", "json", "--older-than", "9999d")) == {"NoOwner": 2, "Young": 2}
    assert ask(halves(), "--older-than", "soon").exit_code == 2


def test_budgets_keep_pods(ask: Ask) -> None:
    cluster = halves()
    for name in ("half-a", "half-b"):
        half(cluster, name)["metadata"]["labels"] = {"app": "half"}
    keep = {
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "half"}}},
        "status": {"disruptionsAllowed": 0},
    }
    cluster.items["poddisruptionbudgets"] = [keep]
    assert left_out(ask(cluster, "-o", "json")) == {"NoOwner": 2, "Budget": 2}
    keep["status"] = {"disruptionsAllowed": 1}
    assert ask(cluster).exit_code == 0
    cluster.items["poddisruptionbudgets"] = [keep, keep]
    assert ask(cluster).exit_code == 1, "the API server evicts nobody whom two budgets select"


def test_the_volumes_of_a_pod_say_where_it_may_go(ask: Ask) -> None:
    cluster = halves()
    half(cluster)["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    claim = {"metadata": {"name": "c", "namespace": "default"}, "spec": {"volumeName": "pv"}}
    reference = {"namespace": "default", "name": "c"}
    volume: dict[str, Any] = {"metadata": {"name": "pv"}, "spec": {"claimRef": reference}}
    cluster.items |= {"persistentvolumeclaims": [claim], "persistentvolumes": [volume]}
    assert ask(cluster).exit_code == 0
    half(cluster, "half-a")["spec"]["volumes"] = half(cluster)["spec"]["volumes"]
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}
    volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [here]}}
    answer = json.loads(ask(cluster, "-o", "json").stdout)
    assert [move["to"]["node"] for move in answer["moves"]] == ["b"], "where the volume is"


def test_nobody_is_moved_from_or_to_a_node_on_which_a_pod_starts(ask: Ask) -> None:
    starts = started_pod("starts", "cpu=1 memory=1Mi", node="a")
    starts["status"]["phase"] = "Pending"
    assert ask(halves(starts)).exit_code == 1


def test_a_pool_may_be_named(ask: Ask) -> None:
    assert ask(halves(), "--pool", "none").exit_code == 0
    wrong = ask(halves(), "--pool", "nine")
    assert wrong.exit_code == 2
    assert "no pool is called nine: did you mean none?" in wrong.stderr


def test_the_names_of_pools_are_completed(tmp_path: Path) -> None:
    cluster = halves()
    cluster.items["nodes"][0]["metadata"]["labels"]["cloud.google.com/gke-nodepool"] = "gpu"
    with kubeconfig_of(cluster, tmp_path) as file:
        completion = ShellComplete(numa, {}, "kubectl numa", "")
        offered = completion.get_completions(["defragment", "--kubeconfig", str(file), "--pool"], "g")
    assert [each.value for each in offered] == ["gpu"]


def test_what_may_not_be_read_is_said(ask: Ask) -> None:
    cluster = halves()
    cluster.forbidden = {"poddisruptionbudgets"}
    asked = ask(cluster)
    assert asked.exit_code == 3
    assert "you may not list poddisruptionbudgets" in asked.stderr
    for plural in ("nodes", "replicasets", "namespaces"):
        cluster.forbidden = {plural}
        assert ask(cluster).exit_code == 3, plural
    nothing = halves()
    nothing.items["nodetopologies"] = []
    assert "no node publishes its topology" in ask(nothing).stderr


def left_out(asked: Result) -> dict[str, int]:
    """How many pods are left out by reason; then nobody is moved."""
    answer = json.loads(asked.stdout)
    assert (asked.exit_code, answer["moves"]) == (1, []), asked.output
    return {each["reason"]: each["pods"] for each in answer["leftOut"]}
