"""A pod that waits, from its object to the lines that are printed. A dictionary answers in the API server's place."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from tests.builders import guaranteed_pod, node_state, pod_manifest, snapshot_of

from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.arguments.pod_argument import read_requested
from topomend.cli.numa.cluster.cluster import TOTALS_NOT_CHECKED, Cluster
from topomend.cli.numa.cluster.devices.device_claims import Devices
from topomend.cli.numa.explain.answer import Answer
from topomend.cli.numa.explain.ask import answer_to
from topomend.cli.numa.explain.question import Facts, Question
from topomend.cli.numa.explain.several import overview, seen
from topomend.cli.numa.explain.waiting_pod.surroundings import Surroundings
from topomend.cli.numa.explain.waiting_pod.wait import NO_WAIT
from topomend.cli.output.failures import NO, YES
from topomend.kube.client import Client
from topomend.kube.errors import Forbidden, NotFound
from topomend.kube.resources import BUDGETS, EVENTS, NAMESPACES, PODS, PRIORITY_CLASSES, Resource
from topomend.runtime.event_recorder import CONTROLLER
from topomend.wire.group import FIT_GATE, PLACEHOLDER_GATE

FULL = snapshot_of(node_state(pods=[guaranteed_pod("low", 2), guaranteed_pod("high", 3)]))
"""On NUMA nodes 0 and 1, one CPU is free."""

BOUND = "spec.nodeName!="


@dataclass
class Listed:
    """A list as the client returns one."""

    items: tuple[Any, ...]


@dataclass
class Objects:
    """The objects of a cluster by their resource, and which of its requests the user may not make."""

    by_resource: dict[Resource, list[dict[str, Any]]]
    forbidden: Callable[[Resource, str], bool] = lambda *_: False
    asked: list[tuple[str, str]] = field(default_factory=list)

    def read(
        self, resource: Resource, reader: Callable[[dict[str, Any]], Iterable[Any]], *, namespace: str = "", **how: Any
    ) -> Listed:
        fields = str(how.get("fields", ""))
        self._note(resource, namespace, fields)
        found = [each for each in self.by_resource.get(resource, []) if not namespace or _namespace(each) == namespace]
        if fields.startswith(BOUND):
            found = [each for each in found if each["spec"].get("nodeName")]
        return Listed(tuple(value for content in found for value in reader(content)))

    def list(self, resource: Resource, *, namespace: str = "", fields: str = "") -> Listed:
        self._note(resource, namespace, fields)
        wanted = dict(part.split("=") for part in fields.split(","))
        return Listed(tuple(each for each in self.by_resource.get(resource, []) if _has(each, wanted)))

    def get(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        self._note(resource, namespace, name)
        for content in self.by_resource.get(resource, []):
            if content["metadata"]["name"] == name:
                return content
        raise NotFound(404, "NotFound", name)

    def _note(self, resource: Resource, namespace: str, words: str) -> None:
        if self.forbidden(resource, namespace):
            raise Forbidden(403, "Forbidden", resource.plural)
        self.asked.append((resource.plural, words))


def _namespace(content: Mapping[str, Any]) -> str:
    return str(content["metadata"].get("namespace", ""))


def _has(event: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    known = {"regarding.uid": event["regarding"]["uid"], "reason": event["reason"]}
    return all(known[name] == value for name, value in wanted.items())


def waiting(name: str = "train", *, gates: tuple[str, ...] = (FIT_GATE,), **metadata: Any) -> dict[str, Any]:
    created = {"uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"} | metadata
    return pod_manifest(name, "cpu=3 memory=1Mi", gates=gates, namespace="ns", status={"phase": "Pending"}, **created)


def holder(name: str, cpus: int) -> dict[str, Any]:
    content = pod_manifest(name, f"cpu={cpus} memory=1Mi", node="a", namespace="ns", uid=name, resourceVersion="1")
    return content | {"status": {"phase": "Running"}}


def cluster_of(*pods: dict[str, Any], labels: Mapping[str, str] | None = None, **more: Any) -> Objects:
    space = {"metadata": {"name": "ns", "labels": dict(labels or {})}}
    found = {PODS: [*pods, holder("low", 2), holder("high", 3)], NAMESPACES: [space]}
    return Objects(found | {BUDGETS: [], PRIORITY_CLASSES: []} | more.pop("objects", {}), **more)


def answer(objects: Objects, pod: dict[str, Any], snapshot: Snapshot = FULL) -> Answer:
    cluster = Cluster(cast("Client", objects), "ns")
    facts = Facts(cluster, snapshot, (), Surroundings(cluster), Devices(cluster, snapshot))
    return answer_to(facts, Question(read_requested(pod, "train")))


def test_a_steered_pod_is_told_why_it_waits_what_each_node_lacks_who_has_to_go_and_what_comes_next() -> None:
    pod = waiting()
    found = answer(cluster_of(pod, labels={"topomend.io/steer": "enabled"}), pod)
    assert found.code == NO
    why = "namespace ns is steered (topomend.io/steer=enabled), so a node is chosen first"
    free = "free 1 on NUMA 0, 1 on NUMA 1, lacks 2 (single-numa-node)"
    refusal = f"container c0: cpu requests 3 and fits no NUMA node: {free}"
    assert found.lines("table") == [
        f"train is gated by topomend since 2026-01-01T00:00:00Z: {why}",
        "no node would admit it now",
        "  NODE   LACKS        FREE                       WOULD ADMIT   OR ONCE THIS ENDS",
        "  a      2 of 3 cpu   1 on NUMA 0, 1 on NUMA 1   1 CPU         -",
        f"  a refuses {refusal}",
        "the fewest whose end makes room, on a (NUMA 1): ns/high",
        "next: topomend ungates it once a node admits it, which it asks whenever a node changes, and once a minute",
    ]


def test_pods_of_higher_priority_may_end_but_not_be_evicted() -> None:
    pod = waiting()
    objects = cluster_of(pod)
    for content in objects.by_resource[PODS][1:]:
        content["spec"]["priority"] = 10
    lines = answer(objects, pod).lines("table")
    room = "the fewest whose end makes room, on a (NUMA 1): ns/high; they may end, but not be evicted for it"
    assert room in lines


def test_all_that_is_read_for_a_pod_that_waits_is_read_once() -> None:
    pod = waiting()
    objects = cluster_of(pod)
    answer(objects, pod)
    lists = [asked for asked in objects.asked if asked[0] == "pods"]
    assert len(lists) == 3, "the pods of all nodes, those of its namespace, and placeholders"
    assert len(objects.asked) == len(set(objects.asked))


def test_a_user_who_may_list_his_namespace_alone_is_told_all_but_who_has_to_go() -> None:
    pod = waiting()
    objects = cluster_of(pod, forbidden=lambda resource, namespace: resource == PODS and not namespace)
    lines = answer(objects, pod).lines("table")
    assert lines[0].startswith("train is gated by topomend since ")
    assert TOTALS_NOT_CHECKED in lines
    assert not any("makes room" in line for line in lines)
    assert "  a      2 of 3 cpu   1 on NUMA 0, 1 on NUMA 1   1 CPU         ns/high" in lines


def test_a_braked_pod_quotes_the_refusal_of_its_sibling() -> None:
    owner = {"kind": "ReplicaSet", "name": "web-1", "uid": "rs", "apiVersion": "apps/v1", "controller": True}
    pod = waiting(ownerReferences=[owner])
    refusal = {
        "metadata": {"name": "e"},
        "reason": "TopologyRefusalExplained",
        "regarding": {"kind": "Pod", "name": "web-1-a", "uid": "gone"},
        "related": {"kind": "ReplicaSet", "name": "web-1", "uid": "rs"},
        "note": "a refuses container main",
        "reportingController": CONTROLLER,
        "eventTime": "2026-01-01T00:00:00.000000Z",
    }
    found = answer(cluster_of(pod, objects={EVENTS: [refusal]}), pod)
    assert "are braked, because web-1-a was refused: a refuses container main" in found.lines("table")[0]
    record = found.record()["waiting"]
    assert record["gated"]["because"] == "braked"
    assert record["room"]["pods"][0]["name"] == "high"
    assert [row["node"] for row in record["nodes"]] == ["a"]


def event_of(controller: str, **fields: Any) -> dict[str, Any]:
    regarding = {"kind": "Pod", "name": "train", "uid": "train"}
    return {"metadata": {"name": "e"}, "reason": "NotTriggerScaleUp", "regarding": regarding, **fields} | {
        "reportingController": controller
    }


SEEN: dict[str, dict[Resource, list[dict[str, Any]]]] = {
    "an event of Cluster Autoscaler": {EVENTS: [event_of("cluster-autoscaler")]},
    "one of an older library": {EVENTS: [event_of("", deprecatedSource={"component": "karpenter"})]},
    "a placeholder": {PODS: [waiting("placeholder", gates=(PLACEHOLDER_GATE,))]},
}


@pytest.mark.parametrize("seen_in", SEEN.values(), ids=SEEN)
def test_autoscalers_are_told_of_where_one_is_seen(seen_in: dict[Resource, list[dict[str, Any]]]) -> None:
    pod = waiting()
    objects = cluster_of(pod)
    objects.by_resource |= {
        resource: [*objects.by_resource.get(resource, []), *seen_in[resource]] for resource in seen_in
    }
    assert "cluster autoscalers are not told of it yet" in answer(objects, pod).lines("table")
    forbidden = cluster_of(pod, forbidden=lambda resource, _: resource in seen_in)
    assert not any("autoscaler" in line for line in answer(forbidden, pod).lines("table"))


def test_autoscalers_are_told_of_where_karpenter_has_added_a_node() -> None:
    pod = waiting()
    nodes = {
        name: replace(node, labels={**node.labels, "karpenter.sh/nodepool": "default"})
        for name, node in FULL.nodes.items()
    }
    lines = answer(cluster_of(pod), pod, replace(FULL, nodes=nodes)).lines("table")
    assert "cluster autoscalers are not told of it yet" in lines


def test_pods_that_wait_for_the_same_are_told_together_unless_they_are_gated_for_different_reasons() -> None:
    owner = {"kind": "ReplicaSet", "name": "web-1", "uid": "rs", "apiVersion": "apps/v1", "controller": True}
    alike = [waiting("one"), waiting("two", creationTimestamp="2026-01-01T00:00:07Z")]
    braked = waiting("web", ownerReferences=[owner])
    objects = cluster_of(*alike, braked)
    cluster = Cluster(cast("Client", objects), "ns")
    facts = Facts(cluster, FULL, (), Surroundings(cluster), Devices(cluster, FULL))
    groups = overview(facts, [seen(pod) for pod in (*alike, braked)], "ns", "").groups
    assert [[pod.name for pod in group.pods] for group in groups] == [["one", "two"], ["web"]]


def test_a_pod_that_the_scheduler_has_not_bound_quotes_it_and_has_the_table_too() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
    pod = waiting(gates=())
    pod["status"]["conditions"] = [said]
    lines = answer(cluster_of(pod), pod).lines("table")
    assert lines[0] == "train is not scheduled (Unschedulable): 0/1 nodes are available"
    assert any(line.startswith("  NODE ") for line in lines)
    assert not any(line.startswith("next: ") for line in lines)


def test_a_pod_that_runs_does_not_wait() -> None:
    runs = holder("low", 2)
    found = answer(cluster_of(), runs)
    assert (found.wait, found.code) == (NO_WAIT, YES)


@pytest.mark.parametrize("output", ["table", "wide"])
def test_a_pod_that_no_node_can_ever_admit_is_told_so_and_nobody_has_to_go(output: str) -> None:
    pod = waiting()
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "5", "memory": "1Mi"}}
    lines = answer(cluster_of(pod), pod).lines(output)
    assert any(line.startswith("no node admits train even when empty; closest: ") for line in lines)
    assert not any("makes room" in line for line in lines)
    assert lines[-1].startswith("next: nothing, until a node or the pod changes")
