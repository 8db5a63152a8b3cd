"""What would get a refused pod admitted: other amounts, another setting of the kubelet, or the end of a pod there.

Every remedy is verified by replay. Owns which remedies are tried, and their wording. Leaves the search for amounts to
``nearest``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from topomend.decide.nearest.nearest_amounts import NearestAmount, nearest_amounts
from topomend.decide.nearest.varied_amount import with_quantity
from topomend.model.node_state import NodeState, PodAllocation, emptied
from topomend.model.pod import Pod
from topomend.model.quantity import exact_bytes
from topomend.replay import qos
from topomend.replay.admission import admit, is_admitted, release
from topomend.replay.effort import SURVEY_SECONDS, working_on

MAX_ENDS = 4
"""How many pods of the node are tried for whether their end would help: those that hold the most CPUs and memory."""

MAX_AMOUNTS = 3
"""How many amounts a sentence names."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What would get the pod admitted.

    ``amounts`` are the nearest amounts. ``words`` names them and all other remedies: ``would be admitted with 16
    CPUs``.
    """

    amounts: tuple[NearestAmount, ...] = ()
    words: str = ""


def remedy_of(node: NodeState, pod: Pod) -> Remedy:
    """What would get a refused pod admitted by ``node``; empty if no single change does."""
    with working_on(node.name, len(pod.containers), SURVEY_SECONDS):
        amounts = nearest_amounts(node, pod)
        ways = [_with_amount(node, pod, amount) for amount in amounts[:MAX_AMOUNTS]]
        ways += _settings(node, pod)
        ways += [f"once {name} ends" for name in _ending(node, pod)]
    return Remedy(amounts, f"would be admitted {' or '.join(ways)}" if ways else "")


def amount_words(amount: NearestAmount) -> str:
    """``16 CPUs``, ``32Gi of memory``, ``1 vendor.com/gpu``."""
    if amount.resource == qos.CPU:
        return f"{amount.admitted} CPU{'' if amount.admitted == 1 else 's'}"
    if qos.is_memory(amount.resource):
        return f"{exact_bytes(amount.admitted)} of {amount.resource}"
    return f"{amount.admitted} {amount.resource}"


def changed_pod(pod: Pod, amount: NearestAmount) -> Pod:
    """The pod with that amount, as request and as limit, and all else as it was."""
    position = [container.name for container in pod.containers].index(amount.container)
    return with_quantity(pod, position, amount.resource, amount.admitted * 1000)


def _with_amount(node: NodeState, pod: Pod, amount: NearestAmount) -> str:
    where = f" in container {amount.container}" if len(pod.containers) > 1 else ""
    return f"with {amount_words(amount)}{where}{_spans(node, pod, amount)}"


def _spans(node: NodeState, pod: Pod, amount: NearestAmount) -> str:
    """Where more of a resource is the remedy: the NUMA nodes that the container then spans."""
    if amount.admitted < amount.asked:
        return ""
    verdict, _ = admit(node, changed_pod(pod, amount))
    mask = next((placed.affinity or 0 for placed in verdict.containers if placed.name == amount.container), 0)
    return f", which spans the same {mask.bit_count()} NUMA nodes" if mask.bit_count() > 1 else ""


def _settings(node: NodeState, pod: Pod) -> Iterator[str]:
    """Settings of the kubelet with which it would admit the pod: one manager that pins nothing."""
    if node.kubelet.memory_manager_policy == "Static":
        without = replace(node.kubelet, memory_manager_policy="None")
        if is_admitted(replace(node, kubelet=without), pod):
            yield "with Memory Manager None"


def _ending(node: NodeState, pod: Pod) -> Iterator[str]:
    """The first pod of the node whose end alone would help; none where even the empty node refuses."""
    if not node.pods or not is_admitted(emptied(node), pod):
        return
    for holder in sorted(node.pods, key=_amounts_of, reverse=True)[:MAX_ENDS]:
        if is_admitted(release(node, holder.namespace, holder.name), pod):
            yield f"{holder.namespace}/{holder.name}"
            return


def _amounts_of(holder: PodAllocation) -> tuple[int, int, int]:
    containers = holder.containers
    return (
        sum(container.cpus.bit_count() for container in containers),
        sum(len(devices.ids) for container in containers for devices in container.devices),
        sum(block.size for container in containers for block in container.memory),
    )
