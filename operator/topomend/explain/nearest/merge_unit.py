"""What is merged at once: a container, or the whole pod in scope pod. Whether it could be, but for one amount.

Owns the conditions that all amounts of one resource have in common. Leaves those of a single amount to ``search``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import and_

from topomend.explain.nearest.refused_pod import RefusedPod
from topomend.explain.nearest.varied_amount import VariedAmount
from topomend.model.bitmask import NUMAMask, members
from topomend.model.pods.pod import Container, Pod
from topomend.replay.cpu import static as cpu_static
from topomend.replay.devices.manager import DeviceManager
from topomend.replay.errors import KubeletBreaks
from topomend.replay.memory import static as memory_static
from topomend.replay.scopes import Manager, Providers
from topomend.replay.topology.hints import Answer, Family, Hints, ResourceOffer
from topomend.replay.topology.merge import every_preferred_mask
from topomend.replay.topology.policy_names import BEST_EFFORT, NONE, SINGLE_NUMA_NODE


@dataclass
class Unit:
    """What is merged at once: a container (``position``), or the whole pod. ``providers`` stand right before it.

    ``refused_needs`` are what the whole pod may not need of one resource: the merge or another manager refuses it then.
    """

    refused: RefusedPod
    providers: Providers
    position: int | None
    _common: dict[tuple[str, str], Mapping[int, list[NUMAMask]] | None] = field(default_factory=dict)
    _preferred: dict[int, set[NUMAMask]] = field(default_factory=dict)
    refused_needs: set[tuple[str, int]] = field(default_factory=set)

    @property
    def container(self) -> Container | None:
        """The container that is merged, None for the whole pod."""
        return None if self.position is None else self.refused.pod.containers[self.position]

    def offers(self, pod: Pod, provider: str = "") -> list[ResourceOffer]:
        """The offers for this container of ``pod`` or all of it: of one manager, or of all."""
        offers: list[ResourceOffer] = []
        for name, manager in self.providers.managers().items():
            if provider in {"", name}:
                offers += self._asked(manager, pod)
        return offers

    def _asked(self, manager: Manager, pod: Pod) -> list[ResourceOffer]:
        if isinstance(manager, DeviceManager):
            return manager.pod_hints(pod) if self.position is None else manager.hints(pod.containers[self.position])
        return manager.pod_hints(pod) if self.position is None else manager.hints(pod, pod.containers[self.position])

    def need(self, pod: Pod, amount: VariedAmount) -> tuple[str, int] | None:
        """What the whole ``pod`` needs of the amount's resource; None for a container, and for what is not merged."""
        if self.position is not None:
            return None
        offers = self.offers(pod, amount.provider)
        return next(((offer.resource, offer.requested) for offer in offers if is_offer_of(offer, amount)), None)

    @cached_property
    def _all(self) -> list[ResourceOffer] | None:
        """All offers as the pod is, None where asking for them breaks the kubelet."""
        try:
            return self.offers(self.refused.pod)
        except KubeletBreaks:
            return None

    def could_merge(self) -> bool:
        """Whether the policy could admit the merge."""
        common = self.common()
        return common is None or bool(common)

    def common(self, without: VariedAmount | None = None) -> Mapping[int, list[NUMAMask]] | None:
        """The masks that the policy could admit and that all resources but that of ``without`` offer and prefer.

        By width; None where the policy admits whatever is merged.
        """
        key = (without.provider, without.resource) if without else ("", "")
        if key not in self._common:
            masks = self._common_masks(without)
            self._common[key] = None if masks is None else _by_width(masks)
        return self._common[key]

    def _common_masks(self, without: VariedAmount | None) -> Iterable[NUMAMask] | None:
        policy, numa = self.refused.policy, self.refused.kubelet.numa
        if policy in {NONE, BEST_EFFORT}:
            return None
        others = [offer for offer in self._all or () if not is_offer_of(offer, without)]
        if any(offer.offer is Answer.IMPOSSIBLE for offer in others):
            return []
        if not self.memory_is_sure:
            others = [offer for offer in others if offer.provider != memory_static.PROVIDER]
        hints = _distinct(others)
        if policy == SINGLE_NUMA_NODE:
            nodes = reduce(and_, (offer.preferred_nodes() for offer in hints), numa.nodes)
            return [1 << number for number in members(nodes)]
        return reduce(and_, map(self._preferred_masks, hints or [Hints((Family(numa.nodes, ()),))]))

    def _preferred_masks(self, hints: Hints) -> set[NUMAMask]:
        masks = self._preferred.get(id(hints))
        if masks is None:
            masks = every_preferred_mask(self.refused.kubelet.numa, hints, self.refused.effort)
            self._preferred[id(hints)] = masks
        return masks

    @cached_property
    def memory_is_sure(self) -> bool:
        """Whether memory that has no hint is never given.

        It could be where a NUMA node of a group may be used on its own. Then the other nodes of the group say so too,
        unless the groups contradict each other, or the kubelet is too old to check them. Under best-effort a container
        may be put on one NUMA node of a group, and the next one finds groups that contradict each other.
        """
        memory = self.providers.memory
        if memory is None:
            return True
        is_after_others = self.position is not None and self.position > 0 and self.providers is self.refused.fresh
        if is_after_others and self.refused.policy == BEST_EFFORT:
            return False
        nodes = memory.machine_state.nodes
        grouped = [page for page in nodes.values() if page.cells.bit_count() > 1]
        return self.refused.kubelet.gates.refuses_mixed_groups and all(
            page.assignments
            and all(
                other.cells == page.cells and other.assignments
                for number, other in nodes.items()
                if page.cells >> number & 1
            )
            for page in grouped
        )

    def could_allocate(self, container: Container, without: VariedAmount | None = None) -> bool:
        """Whether the managers have enough in all for the container, the amount ``without`` left out."""
        varied = without.provider if without else ""
        if self._all is None:
            return False
        if varied != cpu_static.PROVIDER and not self._could_take_cpus(container):
            return False
        if not self.providers.devices.has_enough(container, without.resource if without else ""):
            return False
        return varied == memory_static.PROVIDER or self._could_take_memory()

    def _could_take_cpus(self, container: Container) -> bool:
        cpu, pod = self.providers.cpu, self.refused.pod
        return cpu is None or (cpu.has_enough(pod, container) and not cpu.divides_cores(pod, container))

    def _could_take_memory(self) -> bool:
        """A container whose memory has no hint is refused at its allocation."""
        answers = [offer.offer for offer in self._all or () if offer.provider == memory_static.PROVIDER]
        sure = self.position is not None and self.memory_is_sure
        return not sure or Answer.NO_PREFERENCE not in answers


def _by_width(masks: Iterable[NUMAMask]) -> dict[int, list[NUMAMask]]:
    by_width: dict[int, list[NUMAMask]] = {}
    for mask in masks:
        by_width.setdefault(mask.bit_count(), []).append(mask)
    return by_width


def is_offer_of(offer: ResourceOffer, amount: VariedAmount | None) -> bool:
    """Whether the offer changes with the amount: all kinds of memory are offered together."""
    if amount is None or offer.provider != amount.provider:
        return False
    return offer.provider == memory_static.PROVIDER or offer.resource == amount.resource


def _distinct(offers: list[ResourceOffer]) -> list[Hints]:
    """The hints among the offers, without those that all kinds of memory repeat."""
    hints = [offer.offer for offer in offers if isinstance(offer.offer, Hints)]
    return list({id(offer): offer for offer in hints}.values())
