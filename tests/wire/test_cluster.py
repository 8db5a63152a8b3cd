from typing import Any

import pytest

from topomend.model.cluster import NodeSelectorTerm, Owner, Requirement, Taint, Toleration
from topomend.wire.cluster import read_node, read_watched_pod
from topomend.wire.document import MalformedObject


def pod(**parts: Any) -> dict[str, Any]:
    metadata = {"namespace": "train", "name": "p", "uid": "u", "resourceVersion": "7"} | parts.pop("metadata", {})
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}]} | parts.pop("spec", {})} | parts


def test_a_node_tells_its_labels_taints_totals_and_readiness() -> None:
    node = read_node(
        {
            "metadata": {"name": "gpu-01", "labels": {"zone": "a"}},
            "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "7500m"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )
    assert (node.name, node.labels, node.unschedulable, node.ready) == ("gpu-01", {"zone": "a"}, True, True)
    assert node.taints == (Taint("gpu", "NoSchedule"),)
    assert node.allocatable == {"cpu": 7500}


def test_a_node_without_a_ready_condition_is_not_ready() -> None:
    assert not read_node({"metadata": {"name": "gpu-01"}}).ready


def test_a_refused_pod_tells_who_refused_it_and_who_owns_it() -> None:
    owners = [{"kind": "Config", "name": "c", "uid": "1"}]
    controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "2", "controller": True}
    watched = read_watched_pod(
        pod(
            metadata={"ownerReferences": [*owners, controller], "annotations": {"topomend.io/attempt": "2"}},
            spec={"nodeName": "gpu-01"},
            status={"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: no"},
        )
    )
    assert (watched.phase, watched.reason, watched.node) == ("Failed", "TopologyAffinityError", "gpu-01")
    assert watched.owner == Owner("ReplicaSet", "rs", "2", api_version="apps/v1")
    assert watched.attempt == 2


def test_where_a_pod_may_go_is_read_from_selector_affinity_and_tolerations() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    spec = {"nodeSelector": {"gpu": "yes"}, "affinity": affinity, "tolerations": [{"operator": "Exists"}]}
    placement = read_watched_pod(pod(spec=spec)).placement
    assert placement.node_selector == {"gpu": "yes"}
    assert placement.terms == (NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),)
    assert placement.tolerations == (Toleration(operator="Exists"),)


def test_a_count_that_is_none_is_ignored() -> None:
    watched = read_watched_pod(pod(metadata={"annotations": {"topomend.io/max-attempts": "many"}}))
    assert watched.max_attempts is None


def test_a_pod_without_uid_is_refused_by_name_of_the_field() -> None:
    with pytest.raises(MalformedObject, match=r"metadata\.uid: missing"):
        read_watched_pod(pod(metadata={"uid": None}))
