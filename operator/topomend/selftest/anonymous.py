"""A node's state for a report that strangers read: other pods have numbers in the place of their names."""

from dataclasses import replace

from topomend.model.nodes.node_state import ContainerAllocation, NodeState, PodAllocation

NAMESPACE = "other"


def without_names(state: NodeState, own_namespace: str) -> NodeState:
    """The state in which the pods of all other namespaces, and their containers, are numbered in their order."""
    numbered = (
        pod if pod.namespace == own_namespace else _numbered(pod, number) for number, pod in enumerate(state.pods)
    )
    return replace(state, pods=tuple(numbered))


def _numbered(pod: PodAllocation, number: int) -> PodAllocation:
    containers = tuple(_renamed(container, position) for position, container in enumerate(pod.containers))
    return replace(pod, namespace=NAMESPACE, name=f"pod-{number}", uid="", containers=containers)


def _renamed(container: ContainerAllocation, position: int) -> ContainerAllocation:
    return replace(container, name=f"container-{position}")
