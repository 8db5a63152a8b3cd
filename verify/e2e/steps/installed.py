"""topomend installed on a cluster from ``deploy/``: the actions of the stories, and their questions about it."""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.waiting import eventually
from verify.e2e.containers.api import Object
from verify.e2e.containers.cgroups import Memory
from verify.e2e.containers.cluster import Cluster
from verify.e2e.steps.pods import (
    NAMESPACE,
    NODE_TOPOLOGIES,
    PODS,
    is_gated,
    is_refused,
    is_running,
    pod,
    published_cpus,
)
from verify.e2e.steps.timeline import Timeline

AGENT, OPERATOR = "topomend-agent", "topomend-system"
"""The namespaces of the two parts, as ``deploy/`` names them."""

DEPLOY = Path("deploy").absolute()
"""The manifests of this checkout."""

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR}/leases/topomend-operator"

FIGURES = Path("build", "e2e-figures")
"""Where the story leaves its figures, by their names, in a JSON object for each release."""

APPLIED = "apply to everything ready"
EXPLAINED = "refused to explained"
RELAUNCHED = "refused to running elsewhere"
BRAKED = "refused pods of a Deployment of 2"
SELFTESTED = "kubectl numa selftest"
DRAINED = "kubectl numa drain"

EXPECTED = {
    r"INFO": "an ordinary line",
}
"""Lines that topomend's containers may log, and why. Any other line fails the story."""


