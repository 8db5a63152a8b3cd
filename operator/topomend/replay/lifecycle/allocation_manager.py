"""The whole admission of a pod by a kubelet: its resource managers first, then its fit check.

The order is that of the kubelet's admit handlers, in every version from 1.30 on: what the managers refuse, the fit
check does not see (kubelet.go:NewMainKubelet). Leaves out the handlers that look at neither resources nor the node's
object: evictions under pressure and sysctls before, AppArmor, features and a shutdown after.
Source: pkg/kubelet/allocation/allocation_manager.go:canAdmitPod.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState, allocations
from topomend.model.pods.bound_pod import BoundPod
from topomend.model.verdict import Verdict
from topomend.replay.admission import admit, allocation_of, release
from topomend.replay.errors import MESSAGE_PREFIX
from topomend.replay.gates import read_gates
from topomend.replay.lifecycle.predicate import Fit, check

EVICTS = "the kubelet evicts other pods for a critical pod, if that makes enough room"
NAMES_ONE = "the kubelet names is chance"
"""The remarks on a refusal by the fit check: the first, and the end of the second."""


@dataclass(frozen=True)
class Kubelet:
    """A kubelet: what its managers know, its Node object, and the pods that it has admitted."""

    state: NodeState
    node: Node
    pods: tuple[BoundPod, ...] = ()


def can_admit_pod(kubelet: Kubelet, bound: BoundPod) -> tuple[Verdict, Kubelet]:
    """The kubelet's answer to a pod that is bound to its node, and the kubelet after it.

    As ``admit`` it always answers. A pod that does not fit leaves nothing of what the managers have allocated to it.
    """
    others = tuple(other for other in kubelet.pods if other.key != bound.key)
    verdict, state = admit(kubelet.state, bound.pod)
    if not verdict.admitted:
        return verdict, Kubelet(state, kubelet.node, others)
    gates = read_gates(state.kubelet)
    fit = check(bound, kubelet.node, others, gates, _held(state, bound))
    if fit.rejection is None:
        return verdict, Kubelet(state, kubelet.node, (*others, bound))
    if state.initial_containers is None:  # until it is ready it purges nothing
        state = release(state, *bound.key)
    return _refused(verdict, fit), Kubelet(state, kubelet.node, others)


def end(kubelet: Kubelet, namespace: str, name: str) -> Kubelet:
    """The kubelet after the pod has ended. An unknown pod changes nothing."""
    others = tuple(other for other in kubelet.pods if other.key != (namespace, name))
    return Kubelet(release(kubelet.state, namespace, name), kubelet.node, others)


def _held(state: NodeState, bound: BoundPod) -> Mapping[str, int] | None:
    """How many devices of each resource are allocated; None where the pod has none (UpdatePluginResources)."""
    own = allocation_of(state, bound.pod.namespace, bound.pod.name, bound.pod.uid)
    if own is None or not any(container.devices for container in own.containers):
        return None
    ids: dict[str, set[str]] = {}
    for container in allocations(state.pods):
        for devices in container.devices:
            ids.setdefault(devices.resource, set()).update(devices.ids)
    return {resource: len(held) for resource, held in ids.items()}


def _refused(admitted: Verdict, fit: Fit) -> Verdict:
    rejection = fit.rejection
    assert rejection is not None  # noqa: S101 - the caller has asked
    return replace(
        admitted,
        admitted=False,
        reason=rejection.reason,
        message=MESSAGE_PREFIX + rejection.message,
        containers=(),
        merges=(),
        unmodelled=(*admitted.unmodelled, *_remarks(fit)),
        shortages=fit.shortages,
    )


def _remarks(fit: Fit) -> Iterator[str]:
    if fit.critical and not fit.failures:
        yield EVICTS
    if fit.left_to_chance:
        yield f"which of {', '.join(fit.left_to_chance)} {NAMES_ONE}"
