"""Fragmentation: the share of what is free that the pods that typically come cannot use.

Of a resource on a node, what is free counts as unusable for a kind of pods if the node's kubelet would refuse a pod of
this kind, by replay of its managers. Each kind counts for its share of what is asked of the resource. A node's unusable
amount is the sum over kinds; the number of a pool is what is unusable on its nodes divided by what is free there: 0
where every typical pod that asks for the resource is admitted wherever some of it is free, 1 where none is anywhere.

It sums over nodes: what a pod would take away is the difference that it makes on its node. Totals are not asked; the
scheduler knows them and sends no pod where they are used up. Owns the number. Leaves the pods to ``typical_pods``.

Source: F. Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent,
USENIX ATC 2023, section 3.1: F_n(M), the expected part of a node's free GPUs that a task drawn from M cannot use. There
a GPU counts if a task fits by its sums; here the kubelet decides, and every resource that it allocates has a number.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from topomend.alignment.requested import admission_of
from topomend.cache.snapshot import Snapshot
from topomend.decide.pools.typical_pods import Mix
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import is_extended
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.fast_path.capacity import free_amounts

_NONE: Mapping[Hashable, bool] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Fragmented:
    """Of one resource: what is free, and what of it typical pods cannot use, in CPUs, bytes or devices."""

    free: int = 0
    unusable: float = 0.0

    @property
    def share(self) -> float | None:
        """The fragmentation, between 0 and 1; None where nothing is free."""
        return min(1.0, self.unusable / self.free) if self.free else None

    def __add__(self, other: "Fragmented") -> "Fragmented":
        return Fragmented(self.free + other.free, self.unusable + other.unusable)

    def __sub__(self, other: "Fragmented") -> "Fragmented":
        return Fragmented(self.free - other.free, self.unusable - other.unusable)


@dataclass(frozen=True)
class NodeAnswers:
    """What is free on a node, by resource, and whether it admits a pod of each kind, by the kind's key."""

    free: Mapping[str, int]
    admits: Mapping[Hashable, bool] = field(default_factory=dict)


class Questions:
    """What each node is asked about a mix. Its answers keep to ``effort``."""

    def __init__(self, mix: Mix, effort: Effort = UNLIMITED) -> None:
        self._asked = {typical.key: (typical, admission_of(typical.pod, effort)) for typical in mix.pods}

    @property
    def replayed(self) -> int:
        """About how many kinds a node is asked by a whole admission, which takes about five times as long."""
        return sum(admission.is_replayed for _, admission in self._asked.values())

    def ask(self, state: NodeState, known: Mapping[Hashable, bool] = _NONE) -> NodeAnswers:
        """Ask a node's kubelet about one pod of each kind to which the answer is not ``known``. Raises Overspent.

        A kubelet that would not start has nothing free.
        """
        free = {resource: total for resource, (total, _) in free_amounts(state).items()}
        return NodeAnswers(
            free, {key: known[key] if key in known else self._admits(state, free, key) for key in self._asked}
        )

    def _admits(self, state: NodeState, free: Mapping[str, int], key: Hashable) -> bool:
        """A kubelet admits a pod that asks for devices of which it knows none; the scheduler sends it none."""
        typical, admission = self._asked[key]
        lacks = any(is_extended(resource) and resource not in free for resource in typical.asked)
        return not lacks and admission.admits(state)


def fragmentation_of(answers: Iterable[NodeAnswers], mix: Mix) -> Mapping[str, Fragmented]:
    """By resource, of all these nodes together. A resource that no typical pod asks for has no number."""
    shares = {resource: mix.shares(resource) for resource in mix.resources}
    totals: dict[str, Fragmented] = {}
    for answer in answers:
        for resource, free in answer.free.items():
            if asked := shares.get(resource):
                refused = sum(share for key, share in asked.items() if not answer.admits[key])
                totals[resource] = totals.get(resource, Fragmented()) + Fragmented(free, free * refused)
    return totals


def overall(found: Mapping[str, Fragmented]) -> float | None:
    """One number of all resources: the mean of their shares; None where nothing that is asked for is free.

    Each resource counts as much as another: a share has no unit, and a pod that gets no GPU is not helped by memory.
    """
    shares = [share for fragmented in found.values() if (share := fragmented.share) is not None]
    return sum(shares) / len(shares) if shares else None


def counts(snapshot: Snapshot, node: str) -> bool:
    """Whether a node counts: it is Ready, takes new pods, and its state is known."""
    described = snapshot.nodes.get(node)
    return described is not None and described.ready and not (described.unschedulable or snapshot.why_unknown(node))
