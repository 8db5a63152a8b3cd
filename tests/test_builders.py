"""The texts of the builders mean the same to replay and to the API."""

import pytest
from tests.builders import guaranteed_pod, node_state, node_topology_object, pod, pod_manifest, running

from topomend.wire.pods.pod import read_pod
from topomend.wire.published.node_topology import read_node_topology


@pytest.mark.parametrize(
    "containers",
    [("cpu=3 memory=1Gi",), ("init cpu=1", "sidecar cpu=500m", "request:cpu=1 vendor.com/gpu=1", "")],
    ids=["one", "of every kind"],
)
def test_a_manifest_is_read_as_the_pod_of_the_same_texts(containers: tuple[str, ...]) -> None:
    assert read_pod(pod_manifest("p", *containers, namespace="ns", uid="p")) == pod("p", *containers)


def test_a_node_state_is_read_back_from_its_object() -> None:
    state = node_state(pods=[guaranteed_pod(cpus=3)])
    assert read_node_topology(node_topology_object(state)) == state


def test_a_pod_that_a_node_refuses_cannot_run_there() -> None:
    with pytest.raises(AssertionError, match="a refuses wide: Pod was rejected"):
        running(node_state(), guaranteed_pod("wide", 5))
