"""Whether what a cause says of a refusal is true.

Checks the sentence against the hints that were merged, mask by mask, and as a counterfactual: without the reason that
it names, replay does not refuse the pod for it. Knows nothing of how the cause was found.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from verify.nearest.counterfactual import RefusedPod
from verify.nearest.remedies import waits

from topomend.explain.cause import Cause, Kind
from topomend.explain.explanation import cause_of
from topomend.model.bitmask import NUMAMask, mask_of, members, parse_id_list
from topomend.model.nodes.node_state import NodeState, NUMANodeMemory, emptied
from topomend.model.pods.pod import ContainerKind, Pod
from topomend.model.quantity import format_bytes
from topomend.model.verdict import Verdict
from topomend.replay import qos
from topomend.replay.admission import admit, is_admitted, machine_state_of, providers_of, release, reserved_cpus
from topomend.replay.container_manager import start
from topomend.replay.errors import KubeletBreaks
from topomend.replay.scopes import Admission, Scope
from topomend.replay.topology.hints import Hints, ResourceOffer

_SHORT = {Kind.NOT_ENOUGH_FREE, Kind.LARGER_THAN_A_NUMA_NODE, Kind.RESERVED_CPUS, Kind.RESERVED_MEMORY}


@dataclass(frozen=True)
class _Recorded(Scope):
    """A Topology Manager that keeps the offers of its last merge."""

    last: list[list[ResourceOffer]] = field(default_factory=list)

    def _merge(self, offers: Sequence[ResourceOffer], container: str, admission: Admission) -> bool:
        self.last[:] = [list(offers)]
        return super()._merge(offers, container, admission)


@dataclass(frozen=True)
class _Refusal:
    """A refused pod, its cause, and the offers of the merge that was refused; none where none was."""

    state: NodeState
    pod: Pod
    verdict: Verdict
    cause: Cause
    offers: Sequence[ResourceOffer]
    nodes: NUMAMask

    @property
    def policy(self) -> str:
        return self.state.kubelet.topology_manager_policy

    def hinted(self) -> list[tuple[ResourceOffer, Hints]]:
        return [(offer, offer.offer) for offer in self.offers if isinstance(offer.offer, Hints)]

    def preferred(self, hints: Hints) -> set[NUMAMask]:
        """All masks that are offered, preferred and could be admitted by the policy."""
        count = self.nodes.bit_count()
        widths = [1] if self.policy == "single-numa-node" else range(1, count + 1)
        if hints.width is not None and hints.sockets is None:
            widths = [width for width in widths if width == hints.width]
        masks = (mask_of(some) for width in widths for some in combinations(members(self.nodes), width))
        return {mask for mask in masks if hints.prefers(mask) and hints.offers(mask)}


def wrong_causes(refused: RefusedPod) -> tuple[Kind, list[str]]:
    """The kind of the refusal's cause, and what is false in its sentence."""
    state, pod = refused.state, refused.pod
    verdict, _ = admit(state, pod)
    cause = cause_of(verdict, state, pod)
    offers, nodes = _refused_offers(state, pod)
    refusal = _Refusal(state, pod, verdict, cause, offers if verdict.merges else (), nodes)
    return cause.kind, [f"{cause.kind.value}: {fault}: {cause.text}" for fault in _faults(refusal)]


def _refused_offers(state: NodeState, pod: Pod) -> tuple[Sequence[ResourceOffer], NUMAMask]:
    kubelet, settings = start(state.machine, state.kubelet), state.kubelet
    if isinstance(kubelet, str):
        return (), 0
    providers = providers_of(kubelet, state, None)
    scope = _Recorded(settings.topology_manager_policy, kubelet.numa, kubelet.gates, providers, kubelet.strategy)
    try:
        admission = scope.admit(
            replace(pod, qos_class=qos.qos_class(pod, kubelet.gates)), settings.topology_manager_scope
        )
    except KubeletBreaks:
        return (), kubelet.numa.nodes
    refused = admission.merges and not admission.merges[-1].admitted
    return (scope.last[0] if refused else ()), kubelet.numa.nodes


def _faults(refusal: _Refusal) -> Iterator[str]:
    kind, text = refusal.cause.kind, refusal.cause.text
    if "its resources prefer different numbers" in text:
        yield from _of_widths(refusal)
    if " only" in text and " fits NUMA " in text:
        yield from _of_places(refusal)
    for check in _CHECKS.get(kind, ()):
        yield from check(refusal)
    if "NUMA nodes could hold" in text:
        yield "a sentence of last resort"


