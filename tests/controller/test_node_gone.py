"""A refused pod that waits is not lost with its node: Kubernetes deletes pods whose node is gone."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.clusters import NODE_B, Cluster, pod
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.kube.resources import NODES, PODS

pytestmark = pytest.mark.cluster

DOOMED = "doomed"
REFUSED = {
    "phase": "Failed",
    "reason": "TopologyAffinityError",
    "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
}


def test_a_waiting_pod_whose_node_is_deleted_is_relaunched_and_runs_once_there_is_room(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    fragmented.occupy(NODE_B, "filler-2", 2)
    fragmented.occupy(NODE_B, "filler-3", 2)
    node = fragmented.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": DOOMED}})
    start_operator().wait_until_it_watches()
    made = fragmented.create(pod("train", 3, node=DOOMED))
    fragmented.client.merge(PODS, "train", {"status": REFUSED}, "default", subresource="status")
    record = eventually("its record", fragmented.records)[0]
    assert "manifest" not in record.get("status", {})
    assert fragmented.get("train")["metadata"]["uid"] == made["metadata"]["uid"]
    fragmented.client.delete(NODES, DOOMED, uid=node["metadata"]["uid"])
    gated = eventually("its replacement", lambda: _anew(fragmented, made["metadata"]["uid"]))
    assert gated["spec"]["schedulingGates"]
    fragmented.vacate(NODE_B, "filler-3")
    assert eventually("train to run", lambda: fragmented.running("train"))["spec"]["nodeName"] == NODE_B
    record = eventually("the record's end", lambda: _launched(fragmented))
    assert "manifest" not in record["status"]


def _anew(cluster: Cluster, uid: str) -> dict[str, Any] | None:
    current = cluster.get("train")
    return current if current["metadata"]["uid"] != uid else None


def _launched(cluster: Cluster) -> dict[str, Any] | None:
    return next((record for record in cluster.records() if record["status"].get("step") == "Launched"), None)
