"""The lists of a cluster that does not change, as an API server gives them: nodes, what agents publish, and pods."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from tests.builders import node_topology_object, pod_manifest
from tests.check.cluster import node_object
from tests.cli.numa.selftest.served_node import Answer, failure

from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.nodes.node_state import NodeState


@dataclass
class ServedLists:
    """What a list of each plural has, and which lists the user may not read. All other objects are not found.

    Field selectors are kept to; label selectors are not.
    """

    items: dict[str, Sequence[dict[str, Any]]]
    forbidden: set[str] = field(default_factory=set)

    def answer(self, _: str, path: str, query: str, __: dict[str, Any]) -> Answer:
        """The answer to a request."""
        above, _, plural = path.rpartition("/")
        collection = above.rpartition("/")[2]
        if collection in self.items and collection not in self.forbidden:
            named = [item for item in self.items[collection] if item["metadata"]["name"] == plural]
            return (200, named[0]) if named else failure(404, "NotFound", f"{plural} not found")
        if plural in self.forbidden:
            return failure(403, "Forbidden", f"{plural} is forbidden")
        if plural == "version":
            return 200, {"gitVersion": "v1.37.2"}
        if plural not in self.items:
            return failure(404, "NotFound", f"{plural} not found")
        selected = [item for item in self.items[plural] if _is_selected(item, query)]
        return 200, {"metadata": {"resourceVersion": "1"}, "items": selected}


def _is_selected(item: dict[str, Any], query: str) -> bool:
    """Whether an object has what the field selector of a request asks for."""
    [selector] = parse_qs(query).get("fieldSelector", [""])
    return all(_has_field(item, each) for each in filter(None, selector.split(",")))


def _has_field(item: dict[str, Any], selector: str) -> bool:
    path, operator, wanted = re.split(r"(!?=)", selector, maxsplit=1)
    found: Any = item
    for name in path.split("."):
        found = found.get(name, {})
    return ((found or "") == wanted) is (operator == "=")


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
