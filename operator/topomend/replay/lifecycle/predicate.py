"""The kubelet's fit check: whether a pod that its managers have admitted fits the node's totals, labels and taints.

The check comes after the managers (kubelet.go:NewMainKubelet, the order of its admit handlers). Leaves out whom the
kubelet evicts for a critical pod (preemption/preemption.go), and pods that are being resized.
Source: pkg/kubelet/lifecycle/predicate.go, pkg/scheduler/eventhandlers.go:AdmissionCheck and the scheduler's plugins
noderesources, nodeaffinity, nodename, nodeports and tainttoleration.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from topomend.model.nodes.node import Node
from topomend.model.pods.bound_pod import BoundPod, HostPort
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources, requests_of
from topomend.model.quantity import MilliQuantity, value
from topomend.model.verdict import Shortage
from topomend.replay.errors import Rejection
from topomend.replay.gates import Gates
from topomend.replay.lifecycle.node_affinity import matches_selector, matches_terms, parsed
from topomend.replay.lifecycle.tolerations import NO_EXECUTE, tolerates

PODS, CPU, MEMORY, EPHEMERAL_STORAGE = "pods", "cpu", "memory", "ephemeral-storage"
OUT_OF = "OutOf"
"""The prefix of the reason for a resource of which too little is left (InsufficientResourcePrefix)."""

_NODE_AFFINITY = "NodeAffinity"
_OS = "linux"
_ANY_ADDRESS, _TCP = "0.0.0.0", "TCP"  # noqa: S104 - an address that is compared, and nothing listens on


@dataclass(frozen=True, slots=True)
class Fit:
    """The outcome of the check: ``shortages`` in the kubelet's order, then its other ``failures``.

    The kubelet tells the first of all. The order of several resources beyond CPU, memory and storage is that of a Go
    map; here they are sorted by name.
    """

    shortages: tuple[Shortage, ...] = ()
    failures: tuple[Rejection, ...] = ()
    critical: bool = False

    @property
    def left_to_chance(self) -> tuple[str, ...]:
        """The resources of which the kubelet tells one, as the order of a Go map has it; none where that is certain."""
        named = [shortage.resource for shortage in self.shortages]
        return tuple(named) if len(named) > 1 and not {PODS, CPU, MEMORY, EPHEMERAL_STORAGE} & {*named} else ()

    @property
    def rejection(self) -> Rejection | None:
        """What the kubelet answers; None where the pod fits. A critical pod is refused for other failures first."""
        every = (*map(rejection_of, self.shortages), *self.failures)
        if self.critical and self.failures:
            return self.failures[0]
        return every[0] if every else None


def rejection_of(shortage: Shortage) -> Rejection:
    """The kubelet's reason and message for a shortage (predicate.go:InsufficientResourceError.Error)."""
    return Rejection(
        f"{OUT_OF}{shortage.resource}",
        f"Node didn't have enough resource: {shortage.resource}, requested: {shortage.requested}, "
        f"used: {shortage.used}, capacity: {shortage.capacity}",
    )


def check(
    bound: BoundPod, node: Node, others: Iterable[BoundPod], gates: Gates, held: Mapping[str, int] | None = None
) -> Fit:
    """Whether the pod fits the ``node``, on which the pods ``others`` are.

    ``held`` is how many devices of each resource are allocated on the node, this pod's included; None where the pod
    has none (predicate.go:predicateAdmitHandler.Admit).
    """
    if refused := _refused_at_once(bound, node, gates):
        return Fit(failures=(refused,))
    others = tuple(others)
    published = _counted(node.allocatable)
    capacity = _sanitized(published, held)
    requests = _counted(requests_of(_counted_pod(_without_missing(bound, capacity, gates), gates)))
    used = [_counted(requests_of(_counted_pod(other.pod, gates))) for other in others]
    shortages = tuple(_shortages(requests, used, capacity))
    failures = tuple(_failures(bound, node, others, gates))
    if gates.reads_node_again and not shortages and [failure.reason for failure in failures] == [_NODE_AFFINITY]:
        # For labels alone the kubelet reads the node again, and forgets the devices that it counted as there.
        shortages = tuple(_shortages(requests, used, published))
    return Fit(shortages, failures, bound.critical)


