"""What is kept of the pods that run on a node."""

from tests.builders import pod_manifest

from topomend.model.pods.pod import requests_of
from topomend.reconcile.gated.running_pods import _read


def test_of_a_running_pod_neither_its_rules_about_nodes_nor_each_container_are_kept() -> None:
    terms = [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"] * 1_000}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = {"overhead": {"cpu": "1"}, "affinity": {"nodeAffinity": required}}
    large = pod_manifest("large", *["request:cpu=10m"] * 100, node="n", spec=spec, uid="1", namespace="default")
    (kept,) = _read(large)
    assert requests_of(kept.pod) == {"cpu": 2_000}
    assert (len(kept.pod.containers), kept.placement.terms, kept.node_affinity) == (1, None, {})
    assert (kept.namespace, kept.name, kept.uid, kept.node) == ("default", "large", "1", "n")
