from topomend.model.bitmask import mask_of
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import ContainerAllocation, NodeState, PodAllocation, free_cpus
from topomend.model.shapes.shape import parse_shape

MACHINE = parse_shape("numa:2 cores:4").machine()


def test_cpus_are_free_that_neither_kubelet_nor_container_nor_pod_holds() -> None:
    container = PodAllocation("ns", "a", containers=(ContainerAllocation("main", cpus=mask_of([1])),))
    whole = PodAllocation("ns", "b", cpus=mask_of([4, 5]))
    state = NodeState("node", MACHINE, KubeletSettings(reserved_cpus=mask_of([0])), pods=(container, whole))
    assert free_cpus(state) == {0: 2, 1: 2}
    assert free_cpus(state, reserved=mask_of([7])) == {0: 2, 1: 1}