def _of_size(refusal: _Refusal) -> Iterator[str]:
    """What is too large for the empty node is refused there; what is not, is not refused for the same reason."""
    empty = emptied(refusal.state)
    if "even empty" in refusal.cause.text:
        if is_admitted(empty, refusal.pod):
            yield "the empty node admits it"
    elif refusal.cause.kind is Kind.NOT_ENOUGH_FREE and refusal.offers and "before it took" not in refusal.cause.text:
        yield from _still_named(refusal, empty, refusal.pod, "when empty")


def _of_reserved(refusal: _Refusal) -> Iterator[str]:
    """The unreserved CPUs that are said are those of the NUMA nodes that have the most."""
    reserved, cpus = reserved_cpus(refusal.state), refusal.state.machine.cpus_of_numa_node
    unreserved = sorted(((local & ~reserved).bit_count() for local in cpus.values()), reverse=True)
    said = re.findall(r"(it|(\d+) NUMA nodes) would have enough .*?; (\d+) are not reserved", refusal.cause.sentence)
    if not said or any(sum(unreserved[: int(width or 1)]) != int(number) for _, width, number in said):
        yield f"unreserved are {unreserved}"


def _of_whole_cores(refusal: _Refusal) -> Iterator[str]:
    kubelet = refusal.state.kubelet
    options = {name: value for name, value in kubelet.cpu_manager_policy_options.items() if name != "full-pcpus-only"}
    without = replace(refusal.state, kubelet=replace(kubelet, cpu_manager_policy_options=options))
    if admit(without, refusal.pod)[0].reason == "SMTAlignmentError":
        yield "refused so without full-pcpus-only"


def _of_scope(refusal: _Refusal) -> Iterator[str]:
    scoped = replace(refusal.state.kubelet, topology_manager_scope="container")
    if not is_admitted(replace(refusal.state, kubelet=scoped), refusal.pod):
        yield "scope container refuses it"


def _amount(offer: ResourceOffer) -> str:
    return format_bytes(offer.requested) if qos.is_memory(offer.resource) else str(offer.requested)


def _of_widths(refusal: _Refusal) -> Iterator[str]:
    widths = []
    for offer, hints in refusal.hinted():
        mine = {mask.bit_count() for mask in refusal.preferred(hints)}
        widths.append(mine)
        said = f"{offer.resource} ({_amount(offer)}) prefers {' or '.join(map(str, sorted(mine)))}"
        if not re.search(re.escape(said) + r"[,;]", refusal.cause.text):
            yield f"it should say {said!r}"
    if not widths or set.intersection(*widths):
        yield f"widths {widths}"


_PLACE = re.compile(r"([\w./-]+) fits NUMA ([\d,+ -]+(?: or [\d+]+)*)( or others| or several together)? only")


def _of_places(refusal: _Refusal) -> Iterator[str]:
    preferred = {offer.resource: (offer, refusal.preferred(hints)) for offer, hints in refusal.hinted()}
    said = _PLACE.findall(refusal.cause.text)
    if not said:
        yield "no place is named"
    for resource, places, more in said:
        offer, masks = preferred[resource]
        named = (
            {mask_of(map(int, place.split("+"))) for place in places.split(" or ")}
            if "+" in places or " or " in places
            else {1 << node for node in members(parse_id_list(places))}
        )
        real = masks or {1 << node for node, free in offer.free if free >= offer.requested}
        if (named - real) or (not more and real - named):
            yield f"{resource} fits {sorted(real)}, said {sorted(named)}"
    if all(preferred[resource][1] for resource, _, _ in said):
        sets = [preferred[resource][1] for resource, _, _ in said]
        if set.intersection(*sets):
            yield "the named resources agree on some"


_LACKS = re.compile(
    r"([\w./-]+) requests (\S+) and (fits no NUMA node|prefers (\d+) NUMA nodes and fits no \d+ of them): free [^;]*?"
    r"(?:, lacks (\S+?))?(?:; |$)(unhealthy)?"
)