@dataclass
class Installed:
    """The cluster, the changes of pods and events since its start, and the measurements."""

    cluster: Cluster
    pods: Timeline
    events: Timeline
    figures: dict[str, str] = field(default_factory=dict)
    components: list[str] = field(default_factory=list)
    """The components of ``deploy/`` that the nodes need in addition to the base."""
    memory: dict[str, Memory] = field(default_factory=dict)
    killed: set[str] = field(default_factory=set)
    """Pods of which the story itself killed a container."""

    @classmethod
    def to_be(cls, cluster: Cluster) -> Self:
        """The story of ``cluster``, before topomend is installed."""
        events = "/apis/events.k8s.io/v1/events"
        return cls(cluster, Timeline(cluster.api, "/api/v1/pods"), Timeline(cluster.api, events))

    def install(self, nodes: Iterable[str], manifests: Path = Path("deploy")) -> None:
        """Install it as in the README, and wait until it works."""
        self.apply(manifests)
        self.wait_until_it_works(nodes)

    def wait_until_it_works(self, nodes: Iterable[str]) -> None:
        """Wait until an operator leads and each of ``nodes`` is published."""

        def ready() -> bool:
            columns = self.cluster.kubectl("get", "nodetopologies", "--no-headers").splitlines()
            return {line.split()[0] for line in columns if "True" in line.split()} >= set(nodes)

        eventually("every NodeTopology to be ready", ready, 30)
        self.leader()

    def apply(self, manifests: Path) -> None:
        """Apply a kustomization as a user does, and wait until all agents and operators are ready."""
        self.cluster.kubectl("apply", "--server-side", "-k", str(manifests))
        self.wait_for_rollout()

    def manifests(self, folder: Path, *components: str, **fields: object) -> Path:
        """A user's kustomization in ``folder``: the base, the components of the nodes, and further ones."""
        paths = [DEPLOY / "components" / name for name in (*self.components, *components)]
        write_kustomization(folder, paths, **fields)
        return folder

    def condition(self, node: str, kind: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition of a node's NodeTopology; empty if there is none."""
        topology = self.cluster.api.find(f"{NODE_TOPOLOGIES}/{node}") or {}
        for condition in topology.get("status", {}).get("conditions", ()):
            if condition["type"] == kind:
                return condition["status"], condition["reason"], condition["message"]
        return "", "", ""

    def wait_for_rollout(self) -> None:
        """Wait until all agents and operators are ready."""
        for kind, namespace in (("daemonset/topomend-agent", AGENT), ("deployment/topomend-operator", OPERATOR)):
            self.cluster.kubectl("rollout", "status", kind, f"--namespace={namespace}", "--timeout=120s")

    def ours(self) -> list[Object]:
        """The pods of agents and operators."""
        return [
            item for name in (AGENT, OPERATOR) for item in self.cluster.api.items(f"/api/v1/namespaces/{name}/pods")
        ]

    def images(self) -> dict[str, set[str]]:
        """The images of topomend's pods that are not being deleted, by namespace."""
        images_of: dict[str, set[str]] = {}
        for item in self.ours():
            if "deletionTimestamp" not in item["metadata"]:
                images_of.setdefault(item["metadata"]["namespace"], set()).add(item["spec"]["containers"][0]["image"])
        return images_of

    def tried(self) -> Object:
        """A new pod as the API server would store it."""
        return self.cluster.api.create(f"{PODS}?dryRun=All", pod("tried", "any"))

    def gates_new_pods(self) -> bool:
        """Whether a new pod would be stored with a gate."""
        return is_gated(self.tried())

    def leader(self) -> Object:
        """The operator's pod that holds the Lease: the Lease's holder is the pod's name and uid.

        The Lease of one that was killed is its own for a while, though its pod may be gone.
        """
        return eventually("an operator to lead", self._leading, 30)

    def _leading(self) -> Object | None:
        (pod_name, _, _) = self._holder().partition("_")
        return self.cluster.api.find(f"/api/v1/namespaces/{OPERATOR}/pods/{pod_name}") if pod_name else None

    def refusal(self, name: str) -> float:
        """When pod ``name`` was refused."""
        return self.pods.first(f"{name} to be refused", 30, lambda item: name_of(item) == name and is_refused(item)).at

    def explained(self, name: str) -> float:
        """When its refusal was explained."""
        return self.events.first(
            f"the refusal of {name} to be explained",
            30,
            lambda item: item["reason"] == "TopologyRefusalExplained" and item["regarding"]["name"] == name,
        ).at

    def running(self, name: str, since: float) -> tuple[float, Object]:
        """When the replacement of pod ``name`` ran, and the replacement."""
        goal = f"{name} to run again"
        moment = self.pods.first(goal, 60, lambda item: name_of(item) == name and is_running(item), since=since)
        return moment.at, moment.object

    def wait_until_published(self, name: str) -> tuple[str, str]:
        """Wait until a NodeTopology lists the pod; its node and its CPUs."""
        return eventually(f"the CPUs of {name} to be published", lambda: published_cpus(self.cluster.api, name), 30)

    def fill(self, node: str, name: str) -> Object:
        """Run pod ``name`` on ``node`` with the node's one exclusive CPU, and wait until that is published."""
        self.cluster.kubectl("create", "--filename=-", stdin=json.dumps(pod(name, node)))
        _, item = self.running(name, 0)
        assert self.wait_until_published(name)[0] == item["spec"]["nodeName"] == node
        return item

    def relaunch(self, name: str, here: str, there: str) -> tuple[float, float]:
        """Have ``here`` refuse pod ``NAME-2``, because ``NAME-1`` has its only CPU, and wait until it runs ``there``.

        Seconds from the refusal until it was explained, and until the pod ran.
        """
        self.fill(here, f"{name}-1")
        self.cluster.kubectl("create", "--filename=-", stdin=json.dumps(pod(f"{name}-2", here)))
        refused = self.refusal(f"{name}-2")
        explained = self.explained(f"{name}-2")
        running, item = self.running(f"{name}-2", refused)
        assert item["spec"]["nodeName"] == there
        return explained - refused, running - refused

    def unexpected_lines(self) -> list[str]:
        """The lines of the agents' and operators' containers that no pattern of EXPECTED matches."""
        all_logs = (log for namespace in (AGENT, OPERATOR) for log in self.cluster.logs.read(namespace))
        logs = [log for log in all_logs if log.container in ("agent", "operator")]
        assert {log.container for log in logs} == {"agent", "operator"}
        return [
            f"{log.pod}[{log.life}]: {line}"
            for log in logs
            for line in log.lines
            if not any(re.match(rf"\d{{4}}-\d\d-\d\d [\d:,]+ {pattern} ", line) for pattern in EXPECTED)
        ]

    def clear(self) -> None:
        """Remove all pods but topomend's, and wait until all agents have published that."""
        for kind in ("deployments", "pods"):
            self.cluster.kubectl("delete", kind, "--all", f"--namespace={NAMESPACE}")
        eventually("no pod to be published", lambda: not any(map(holders, self._topologies())), 30)

    def _topologies(self) -> list[Object]:
        topologies = self.cluster.api.find(NODE_TOPOLOGIES)
        return topologies["items"] if topologies else []

    def read_memory(self) -> None:
        """Record the memory of topomend's containers, and the largest of each kind."""
        for item in self.ours():
            (container,) = (container["name"] for container in item["spec"]["containers"])
            now = self.cluster.memory(item, container)
            before = self.memory.get(container, Memory(0, 0))
            self.memory[container] = Memory(max(now.working_set, before.working_set), max(now.peak, before.peak))

    def _holder(self) -> str:
        lease = self.cluster.api.find(LEASE)
        return str(lease["spec"].get("holderIdentity") or "") if lease else ""


def write_kustomization(folder: Path, components: Iterable[Path], **fields: object) -> None:
    """Write into ``folder`` a user's kustomization of ``deploy/`` with these components and further fields."""
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "sortOptions": {"order": "fifo"},
        "resources": [os.path.relpath(DEPLOY, folder)],
        "components": [os.path.relpath(component, folder) for component in components],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization | fields))


def name_of(item: Object) -> str:
    """The name of an object."""
    return str(item["metadata"]["name"])


def uid_of(item: Object) -> str:
    """The uid of an object."""
    return str(item["metadata"]["uid"])


def holders(topology: Object) -> Object:
    """The pods with exclusive CPUs in a NodeTopology."""
    pods: Object = topology.get("status", {}).get("pods", ())
    return pods
