"""A cluster in memory in which the campaign moves pods: API server, controllers, workers, kube-scheduler and kubelets.

The API server's part is what the campaign asks of it. The workers' part is the operator's own choice of nodes; the
scheduler may take any of the nodes that are named; a kubelet admits by replay.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, cast

from tests.builders import node, node_state, pod_manifest
from tests.clock import Clock
from tests.reconcile.emitted import Emitted

from topomend.cache import changes
from topomend.decide import plan as plans
from topomend.decide.diagnosis.filters import filter_node, lacking_in_total
from topomend.decide.eligibility import Limits
from topomend.decide.queue.order import Reservation
from topomend.kube.client import Client, Reading
from topomend.kube.errors import DeniedForNow, NotFound
from topomend.kube.resources import BUDGETS, CLAIMS, NAMESPACES, PODS, REPLICA_SETS, STATEFUL_SETS, VOLUMES, Resource
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import requests_of
from topomend.reconcile.collaborators import Collaborators
from topomend.reconcile.defragment.campaign import Campaign
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.placement.move_under_way import MoveUnderWay
from topomend.reconcile.placement.node_backoff import NodeBackoff
from topomend.reconcile.placement.node_pods import NodePods
from topomend.reconcile.placement.reservations import Reservations
from topomend.reconcile.placement.volumes import Volumes
from topomend.reconcile.settings import Settings
from topomend.reconcile.store import Store
from topomend.replay.admission import admit, release
from topomend.runtime.backoff import Backoff
from topomend.wire.group import FIT_GATE, STEER_LABEL
from topomend.wire.pods.pod import read_pod
from topomend.wire.pods.scheduling import read_watched_pod

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
OLD = 7200.0
"""Seconds: a pod that came so long ago may be moved."""

SETTINGS = Settings(defragment=True, defragment_rate=60.0, defragment_minutes=5.0)


def _nothing() -> None:
    """What happens unless a test says otherwise."""


@dataclass
class Server:
    """The API server. ``fail`` is called before each eviction, ``last_look`` before the pods of a node are listed.

    ``lists``: when all pods of the cluster were listed. ``asked``: the time and the name of each pod whose eviction was
    asked for. ``cached``: the pods as they are in its cache, where that lags. ``volumes``: the node of each volume, by
    the name of its claim, which is its own.
    """

    clock: Clock
    pods: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    workloads: dict[str, dict[str, Any]] = field(default_factory=dict)
    namespaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    budgets: list[dict[str, Any]] = field(default_factory=list)
    volumes: dict[str, str] = field(default_factory=dict)
    cached: dict[tuple[str, str], dict[str, Any]] | None = None
    lists: list[float] = field(default_factory=list)
    asked: list[tuple[float, str]] = field(default_factory=list)
    evicted: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    is_quick: bool = False
    fail: Callable[[], None] = _nothing
    last_look: Callable[[], None] = _nothing

    def read(self, resource: Resource, reader: Callable[[dict[str, Any]], Iterable[Any]], **asked: Any) -> Reading[Any]:
        pods = self.pods if self.cached is None or not asked.get("cached") else self.cached
        listed = self._list(resource, asked.get("namespace", ""), asked.get("fields", ""), pods)
        return Reading(tuple(value for item in listed for value in reader(item)), str(int(self.clock.now * 1000)))

    def _list(
        self, resource: Resource, namespace: str, fields: str, pods: Mapping[tuple[str, str], dict[str, Any]]
    ) -> list[dict[str, Any]]:
        if resource == PODS:
            if "nodeName=" in fields and self.is_quick:
                self.last_look()
            if "nodeName=" not in fields:
                self.lists.append(self.clock.now)
            wanted = fields.split(",", maxsplit=1)[0].removeprefix("spec.nodeName=") if "nodeName=" in fields else ""
            ended = ("Failed", "Succeeded")
            alive = [content for content in pods.values() if content["status"]["phase"] not in ended]
            return [content for content in alive if not wanted or content["spec"].get("nodeName") == wanted]
        if resource == BUDGETS:
            return [each for each in self.budgets if namespace in ("", each["metadata"]["namespace"])]
        kind = {REPLICA_SETS: "ReplicaSet", STATEFUL_SETS: "StatefulSet"}[resource]
        return [each for each in self.workloads.values() if each["kind"] == kind]

    def get(self, resource: Resource, name: str, namespace: str = "", **_: Any) -> dict[str, Any]:
        if resource == PODS:
            found = self.pods.get((namespace, name))
        elif resource == NAMESPACES:
            found = self.namespaces.get(name)
        elif resource in (CLAIMS, VOLUMES):
            found = self._volume(name) if name in self.volumes else None
        else:
            found = next((each for each in self.workloads.values() if each["metadata"]["name"] == name), None)
        if found is None:
            raise NotFound(404, "NotFound", name)
        return found

    def _volume(self, name: str) -> dict[str, Any]:
        """Claim and volume in one."""
        in_node = {"key": HOSTNAME_LABEL, "operator": "In", "values": [self.volumes[name]]}
        affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_node]}]}}
        reference = {"namespace": "ns", "name": name}
        return {
            "metadata": {"name": name},
            "spec": {"volumeName": name, "claimRef": reference, "nodeAffinity": affinity},
        }

    def evict(self, name: str, namespace: str, *, uid: str, **_: Any) -> None:
        self.asked.append((self.clock.now, name))
        self.fail()
        content = self.pods[namespace, name]
        assert content["metadata"]["uid"] == uid
        for budget in self.budgets:
            selected = budget["spec"]["selector"]["matchLabels"].items() <= content["metadata"]["labels"].items()
            if selected and budget["status"]["disruptionsAllowed"] < 1:
                raise DeniedForNow(429, "TooManyRequests", "the budget keeps it")
        content["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.evicted.append((self.clock.now, content))


class Model:
    """The cluster and the campaign. ``random`` is the scheduler's choice.

    ``last_question`` is called when the campaign asks whether others were evicted, last of all before an eviction.
    ``clock_ahead``: by how many seconds the operator's time of day is ahead of the API server's.
    """

    def __init__(self, *states: NodeState, settings: Settings = SETTINGS, random: Random | None = None) -> None:
        self.clock, self.store, self.emitted, self.move = Clock(), Store(), Emitted(), MoveUnderWay()
        self.random, self.states, self.number = random or Random(1), {state.name: state for state in states}, 0
        self.server, self.preempting, self.refused = Server(self.clock), False, list[str]()
        self.controllers_rest, self.clock_ahead = False, 0.0
        self.last_question: Callable[[], None] = _nothing
        self.reserved: list[Reservation] = []
        self.labels = {STEER_LABEL: "enabled"}
        self.server.namespaces["ns"] = {"metadata": {"name": "ns", "labels": self.labels}}
        self.metrics = Metrics(lambda: self.store.snapshot, lambda: 0, lambda: True)
        client = cast("Client", self.server)
        self.node_pods = NodePods(client, self.store, clock=self.clock)
        backoff = NodeBackoff(Backoff(self.clock))
        self.reservations = Reservations(
            self.store, self.node_pods, backoff, self.metrics, clock=self.clock, random=Random(2), move=self.move
        )
        self.settings = settings
        self.campaign = self.new_campaign()
        for name in self.states:
            self.apply(changes.NodeUpdated(node(name, cpus=7)))
        self.publish()

    def new_campaign(self) -> Campaign:
        """As of an operator that begins."""
        client = cast("Client", self.server)
        unused = cast("Any", None)
        parts = Collaborators(
            client,
            self.store,
            self.reservations,
            unused,
            self.emitted.announcer,
            self.metrics,
            unused,
            unused,
            Volumes(client, self.store, self.clock),
            unused,
            self.clock,
        )
        return Campaign(
            parts,
            NamespaceLimits(client, Limits(), self.clock),
            self.settings,
            self.move,
            count=self.node_pods.list,
            preempting=self._is_preempting,
            reserved=lambda: self.reserved,
            now=lambda: self.time() + timedelta(seconds=self.clock_ahead),
        )

    def _is_preempting(self) -> bool:
        self.last_question()
        return self.preempting

    def time(self) -> datetime:
        """The time of day."""
        return BEGIN + timedelta(seconds=self.clock.now)

    def apply(self, *cluster_changes: changes.Change) -> None:
        for change in cluster_changes:
            self.store.apply(change)

    def publish(self) -> None:
        """Have the operator know every node as it is."""
        self.number += 1
        for name, state in self.states.items():
            self.apply(changes.Published(state, str(int(self.clock.now * 1000) + self.number)))
            self.node_pods.list(name)

    # Pods

    def run(self, name: str, text: str, node_name: str, *, owner: str = "", **fields: Any) -> dict[str, Any]:
        """A pod that runs since OLD seconds, of the ReplicaSet ``owner`` if there is one."""
        content = self._pod(name, text, owner, OLD, **fields)
        self._admitted(content, node_name)
        self.publish()
        return content

    def bind_unseen(self, name: str, text: str, node_name: str) -> dict[str, Any]:
        """A pod runs there that the node has not published, and of which nobody has told the operator yet."""
        content = self._pod(name, text, "", OLD, spec={"nodeName": node_name})
        content["status"] = {"phase": "Running"}
        return content

    def wait(self, name: str, text: str, **fields: Any) -> None:
        """A pod that waits gated."""
        content = self._pod(name, text, "", OLD, **fields)
        self._gate(content)

    def scale_up(self, name: str, owner: str) -> None:
        """The controller makes one pod more, which waits gated."""
        self._gate(self._pod(name, self.server.workloads[owner]["text"], owner, 0.0))

    def end(self, key: tuple[str, str]) -> None:
        """The pod ends for good, and its controller wants one less."""
        content = self.server.pods.pop(key)
        workload = self.server.workloads[content["metadata"]["labels"]["app"]]
        workload["spec"]["replicas"] -= 1
        for status in ("replicas", "readyReplicas"):
            workload["status"][status] -= 1
        node_name = content["spec"]["nodeName"]
        self.states[node_name] = release(self.states[node_name], *key)
        self.publish()

    def _gate(self, content: dict[str, Any]) -> None:
        content["spec"]["schedulingGates"] = [{"name": FIT_GATE}]
        content["spec"].pop("nodeName", None)
        content["status"] = {"phase": "Pending"}
        self.apply(changes.PodUpdated(read_watched_pod(content), self.clock.now))

    def _pod(self, name: str, text: str, owner: str, age: float, **fields: Any) -> dict[str, Any]:
        self.number += 1
        created = (self.time() - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata: dict[str, Any] = {
            "namespace": "ns",
            "uid": f"uid-{self.number}",
            "resourceVersion": str(self.number),
            "creationTimestamp": created,
            "labels": {"app": owner or name},
        }
        if owner:
            workload = self.server.workloads.setdefault(owner, _workload(owner, text))
            workload["spec"]["replicas"] = workload["status"]["replicas"] = workload["status"]["replicas"] + 1
            workload["status"]["readyReplicas"] = workload["status"]["replicas"]
            reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "controller": True}
            metadata["ownerReferences"] = [reference | {"uid": workload["metadata"]["uid"]}]
        spec = {"priority": fields.pop("priority", 0), **fields.pop("spec", {})}
        content = pod_manifest(name, text, spec=spec, **metadata | fields)
        self.server.pods["ns", name] = content
        return content

    def _admitted(self, content: dict[str, Any], node_name: str) -> None:
        verdict, self.states[node_name] = admit(self.states[node_name], read_pod(content))
        content["spec"]["nodeName"] = node_name
        content["status"] = {"phase": "Running" if verdict.admitted else "Failed"}
        if not verdict.admitted:
            self.refused.append(content["metadata"]["name"])

    # Time

    def tick(self, seconds: float = 0.5) -> None:
        """Let time pass, and everybody do what there is to do."""
        self.clock.advance(seconds)
        self.apply(changes.TimePassed(self.clock.now))
        self.server.is_quick = True
        self.campaign.check()
        self.server.is_quick = False
        self.create_next()
        self.end_evicted()
        self.place_waiting()

    def until_moved(self, seconds: float = 1800.0) -> None:
        """Let time pass until a pod was evicted and its next one runs or is given up, at most so many seconds."""
        before, ends = len(self.server.evicted), self.clock.now + seconds
        while self.clock.now < ends and (len(self.server.evicted) == before or self.move.current):
            self.tick(20.0 if self.move.current is None else 0.5)

    def create_next(self) -> None:
        """The controllers: a next pod for each that is being deleted, unless they rest."""
        if self.controllers_rest:
            return
        for content in [each for each in self.server.pods.values() if _ends(each) and "next" not in each]:
            content["next"] = True
            name = f"{content['metadata']['name'].partition('~')[0]}~{self.number}"
            owner = content["metadata"]["labels"]["app"]
            text = self.server.workloads[owner]["text"]
            spec = {key: content["spec"][key] for key in ("nodeSelector",) if key in content["spec"]}
            created = self._pod(name, text, owner, 0.0, spec=spec)
            workload = self.server.workloads[owner]
            workload["spec"]["replicas"] = workload["status"]["replicas"] = workload["status"]["replicas"] - 1
            workload["status"]["readyReplicas"] = workload["status"]["replicas"] - 1
            self._gate(created)

    def end_evicted(self) -> None:
        """The kubelets: pods that are being deleted end."""
        for key, content in [(key, each) for key, each in self.server.pods.items() if _ends(each)]:
            name = content["spec"]["nodeName"]
            self.states[name] = release(self.states[name], *key)
            del self.server.pods[key]
            self.publish()

    def place_waiting(self) -> None:
        """The workers and the scheduler: gated pods that a node admits run, in their order."""
        gated = sorted(self.store.snapshot.gated.values(), key=lambda pod: pod.order)
        for pod in gated:
            choice = self.reservations.choose(
                pod,
                lambda snapshot, excluded: plans.choose_in_order(snapshot, pod, (), excluded, yields=False),  # noqa: B023
            )
            if isinstance(choice, plans.RelaunchOn):
                self._bind(self.server.pods[pod.namespace, pod.name], choice.nodes)

    def _bind(self, content: dict[str, Any], named: Iterable[str]) -> None:
        pod = read_watched_pod(content)
        nodes = self.store.without(pod.pod).nodes
        asked = requests_of(pod.pod)
        fitting = [
            name
            for name in named or self.states
            if not filter_node(nodes[name], pod.placement, asked) and not lacking_in_total(nodes[name], asked)
        ]
        del content["spec"]["schedulingGates"]
        self._admitted(content, self.random.choice(fitting))
        workload = self.server.workloads.get(content["metadata"]["labels"]["app"])
        if workload:
            workload["status"]["readyReplicas"] = workload["status"]["replicas"]
        self.apply(changes.PodRemoved(pod.namespace, pod.name, pod.uid, self.clock.now))
        self.publish()

    # What became of it

    def places(self) -> Mapping[str, str]:
        """The node of each pod, by its name as it was first."""
        return {
            name.partition("~")[0]: content["spec"].get("nodeName", "")
            for (_, name), content in self.server.pods.items()
        }

    def moves(self) -> list[str]:
        """The names of the evicted pods, as they were first."""
        return [content["metadata"]["name"].partition("~")[0] for _, content in self.server.evicted]

    def held_places(self) -> list[str]:
        """The names of the stand-ins that hold a place."""
        return [name for _, name in self.store.snapshot.assumed if "/" in name]

    def results(self) -> dict[str, float]:
        """How many moves ended so, by result, but for those of which there is none."""
        family = next(each for each in self.metrics.registry.collect() if each.name == "topomend_operator_moves")
        samples = [each for each in family.samples if each.name.endswith("_total")]
        return {each.labels["result"]: each.value for each in samples if each.value}


def _ends(content: dict[str, Any]) -> bool:
    return "deletionTimestamp" in content["metadata"]


def _workload(name: str, text: str) -> dict[str, Any]:
    template = {"spec": pod_manifest("t", text)["spec"]}
    return {
        "kind": "ReplicaSet",
        "text": text,
        "metadata": {"namespace": "ns", "name": name, "uid": f"uid-of-{name}"},
        "spec": {"replicas": 0, "template": template},
        "status": {"replicas": 0, "readyReplicas": 0},
    }


def halves(*names: str, **settings: Any) -> Model:
    """On each node NUMA node 0 is full, and a replica of ``half`` takes two of the four CPUs of NUMA node 1.

    A pod of four CPUs waits, which is typical.
    """
    model = Model(*(node_state(name=name) for name in names), **settings)
    for name in names:
        model.run(f"low-{name}", "cpu=3 memory=1Mi", name)
        model.run(f"half-{name}", "cpu=2 memory=1Mi", name, owner="half")
    model.wait("want", "cpu=4 memory=1Mi")
    return model