def _refused_at_once(bound: BoundPod, node: Node, gates: Gates) -> Rejection | None:
    """The checks that come before everything else, because no eviction would help."""
    if bound.os_label not in (None, _OS):
        return Rejection(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        )
    if bound.os not in ("", _OS):
        return Rejection("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    if bound.strict_groups and gates.checks_supplemental_groups and not node.strict_groups:
        return Rejection(
            "SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"
        )
    return None


# Resources (noderesources/fit.go:fitsRequest)


def _shortages(
    requests: Mapping[str, int], used: Sequence[Mapping[str, int]], capacity: Mapping[str, int]
) -> Iterator[Shortage]:
    allowed = capacity.get(PODS, 0)
    if len(used) + 1 > allowed:
        yield Shortage(PODS, 1, len(used), allowed)
    scalars = sorted(requests.keys() - {PODS, CPU, MEMORY, EPHEMERAL_STORAGE})
    for resource in (CPU, MEMORY, EPHEMERAL_STORAGE, *scalars):
        requested, there = requests.get(resource, 0), capacity.get(resource, 0)
        taken = sum(other.get(resource, 0) for other in used)
        if requested > 0 and requested > there - taken:
            yield Shortage(resource, requested, taken, there)


def _counted(amounts: Mapping[str, MilliQuantity]) -> dict[str, int]:
    """The amounts in the kubelet's units, without resources that it does not count (framework.Resource.Add)."""
    return {
        resource: amount if resource == CPU else value(amount)
        for resource, amount in amounts.items()
        if resource in (PODS, CPU, MEMORY, EPHEMERAL_STORAGE) or _is_scalar(resource)
    }


def _is_scalar(resource: str) -> bool:
    """Source: pkg/scheduler/util/utils.go:IsScalarResourceName."""
    return (
        _is_extended(resource)
        or resource.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in resource
    )


def _is_extended(resource: str) -> bool:
    """Source: pkg/apis/core/v1/helper:IsExtendedResourceName. The API server checks the form of names."""
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def _sanitized(capacity: Mapping[str, int], held: Mapping[str, int] | None) -> Mapping[str, int]:
    """At least as many devices as are allocated already (devicemanager/manager.go:sanitizeNodeAllocatable)."""
    if held is None:
        return capacity
    return {**capacity, **{resource: max(number, capacity.get(resource, 0)) for resource, number in held.items()}}


def _counted_pod(pod: Pod, gates: Gates) -> Pod:
    """The pod without resources of its own where the kubelet ignores those."""
    return pod if pod.resources is None or gates.pod_level_resources else replace(pod, resources=None)


def _without_missing(bound: BoundPod, capacity: Mapping[str, int], gates: Gates) -> Pod:
    """The pod without extended resources that the node does not have: the cluster has them, or a claim provides them.

    Source: predicate.go:removeMissingExtendedResources.
    """
    if not any(
        _is_extended(resource) for container in bound.pod.containers for resource in container.resources.requests
    ):
        return bound.pod

    def counts(container: Container, resource: str) -> bool:
        if container.kind is not ContainerKind.APP and not gates.init_resources_may_be_missing:
            return True
        if gates.extended_resources_by_claim and (container.name, resource) in bound.by_claim:
            return False
        return not _is_extended(resource) or resource in capacity

    return replace(bound.pod, containers=tuple(_only(container, counts) for container in bound.pod.containers))


def missing_resources(bound: BoundPod, there: Mapping[str, int], gates: Gates) -> list[str]:
    """The extended resources that the check does not count, because the node does not have them and no claim does.

    The kubelet relies on the scheduler, which binds no pod to a node without what the pod requests.
    """
    kept = _without_missing(bound, there, gates).containers
    missing = {
        resource: None
        for container, rest in zip(bound.pod.containers, kept, strict=True)
        for resource, amount in container.resources.requests.items()
        if amount and resource not in rest.resources.requests and (container.name, resource) not in bound.by_claim
    }
    return list(missing)


def _only(container: Container, counts: Callable[[Container, str], bool]) -> Container:
    requests = container.resources.requests
    kept = {resource: amount for resource, amount in requests.items() if counts(container, resource)}
    return replace(container, resources=Resources(kept, container.resources.limits))


# Everything else


def _failures(bound: BoundPod, node: Node, others: Iterable[BoundPod], gates: Gates) -> Iterator[Rejection]:
    def failure(name: str, description: str) -> Rejection:
        described = f": {description}" if gates.describes_predicates else ""
        return Rejection(name, f"Predicate {name} failed{described}")

    placement = parsed(bound.placement)
    if not matches_selector(placement, node.labels) or not matches_terms(placement, node.name, node.labels):
        yield failure(_NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector")
    if bound.node not in ("", node.name):
        yield failure("NodeName", "node(s) didn't match the requested node name")
    if _collide(_ports(bound, gates), [port for other in others for port in _ports(other, gates)]):
        yield failure("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    if not bound.static and any(
        taint.effect == NO_EXECUTE and not tolerates(placement.tolerations, taint, compares=gates.compares_taints)
        for taint in node.taints
    ):
        yield failure("TaintToleration", "node(s) had taints that the pod didn't tolerate")


def _ports(bound: BoundPod, gates: Gates) -> list[HostPort]:
    return [port for port in bound.host_ports if gates.counts_ports_of_sidecars or not port.sidecar]


def _collide(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Source: kube-scheduler framework/types.go:HostPortInfo.CheckConflict."""
    used = {_place(port) for port in taken}
    for port in wanted:
        address, protocol, number = _place(port)
        if address == _ANY_ADDRESS:
            if any((protocol, number) == place[1:] for place in used):
                return True
        elif {(address, protocol, number), (_ANY_ADDRESS, protocol, number)} & used:
            return True
    return False


def _place(port: HostPort) -> tuple[str, str, int]:
    return port.ip or _ANY_ADDRESS, port.protocol or _TCP, port.port