def _of_shortage(refusal: _Refusal) -> Iterator[str]:
    """No mask of the said width is offered, and none has the request free by the counts that are said."""
    for resource, _, words, width, lacks, unhealthy in _LACKS.findall(refusal.cause.sentence):
        offer = next(offer for offer in refusal.offers if offer.resource == resource)
        wanted = int(width) if width else 1
        if isinstance(offer.offer, Hints):
            masks = [mask_of(some) for some in combinations(members(refusal.nodes), wanted)]
            if any(offer.offer.offers(mask) for mask in masks):
                yield f"{resource} {words}, yet some is offered"
        amounts = offer.free_sets or tuple((1 << node, amount) for node, amount in offer.free)
        most = max(
            (
                sum(amount for mask, amount in amounts if mask & mask_of(some))
                for some in combinations(members(refusal.nodes), min(wanted, refusal.nodes.bit_count()))
            ),
            default=0,
        )
        missing = offer.requested - most
        said = format_bytes(missing) if qos.is_memory(resource) else str(missing)
        if not unhealthy and (lacks or "0") != (said if missing > 0 else "0"):
            yield f"{resource} lacks {said}, said {lacks or 'nothing'}"
    if "more NUMA nodes together have it" in refusal.cause.sentence:
        before = refusal.cause.sentence.partition("more NUMA nodes together have it")[0]
        name = before.rpartition(" requests ")[0].rpartition(" ")[2]
        offer = next(offer for offer in refusal.offers if offer.resource == name)
        if not isinstance(offer.offer, Hints):
            yield f"{offer.resource} is offered nowhere"


def _still_named(refusal: _Refusal, state: NodeState, pod: Pod, when: str) -> Iterator[str]:
    """Whether the same resource is refused in the same container and for the same reason all the same."""
    verdict, _ = admit(state, pod)
    if verdict.admitted:
        return
    cause = cause_of(verdict, state, pod)
    same = (cause.kind, cause.container) == (refusal.cause.kind, refusal.cause.container)
    if same and set(cause.resources) & set(refusal.cause.resources) and "its own containers" not in cause.text:
        yield f"the same {when}"


def _of_pinned_memory(refusal: _Refusal) -> Iterator[str]:
    """Were the same memory taken without being pinned, the pod would not be refused for it."""
    if "its own containers" not in refusal.cause.text:
        yield from _still_named(refusal, unpinned(refusal.state), refusal.pod, "without pinned memory")
    state = refusal.state
    names = list(waits(refusal.cause.text))
    for name in names:
        state = release(state, *name.split("/"))
    if names and " more" not in refusal.cause.text and not is_admitted(state, refusal.pod):
        yield "refused when the named pods have ended"


def unpinned(state: NodeState) -> NodeState:
    """The node on which as much memory is taken everywhere, and no NUMA node counts as pinned."""
    kubelet = start(state.machine, state.kubelet)
    assert not isinstance(kubelet, str)
    assert kubelet.memory is not None
    memory = (
        NUMANodeMemory(node.numa_node, 0, 1 << node.numa_node, node.reserved)
        for node in machine_state_of(kubelet.memory, state).saved()
    )
    return replace(state, memory=tuple(memory))


def _of_init_containers(refusal: _Refusal) -> Iterator[str]:
    """Without its init containers the pod would not be refused for it; one alone keeps its amounts otherwise."""
    containers = tuple(each for each in refusal.pod.containers if each.kind is not ContainerKind.INIT)
    if refusal.cause.container not in {"", *(each.name for each in containers)}:
        position = [each.name for each in refusal.pod.containers].index(refusal.cause.container)
        containers = refusal.pod.containers[position:]
    yield from _same_refusal(refusal, replace(refusal.pod, containers=containers))


def _same_refusal(refusal: _Refusal, pod: Pod) -> Iterator[str]:
    verdict, _ = admit(refusal.state, pod)
    if verdict.admitted:
        return
    cause = cause_of(verdict, refusal.state, pod)
    same = cause.container == refusal.cause.container and set(cause.resources) & set(refusal.cause.resources)
    if same and (cause.kind in _SHORT or cause.kind is Kind.INIT_CONTAINERS):
        yield f"without init containers refused as well ({cause.kind.value})"


_CHECKS: dict[Kind, Sequence[Callable[[_Refusal], Iterator[str]]]] = {
    Kind.NOT_ENOUGH_FREE: (_of_shortage, _of_size),
    Kind.LARGER_THAN_A_NUMA_NODE: (_of_shortage, _of_size),
    Kind.RESERVED_CPUS: (_of_shortage, _of_reserved),
    Kind.RESERVED_MEMORY: (_of_shortage,),
    Kind.PREFERRED_BY_NONE: (_of_shortage,),
    Kind.MEMORY_GROUP: (_of_pinned_memory,),
    Kind.INIT_CONTAINERS: (_of_init_containers,),
    Kind.PART_OF_A_CORE: (_of_whole_cores,),
    Kind.NO_FREE_CORES: (_of_whole_cores,),
    Kind.POD_SCOPE: (_of_scope,),
}
