"""For each amount of a refused pod the nearest one with which the node would admit it.

Owns which amounts are searched at all: where the pod fails whatever an amount is, it is not. Leaves the search for one
amount to ``search``.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

from topomend.explain.nearest.merge_unit import Unit
from topomend.explain.nearest.refused_pod import RefusedPod
from topomend.explain.nearest.search import Search
from topomend.explain.nearest.varied_amount import VariedAmount, varied_amounts
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.replay import qos
from topomend.replay.admission import allocation_of
from topomend.replay.container_manager import start
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.errors import KubeletBreaks
from topomend.replay.topology.merge import TABLED_NODES
from topomend.replay.topology.policy_names import BEST_EFFORT, RESTRICTED


@dataclass(frozen=True, slots=True)
class NearestAmount:
    """One amount that would have the pod admitted: in CPUs, bytes or devices.

    ``admitted`` is the amount closest to ``asked``, more or less than it; of two that are equally close the smaller.
    """

    container: str
    resource: str
    asked: int
    admitted: int


def nearest_amounts(node: NodeState, pod: Pod, effort: Effort = UNLIMITED) -> tuple[NearestAmount, ...]:
    """For each amount of a refused pod whose change alone would have it admitted, the nearest such amount.

    In the order of containers and of their resources by name. Empty where no single change helps, for a pod that
    already holds something on the node, where the kubelet would not start, and beyond 17 NUMA nodes under restricted
    and best-effort.
    """
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str) or allocation_of(node, pod.namespace, pod.name, pod.uid) is not None:
        return ()
    policy = node.kubelet.topology_manager_policy
    if policy in {RESTRICTED, BEST_EFFORT} and kubelet.numa.nodes.bit_count() > TABLED_NODES:
        return ()
    classed = replace(pod, qos_class=qos.qos_class(pod, kubelet.gates))
    amounts = varied_amounts(node, kubelet, classed)
    try:
        searches = _Searches(RefusedPod(node, kubelet, classed, effort))
        results = [(amount, searches.nearest(amount)) for amount in amounts if searches.may_help(amount)]
    except KubeletBreaks:  # whatever is asked, as where a NUMA node does not fit the kubelet's masks
        return ()
    return tuple(
        NearestAmount(amount.container, amount.resource, amount.asked, admitted)
        for amount, admitted in results
        if admitted is not None
    )


@dataclass
class _Searches:
    """The searches for one refused pod."""

    refused: RefusedPod
    _fresh_units: dict[int | None, Unit] = field(default_factory=dict)
    _units: dict[int | None, Unit | None] = field(default_factory=dict)

    def may_help(self, amount: VariedAmount) -> bool:
        """Whether nothing else than the amount refuses the pod for sure."""
        return (
            self._lacking <= {amount.resource}
            and self._hopeless <= {amount.position}
            and self.refused.refusing_providers <= {amount.provider}
        )

    def nearest(self, amount: VariedAmount) -> int | None:
        """The nearest amount that is admitted, None where there is none."""
        search = self._begin(amount)
        if search is None:
            return None
        below = search.first_admitted(-1, amount.first)
        bound = amount.last if below is None else min(amount.last, -below - 1)
        above = search.first_admitted(1, bound)
        nearest = below if above is None else above
        return None if nearest is None else amount.at(nearest)

    def _begin(self, amount: VariedAmount) -> Search | None:
        """The search, None where the pod fails whatever the amount is."""
        unit = self._unit_at(amount.position)
        if unit is None:
            return None
        container = self.refused.pod.containers[amount.position]
        if self.refused.by_container and not unit.could_allocate(container, amount):
            return None
        common = unit.common(amount)
        return None if common == {} else Search(self.refused, amount, unit, common)

    def _unit_at(self, position: int) -> Unit | None:
        """What is merged with the container at ``position``; None where the pod fails before that."""
        merged = self._merged_with(position)
        if merged not in self._units:
            providers = self.refused.before(position)
            if providers is self.refused.fresh:
                self._units[merged] = self._fresh_unit(merged)
            else:
                self._units[merged] = None if providers is None else Unit(self.refused, providers, merged)
        return self._units[merged]

    def _merged_with(self, position: int) -> int | None:
        """The position of what is merged: the container's own; None for the whole pod in scope pod."""
        return position if self.refused.by_container else None

    def _fresh_unit(self, position: int | None) -> Unit:
        """A container, or the pod, as if no container stood before it."""
        if position not in self._fresh_units:
            self._fresh_units[position] = Unit(self.refused, self.refused.fresh, position)
        return self._fresh_units[position]

    @cached_property
    def _lacking(self) -> frozenset[str]:
        """The resources of which the node has too little free in all."""
        return frozenset(self.refused.fresh.lacks(self.refused.pod))

    @cached_property
    def _hopeless(self) -> frozenset[int]:
        """The containers that fail by themselves, whatever the others are given; two of them if there are more.

        Not known where they may be given reserved CPUs, and for a pod with resources of its own.
        """
        refused = self.refused
        if refused.pod.resources is not None or refused.may_take_reserved_cpus:
            return frozenset()
        failing = (
            position
            for position, container in enumerate(refused.pod.containers)
            if not self._fresh_unit(self._merged_with(position)).could_allocate(container)
            or (refused.by_container and not self._fresh_unit(position).could_merge())
        )
        return frozenset(islice(failing, 2))  # of two, neither amount helps
