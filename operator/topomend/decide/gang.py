"""Nodes for all pods of a group at once, or for none: pods that are useful only together (gang scheduling).

Each pod is placed beside those that were placed before it, the largest first, on one node each: a pod that might go to
one of several nodes would need room on all of them. Owns the choice for the group. Leaves that of a single pod to
``plan``, and when a group is complete to ``reconcile/gated/gangs``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from topomend.cache.changes import PodAssumed, apply
from topomend.cache.snapshot import Snapshot
from topomend.decide.feasibility import NO_EXCLUDED_NODES, ExcludedNodes, hostnames_without_agent
from topomend.decide.plan import RelaunchOn, Wait, choose
from topomend.decide.queue import order as queue_order
from topomend.decide.survey import Surveys
from topomend.model.cluster import WatchedPod
from topomend.model.narrowing import Narrowing
from topomend.model.pod import requests_of
from topomend.replay.effort import UNLIMITED, Effort


@dataclass(frozen=True)
class Placed:
    """A pod of the group, and what to narrow it to. ``node`` is empty where no agent knows the nodes that it gets."""

    pod: WatchedPod
    node: str
    narrowing: Narrowing
    reason: str


@dataclass(frozen=True)
class Unplaced:
    """The group has to wait for ``pod``, which no node admits beside the others."""

    pod: WatchedPod
    wait: Wait


def choose_for_all(  # noqa: PLR0913  what a choice depends on
    snapshot: Snapshot,
    pods: Sequence[WatchedPod],
    reservations: Sequence[queue_order.Reservation] = (),
    excluded_nodes: Mapping[str, ExcludedNodes] | None = None,
    *,
    surveys: Surveys | None = None,
    effort: Effort = UNLIMITED,
    for_one: Callable[[], Effort] = lambda: UNLIMITED,
) -> tuple[Placed, ...] | Unplaced:
    """A node for each of ``pods``, the gated pods of one group, or the first one that gets none.

    ``excluded_nodes`` are by the pod's uid, and as in ``plan.choose``, as ``surveys`` are. ``effort`` is that of the
    whole choice, and ``for_one`` begins that of the choice for one pod. Raises Overspent, TurnOver.
    """
    excluded_nodes = excluded_nodes or {}
    first = min(pods, key=lambda pod: pod.order)
    reserved = partial(queue_order.reserved_numa_nodes, snapshot, first, reservations)
    placed: list[Placed] = []
    for pod in sorted(pods, key=_largest_first):
        excluded = excluded_nodes.get(pod.uid, NO_EXCLUDED_NODES)
        effort.end_turn()
        choice = choose(snapshot, pod, None, excluded, reserved, most=1, surveys=surveys, effort=for_one())
        if isinstance(choice, RelaunchOn):
            node = choice.nodes[0]
            placed.append(Placed(pod, node, choice.narrowing, choice.reason))
            snapshot = apply(snapshot, PodAssumed(pod.pod, (node,), 0.0))
            continue
        hostnames = hostnames_without_agent(snapshot, pod.pod, choice.diagnosis)
        if not hostnames:
            count = f"{len(placed)} of the {len(pods)} pods that wait together fit; {pod.name}: {choice.reason}"
            return Unplaced(pod, Wait(choice.diagnosis, count if len(pods) > 1 else choice.reason))
        placed.append(Placed(pod, "", Narrowing(hostnames), choice.reason))
    return tuple(placed)


def _largest_first(pod: WatchedPod) -> tuple[int, str]:
    """The sort key: pods that ask for many CPUs fit fewest nodes, and pods of one size have their answers in common."""
    return -requests_of(pod.pod).get("cpu", 0), pod.name
