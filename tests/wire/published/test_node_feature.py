"""The object and the file as Node Feature Discovery reads them. On a real API server: tests/agent."""

from topomend.model.nodes.node_features import NodeFeatures
from topomend.wire.published.node_feature import content_of, local_source, node_feature

OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}
FEATURES = NodeFeatures(
    labels={"topology-ready": "true", "numa-nodes": "2"},
    attributes={"topomend.kubelet": {"version": "v1.37.2"}},
    instances={"topomend.numa-node": ({"id": "0"}, {"id": "1"})},
)


def test_the_object_names_its_node_and_prefixes_its_labels() -> None:
    made = node_feature("n1", "agents", OWNER, FEATURES)
    assert made["metadata"] == {
        "name": "n1",
        "namespace": "agents",
        "labels": {"nfd.node.kubernetes.io/node-name": "n1"},
        "ownerReferences": [OWNER],
    }
    assert made["spec"]["labels"] == {"topomend.io/numa-nodes": "2", "topomend.io/topology-ready": "true"}


def test_features_have_the_layout_that_rules_match() -> None:
    features = node_feature("n1", "agents", OWNER, FEATURES)["spec"]["features"]
    assert features == {
        "flags": {},
        "attributes": {"topomend.kubelet": {"elements": {"version": "v1.37.2"}}},
        "instances": {"topomend.numa-node": {"elements": [{"attributes": {"id": "0"}}, {"attributes": {"id": "1"}}]}},
    }


def test_a_label_that_somebody_changed_is_noticed_and_what_the_server_adds_is_not() -> None:
    made = node_feature("n1", "agents", OWNER, FEATURES)
    stored = {**made, "metadata": {**made["metadata"], "uid": "u", "resourceVersion": "7"}}
    assert content_of(stored) == content_of(made)
    elsewhere = {**made["metadata"], "labels": {"nfd.node.kubernetes.io/node-name": "n2"}}
    assert content_of({**made, "metadata": elsewhere}) != content_of(made)


def test_the_file_of_the_local_source_has_a_label_a_line() -> None:
    assert local_source(FEATURES) == "topomend.io/numa-nodes=2\ntopomend.io/topology-ready=true"
