"""What would get a refused pod admitted: other amounts, another setting of the kubelet, or the end of a pod there.

Every remedy is verified by replay. Owns which remedies are named, their order and their wording: what is at fault comes
first. Leaves the search for amounts to ``nearest``, and the kubelet's settings to ``setting_remedy``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from topomend.explain.nearest.nearest_amounts import NearestAmount, nearest_amounts
from topomend.explain.nearest.varied_amount import memory_step, with_quantity
from topomend.explain.setting_remedy import Admits, SettingRemedy, breaks_kubelet, setting_remedies
from topomend.model.nodes.node_state import NodeState, PodAllocation, emptied
from topomend.model.pods.bound_pod import BoundPod
from topomend.model.pods.pod import Pod, Resources, is_extended
from topomend.model.quantity import exact_bytes, is_whole, value
from topomend.model.verdict import Shortage, Verdict
from topomend.replay import qos
from topomend.replay.admission import admit, each_alone, is_admitted, release
from topomend.replay.effort import SURVEY_SECONDS, UNLIMITED, Effort
from topomend.replay.errors import KUBELET_WOULD_HANG
from topomend.replay.gates import read_gates
from topomend.replay.simulation import Simulation

MAX_ENDS = 4
"""How many pods of the node are tried for whether their end would help: those that hold the most CPUs and memory."""

MAX_AMOUNTS = 3
"""How many amounts a sentence names."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What would get the pod admitted.

    ``amounts`` are the nearest amounts, ``settings`` those of the kubelet that help. ``changes`` are these in words:
    ``with 16 CPUs``; where no amount is at fault and something else helps, no amount. ``ends`` is the pod of the node,
    as namespace/name, whose end alone would help; empty without one.
    """

    amounts: tuple[NearestAmount, ...] = ()
    settings: tuple[SettingRemedy, ...] = ()
    changes: tuple[str, ...] = ()
    ends: str = ""

    @property
    def words(self) -> str:
        """``would be admitted with 16 CPUs or once ns/p ends``; empty without a remedy."""
        ways = (*self.changes, *([f"once {self.ends} ends"] if self.ends else []))
        return f"would be admitted {' or '.join(ways)}" if ways else ""


Ask = Callable[[NodeState, Pod], Verdict]
"""Asks a kubelet about a pod."""


def remedy_of(
    node: NodeState, pod: Pod, verdict: Verdict, *, ask: Ask | None = None, effort: Effort = UNLIMITED
) -> Remedy:
    """What would get a refused pod admitted by ``node``; empty if no single change does.

    ``verdict`` is the refusal. ``ask`` is asked about every change; without one the kubelet's managers alone are.
    Raises Overspent.
    """

    def admits(state: NodeState, changed: Pod) -> bool:
        return ask(state, changed).admitted if ask else is_admitted(state, changed, effort)

    with effort.working_on(node.name, len(pod.containers), SURVEY_SECONDS):
        amounts = tuple(_amounts(node, pod, verdict, ask, effort))
        settings = tuple(setting_remedies(node, pod, verdict, admits))
        by_amount = [_with_amount(node, pod, amount, effort) for amount in amounts[:MAX_AMOUNTS]]
        others = [setting.words for setting in settings]
        if breaks_kubelet(verdict) and not settings:
            others += [f"without {resource}" for resource in _dropped(node, pod, verdict, admits)]
        changes = others if others and breaks_kubelet(verdict) else by_amount + others
        ends = next(_ending(node, pod, admits), "")
    return Remedy(amounts, settings, tuple(changes), ends)


def remedy_in(simulation: Simulation, bound: BoundPod, verdict: Verdict) -> Remedy:
    """What would get a pod admitted that a simulated kubelet refuses: ``verdict`` is its answer, fit check included."""
    return remedy_of(
        simulation.kubelet.state,
        bound.pod,
        verdict,
        ask=lambda changed, pod: simulation.answer_in(changed, replace(bound, pod=pod)),
    )


def _amounts(node: NodeState, pod: Pod, verdict: Verdict, ask: Ask | None, effort: Effort) -> Iterator[NearestAmount]:
    """The nearest amounts that the kubelet admits, those of its totals among it if ``ask`` knows them."""
    if verdict.shortages:

        def ask_managers(state: NodeState, changed: Pod) -> Verdict:
            return admit(state, changed, effort)[0]

        yield from fitting_amounts(node, pod, verdict.shortages, ask or ask_managers, effort)
        return
    for amount in nearest_amounts(node, pod, effort):
        within = within_totals(node, pod, amount, ask, effort) if ask else amount
        if within:
            yield within


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


def _with_amount(node: NodeState, pod: Pod, amount: NearestAmount, effort: Effort) -> str:
    where = f" in container {amount.container}" if len(pod.containers) > 1 else ""
    return f"with {amount_words(amount)}{where}{_spans(node, pod, amount, effort)}"


def _spans(node: NodeState, pod: Pod, amount: NearestAmount, effort: Effort) -> str:
    """Where more of a resource is the remedy: the NUMA nodes that the container then spans."""
    if amount.admitted < amount.asked:
        return ""
    verdict, _ = admit(node, changed_pod(pod, amount), effort)
    mask = next((placed.affinity or 0 for placed in verdict.containers if placed.name == amount.container), 0)
    return f", which spans the same {mask.bit_count()} NUMA nodes" if mask.bit_count() > 1 else ""


def fitting_amounts(
    node: NodeState, pod: Pod, shortages: tuple[Shortage, ...], ask: Ask, effort: Effort
) -> Iterator[NearestAmount]:
    """For each container the most of the one resource that the node lacks in total with which it admits the pod.

    Empty where several are lacking. Only whole CPUs are looked at.
    """
    resources = {shortage.resource for shortage in shortages}
    for container in pod.containers:
        for resource, quantity in sorted(container.resources.requests.items()):
            if resources == {resource} and quantity and is_whole(quantity):
                asked = quantity // 1000
                lower = within_totals(node, pod, NearestAmount(container.name, resource, asked, asked), ask, effort)
                if lower:
                    yield lower


def within_totals(node: NodeState, pod: Pod, amount: NearestAmount, ask: Ask, effort: Effort) -> NearestAmount | None:
    """The amount itself if the kubelet admits it, otherwise the next lower one that fits its totals too.

    None where there is none, or where another resource is lacking.
    """
    verdict = ask(node, changed_pod(pod, amount))
    if verdict.admitted:
        return amount
    if [shortage.resource for shortage in verdict.shortages] != [amount.resource]:
        return None
    [shortage] = verdict.shortages
    excess = shortage.requested + shortage.used - shortage.capacity
    most = _in_steps(amount, amount.admitted - (value(excess) if amount.resource == qos.CPU else excess))
    if most <= 0:
        return None
    lower = replace(amount, admitted=most)
    if ask(node, changed_pod(pod, lower)).admitted:
        return lower
    for near in nearest_amounts(node, changed_pod(pod, lower), effort):
        if (near.container, near.resource) == (amount.container, amount.resource) and near.admitted < most:
            found = replace(amount, admitted=near.admitted)
            return found if ask(node, changed_pod(pod, found)).admitted else None
    return None


def _in_steps(amount: NearestAmount, most: int) -> int:
    """The largest amount up to ``most`` that is so many steps from the asked one; 0 or less where there is none."""
    step = memory_step(amount.resource) if qos.is_memory(amount.resource) else 1
    return amount.asked - -(-(amount.asked - most) // step) * step if step else 0


def _dropped(node: NodeState, pod: Pod, verdict: Verdict, admits: Admits) -> Iterator[str]:
    """The kinds of devices without any of which the kubelet would not compare hints for so long."""
    if verdict.reason != KUBELET_WOULD_HANG:
        return
    for resource in sorted({name for container in pod.containers for name in container.resources.limits}):
        if is_extended(resource) and admits(node, _without(pod, resource)):
            yield resource


def _without(pod: Pod, resource: str) -> Pod:
    """The pod without any request for the resource."""
    containers = []
    for container in pod.containers:
        requests, limits = (
            {name: amount for name, amount in amounts.items() if name != resource}
            for amounts in (container.resources.requests, container.resources.limits)
        )
        containers.append(replace(container, resources=Resources(requests, limits)))
    return replace(pod, containers=tuple(containers))


def _ending(node: NodeState, pod: Pod, admits: Admits) -> Iterator[str]:
    """The first pod of the node whose end alone would help; none where even the empty node refuses a container."""
    if not node.pods or not all(admits(emptied(node), each) for each in each_alone(pod, read_gates(node.kubelet))):
        return
    for holder in sorted(node.pods, key=_amounts_of, reverse=True)[:MAX_ENDS]:
        if admits(release(node, holder.namespace, holder.name), pod):
            yield f"{holder.namespace}/{holder.name}"
            return


def _amounts_of(holder: PodAllocation) -> tuple[int, int, int]:
    containers = holder.containers
    return (
        sum(container.cpus.bit_count() for container in containers),
        sum(len(devices.ids) for container in containers for devices in container.devices),
        sum(block.size for container in containers for block in container.memory),
    )
