"""The lists of a cluster that does not change, as an API server gives them: nodes, what agents publish, and pods."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.builders import node_topology_object, pod_manifest
from tests.check.cluster import node_object
from tests.cli.numa.selftest.served_node import Answer, failure

from topomend.model.cluster import HOSTNAME_LABEL
from topomend.model.node_state import NodeState


@dataclass
class ServedLists:
    """What a list of each plural has, and which lists the user may not read. All other objects are not found."""

    items: dict[str, Sequence[dict[str, Any]]]
    forbidden: set[str] = field(default_factory=set)

    def answer(self, _: str, path: str, __: str, ___: dict[str, Any]) -> Answer:
        """The answer to a request."""
        plural = path.rpartition("/")[2]
        if plural in self.forbidden:
            return failure(403, "Forbidden", f"{plural} is forbidden")
        if plural == "version":
            return 200, {"gitVersion": "v1.37.2"}
        if plural not in self.items:
            return failure(404, "NotFound", f"{plural} not found")
        return 200, {"metadata": {"resourceVersion": "1"}, "items": self.items[plural]}


def cluster_of(states: Iterable[NodeState], pods: Iterable[dict[str, Any]]) -> ServedLists:
    """Nodes in these states, with these pods on them or waiting."""
    states = list(states)
    return ServedLists(
        {
            "nodes": [node_object(state, {HOSTNAME_LABEL: state.name}) for state in states],
            "nodetopologies": [node_topology_object(state) for state in states],
            "pods": list(pods),
        }
    )


def started_pod(name: str, container: str, *, node: str = "", start: int = 0, **fields: Any) -> dict[str, Any]:
    """A pod of one container that a kubelet has seen so many seconds after midnight; without a node one that waits."""
    times = {"creationTimestamp": f"2026-01-01T00:00:{start:02d}Z", "namespace": "default", "uid": f"uid-{name}"}
    status = {"phase": "Running", "startTime": times["creationTimestamp"]} if node else {"phase": "Pending"}
    return pod_manifest(name, container, node=node, status=status, **(times | fields))
