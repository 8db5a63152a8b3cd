"""Runs random clusters on one real control plane, some side by side, each plain and then steered, and compares.

Each cluster has two nodes of its own, by a label. The operator runs all the time; it leaves plain namespaces alone.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.builders import pod_manifest
from tests.clusters import Cluster, agents_on, cluster_of, shown, steer
from tests.operator_process import Operator
from tests.waiting import TimedOut, eventually, stretched
from verify.differential.workloads import api_object
from verify.preemption.clusters import NODES, PRIORITIES, SHAPE, RandomCluster, random_cluster

from topomend.kube.errors import NotFound
from topomend.kube.resources import (
    BUDGETS,
    CLAIMS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODE_TOPOLOGIES,
    PODS,
    PRIORITY_CLASSES,
    VOLUMES,
    Resource,
)
from topomend.kube.resources import NODES as NODE_OBJECTS
from topomend.sandbox import NodeSpec
from topomend.wire.group import RELAUNCH_ANNOTATION, STEER_LABEL

LABEL = "verify.topomend.io/cluster"
FILLS, KEPT = "fills", "kept"

STABLE_SECONDS, MOST_SECONDS = 12.0, 30.0
"""How long nothing changes once kube-scheduler has done what it can: within 10 s. How long a pod may take."""

SETTLE_SECONDS = 2.0
"""How long it is watched for more victims once all pods run."""

POLL_SECONDS = 0.3

RUNS = 5
"""How often a cluster is run in each way that fared worse once."""

UNTOLD = ("Pulling", "Pulled", "Created", "Started", "SuccessfulCreate", "ScalingReplicaSet")
"""Reasons of events that say nothing of why a pod runs where it does."""

CONTROLLERS = {
    "Deployment": DEPLOYMENTS,
    "DaemonSet": DAEMON_SETS,
}


@dataclass(frozen=True)
class Outcome:
    """What came of a cluster: the urgent pods that ``ran`` by name with their node, how many were ``refused``, and the
    nodes of its ``victims`` by uid.

    ``told`` is what its events say, in order, for whoever asks why.
    """

    ran: Mapping[str, str] = field(default_factory=dict)
    refused: int = 0
    victims: Mapping[str, str] = field(default_factory=dict)
    told: Sequence[str] = field(default=(), compare=False, repr=False)

    @property
    def in_vain(self) -> int:
        """How many were evicted from nodes on which no urgent pod runs."""
        return sum(node not in self.ran.values() for node in self.victims.values())


@dataclass(frozen=True)
class Compared:
    """A cluster with the outcomes of its runs, as many plain as steered: of one each, or of ``RUNS`` where that one
    fares worse steered, since kube-scheduler alone does not always end alike."""

    cluster: RandomCluster
    plain: Sequence[Outcome]
    steered: Sequence[Outcome]

    @property
    def worse(self) -> list[str]:
        """What is worse in the first steered run than in the first plain one, in words; empty where nothing is. That
        plain is no better excuses nothing refused or evicted in vain."""
        first, second = self.plain[0], self.steered[0]
        problems = []
        if missing := first.ran.keys() - second.ran.keys():
            problems.append(f"{_names(missing)} ran plain only")
        if second.ran.keys() == first.ran.keys() and len(second.victims) > len(first.victims):
            problems.append(f"{len(second.victims)} victims, {len(first.victims)} plain")
        return [*problems, *_never(second)]

    @property
    def faults(self) -> list[str]:
        """What is worse by more than luck: what each plain run reaches and not each steered one, more victims than in
        any plain run in which the same pods ran, and all that must never be."""
        always = frozenset.intersection(*(frozenset(outcome.ran) for outcome in self.plain))
        problems = []
        if missing := {name for outcome in self.steered for name in always - outcome.ran.keys()}:
            problems.append(f"{_names(missing)} ran in each plain run only")
        for ran in {frozenset(outcome.ran) for outcome in self.plain}:
            plain, steered = (self._most_victims(runs, ran) for runs in (self.plain, self.steered))
            if steered > plain:
                problems.append(f"{steered} victims, {plain} at most plain")
        return list(dict.fromkeys([*problems, *(text for outcome in self.steered for text in _never(outcome))]))

    @staticmethod
    def _most_victims(runs: Sequence[Outcome], ran: frozenset[str]) -> int:
        """Of the runs in which these pods ran; 0 without any."""
        return max((len(outcome.victims) for outcome in runs if outcome.ran.keys() == ran), default=0)


def _names(pods: Iterable[str]) -> str:
    return ", ".join(sorted(pods))


def _never(steered: Outcome) -> Iterator[str]:
    if steered.in_vain:
        yield f"{steered.in_vain} evicted in vain"
    if steered.refused:
        yield f"{steered.refused} refused"


@dataclass(frozen=True)
class Arena:
    """The control plane, ``lanes`` pairs of nodes, and the operator."""

    cluster: Cluster
    operator: Operator
    lanes: int

    @property
    def evictions(self) -> int:
        """How many pods the operator itself has evicted so far."""
        return self.operator.text().count(" was evicted from ")


@contextmanager
def arena(logs: Path, lanes: int) -> Iterator[Arena]:
    """The nodes, their agents, the operator, and what all clusters refer to."""
    settings = {"topology_manager_policy": "single-numa-node"}
    specs = [NodeSpec.of_shape(_node(lane, node), SHAPE, **settings) for lane in range(lanes) for node in range(NODES)]
    with cluster_of(specs) as cluster, agents_on(cluster, logs / "agents.log"):
        eventually("the agents", lambda: len(cluster.client.list(NODE_TOPOLOGIES).items) == len(specs))
        _furnish(cluster, lanes)
        operator = Operator(cluster.sandbox.kubeconfig, logs / "operator.log")
        operator.wait_until_it_watches()
        try:
            yield Arena(cluster, operator, lanes)
        finally:
            operator.terminate()
        if "Traceback" in operator.text():
            raise AssertionError(operator.text())


def _furnish(cluster: Cluster, lanes: int) -> None:
    client = cluster.client
    for name, value in PRIORITIES.items():
        policy = {"preemptionPolicy": "Never"} if name == "polite" else {}
        content = api_object(PRIORITY_CLASSES.api_version, "PriorityClass", name, value=value, **policy)
        client.create(PRIORITY_CLASSES, content)
    steer(cluster, "tried")
    for lane in range(lanes):
        for node in range(NODES):
            client.merge(NODE_OBJECTS, _node(lane, node), {"metadata": {"labels": {LABEL: str(lane)}}})
        for name in ("plain", "others"):
            content = api_object("v1", "Namespace", f"{name}-{lane}")
            content["metadata"]["annotations"] = {RELAUNCH_ANNOTATION: "false"}
            client.create(NAMESPACES, content)
        content = api_object("v1", "Namespace", f"steered-{lane}")
        content["metadata"]["labels"] = {STEER_LABEL: "enabled"}
        client.create(NAMESPACES, content)
        for name in ("plain", "others", "steered"):
            selector = {"matchLabels": {KEPT: "yes"}}
            budget = api_object(
                BUDGETS.api_version, "PodDisruptionBudget", KEPT, spec={"maxUnavailable": 0, "selector": selector}
            )
            client.create(BUDGETS, budget, f"{name}-{lane}")


def compare(arena: Arena, lane: int, seed: int, number: int) -> Compared:
    """Run cluster ``number`` in both ways on the nodes of one lane, and again where it fares worse steered.

    Raises TimedOut where it does not come up.
    """
    random = random_cluster(seed, number)

    def outcome(way: str, least: Outcome | None) -> Outcome:
        return _Run(arena.cluster, lane, way, random).outcome(least)

    def once() -> tuple[Outcome, Outcome]:
        plain = outcome("plain", None)
        return plain, outcome("steered", plain)

    runs = [once()]
    compared = Compared(random, *zip(*runs, strict=True))
    if not compared.worse:
        return compared
    runs += [once() for _ in range(RUNS - 1)]
    return Compared(random, *zip(*runs, strict=True))


class _Run:
    """One run of one cluster."""

    def __init__(self, cluster: Cluster, lane: int, way: str, random: RandomCluster) -> None:
        self._cluster, self._client, self._lane, self._random = cluster, cluster.client, lane, random
        self._namespace, self._others = f"{way}-{lane}", f"others-{lane}"
        self._is_steered, self._first = way == "steered", dict[str, str]()

    def outcome(self, least: Outcome | None) -> Outcome:
        """What came of it, once nothing changes any more.

        Where it is to be compared, at least as many pods as in ``least`` have all the time they may take.
        """
        began = datetime.now(UTC)
        try:
            self._fill()
            for number, urgent in enumerate(self._random.urgent):
                content = pod_manifest(f"urgent-{number}", urgent.container)
                self._place(content["spec"], urgent.priority, {LABEL: str(self._lane)})
                if urgent.disk is not None:
                    self._give_disk(content, urgent.disk)
                self._check_gated(self._client.create(PODS, content, self._namespace))
            return replace(self._watch(least), told=self._told(began))
        finally:
            self._remove()

    def _check_gated(self, content: Mapping[str, Any]) -> None:
        """Gating ends where the operator does not renew it in time: the run would be a plain one. Raises TimedOut."""
        if self._is_steered and not content["spec"].get("schedulingGates"):
            raise TimedOut(f"{content['metadata']['name']} was not gated: the operator had not renewed its policies")

    def _fill(self) -> None:
        for number, filler in enumerate(self._random.fillers):
            name, node = f"fill-{number}", _node(self._lane, filler.node)
            namespace = self._namespace if filler.steered else self._others
            labels = {FILLS: name, KEPT: "yes" if filler.kept else "no"}
            content = pod_manifest(name, filler.container, labels=labels)
            self._place(content["spec"], filler.priority, {"kubernetes.io/hostname": node})
            if filler.controller:
                spec = {"selector": {"matchLabels": {FILLS: name}}, "template": content}
                controller = api_object("apps/v1", filler.controller, name, spec=spec)
                self._client.create(CONTROLLERS[filler.controller], controller, namespace)
            else:
                content["spec"]["nodeName"] = node
                self._client.create(PODS, content, namespace)
            pod = eventually(f"{name} to run on {node}", lambda: self._running(name, namespace))  # noqa: B023
            self._first[pod["metadata"]["uid"]] = node
            if filler.container.startswith("cpu"):
                eventually(f"{node} to show {name}", lambda: pod["metadata"]["name"] in shown(self._cluster, node))  # noqa: B023

    def _running(self, filler: str, namespace: str) -> dict[str, Any] | None:
        pods = self._client.list(PODS, namespace=namespace).items
        own = (pod for pod in pods if pod["metadata"].get("labels", {}).get(FILLS) == filler)
        return next((pod for pod in own if pod["status"].get("phase") == "Running"), None)

    @staticmethod
    def _place(spec: dict[str, Any], priority: str, selector: Mapping[str, str]) -> None:
        spec |= {"terminationGracePeriodSeconds": 1, "nodeSelector": dict(selector)}
        if priority:
            spec["priorityClassName"] = priority

    def _give_disk(self, content: dict[str, Any], node: int) -> None:
        name = content["metadata"]["name"]
        values = [_node(self._lane, node)]
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": values}]}
        own = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        volume = {
            "capacity": {"storage": "1Gi"},
            "local": {"path": "/tmp"},  # noqa: S108  a folder that every node has; nothing is written
            "claimRef": {"namespace": self._namespace, "name": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        claim = {"volumeName": self._volume(name), "resources": {"requests": {"storage": "1Gi"}}}
        self._client.create(VOLUMES, api_object("v1", "PersistentVolume", self._volume(name), spec=own | volume))
        made = api_object("v1", "PersistentVolumeClaim", name, spec=own | claim)
        self._client.create(CLAIMS, made, self._namespace)
        content["spec"]["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": name}}]

    def _volume(self, claim: str) -> str:
        return f"{self._namespace}-{claim}"

    def _watch(self, least: Outcome | None) -> Outcome:
        began = changed = time.monotonic()
        seen = Outcome()
        most = stretched(MOST_SECONDS) if least else MOST_SECONDS
        while time.monotonic() - began < most:
            now = self._look()
            if now != seen:
                seen, changed = now, time.monotonic()
            quiet = time.monotonic() - changed
            if len(now.ran) == len(self._random.urgent) and quiet >= SETTLE_SECONDS:
                break
            if quiet >= STABLE_SECONDS and not (least and (least.ran.keys() - now.ran.keys() or now.in_vain)):
                break
            time.sleep(POLL_SECONDS)
        return seen

    def _look(self) -> Outcome:
        pods = [*self._pods(self._namespace), *self._pods(self._others)]
        staying = {pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
        urgent = [pod for pod in pods if pod["metadata"]["name"].startswith("urgent-")]
        return Outcome(
            {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in urgent if pod["status"]["phase"] == "Running"},
            sum(pod["status"]["phase"] == "Failed" for pod in urgent),
            {uid: node for uid, node in self._first.items() if uid not in staying},
        )

    def _told(self, since: datetime) -> list[str]:
        """What schedulers, kubelets and the operator said of the pods since then."""
        lines = []
        for namespace in (self._namespace, self._others):
            for event in self._client.list(EVENTS, namespace=namespace).items:
                when = event["eventTime"] or event["deprecatedFirstTimestamp"]
                if since <= datetime.fromisoformat(when) and event["reason"] not in UNTOLD:
                    about = event["regarding"]["name"]
                    lines.append(f"{when} {namespace}/{about} {event['reason']}: {event['note'][:300]}")
        return sorted(lines)

    def _pods(self, namespace: str) -> Sequence[dict[str, Any]]:
        return self._client.list(PODS, namespace=namespace).items

    def _remove(self) -> None:
        """Remove everything; the next run finds empty nodes, as their agents know."""
        namespaces = (self._namespace, self._others)
        for namespace in namespaces:
            for resource in (*CONTROLLERS.values(), CLAIMS):
                self._delete_all(resource, namespace)

        def are_gone() -> bool:
            pods = [pod for namespace in namespaces for pod in self._pods(namespace)]
            for pod in pods:
                self._cluster.remove(pod)
            return not pods

        eventually("the pods to be gone", are_gone, 60)
        for number, urgent in enumerate(self._random.urgent):
            if urgent.disk is not None:
                with suppress(NotFound):
                    made = self._client.get(VOLUMES, self._volume(f"urgent-{number}"))
                    self._client.delete(VOLUMES, made["metadata"]["name"], uid=made["metadata"]["uid"])
        nodes = [_node(self._lane, node) for node in range(NODES)]
        eventually("the agents to know", lambda: not any(shown(self._cluster, node) for node in nodes), 60)

    def _delete_all(self, resource: Resource, namespace: str) -> None:
        for content in self._client.list(resource, namespace=namespace).items:
            with suppress(NotFound):
                self._client.delete(resource, content["metadata"]["name"], namespace, uid=content["metadata"]["uid"])


def _node(lane: int, node: int) -> str:
    return f"lane-{lane}-{node}"
