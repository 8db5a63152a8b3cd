"""Nodes for all pods of a group at once, or for none: pods that are useful only together (gang scheduling).

Each pod is placed beside those that were placed before it, the largest first, on one node each: a pod that might go to
one of several nodes would need room on all of them. Owns the choice for the group. Leaves that of a single pod to
``plan``, and when a group is complete to ``reconcile/gated/gangs``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from topomend.cache.changes import PodAssumed, apply
from topomend.cache.snapshot import Snapshot
from topomend.decide.claims.beside_devices import KnownDevices
from topomend.decide.diagnosis.feasibility import NO_EXCLUDED_NODES, ExcludedNodes, hostnames_without_agent
from topomend.decide.diagnosis.survey import Surveys
from topomend.decide.plan import RelaunchOn, Wait, choose
from topomend.decide.queue import order as queue_order
from topomend.model.devices.device_supply import Part
from topomend.model.narrowing import Narrowing
from topomend.model.pods.pod import requests_of
from topomend.model.pods.scheduling import WatchedPod
from topomend.replay.effort import UNLIMITED, Effort


@dataclass(frozen=True)
class Placed:
    """A pod of the group, and what to narrow it to. ``node`` is empty where no agent knows the nodes that it gets.

    ``parts`` are the devices there that its claims may get beside its CPUs.
    """

    pod: WatchedPod
    node: str
    narrowing: Narrowing
    reason: str
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Unplaced:
    """The group has to wait for ``pod``, which no node admits ``beside`` the others that were placed before it."""

    pod: WatchedPod
    wait: Wait
    beside: tuple[Placed, ...] = ()


def choose_for_all(  # noqa: PLR0913  what a choice depends on
    snapshot: Snapshot,
    pods: Sequence[WatchedPod],
    reservations: Sequence[queue_order.Reservation] = (),
    excluded_nodes: Mapping[str, ExcludedNodes] | None = None,
    *,
    devices: KnownDevices | None = None,
    surveys: Surveys | None = None,
    effort: Effort = UNLIMITED,
    for_one: Callable[[], Effort] = lambda: UNLIMITED,
) -> tuple[Placed, ...] | Unplaced:
    """A node for each of ``pods``, the gated pods of one group, or the first one that gets none.

    ``excluded_nodes`` are by the pod's uid, and as in ``plan.choose``, as ``devices`` and ``surveys`` are. ``effort``
    is that of the whole choice, and ``for_one`` begins that of the choice for one pod. Raises Overspent, TurnOver.
    """
    excluded_nodes = excluded_nodes or {}
    first = min(pods, key=lambda pod: pod.order)
    reserved = partial(queue_order.reserved_numa_nodes, snapshot, first, reservations)
    placed: list[Placed] = []
    for pod in sorted(pods, key=_largest_first):
        excluded = excluded_nodes.get(pod.uid, NO_EXCLUDED_NODES)
        effort.end_turn()
        choice = choose(
            snapshot, pod, None, excluded, reserved, most=1, devices=devices, surveys=surveys, effort=for_one()
        )
        if isinstance(choice, RelaunchOn):
            node = choice.nodes[0]
            parts = choice.beside.get(node, ())
            placed.append(Placed(pod, node, choice.narrowing, choice.reason, parts))
            devices = devices.without(parts) if devices and parts else devices
            snapshot = with_placed(snapshot, placed[-1:])
            continue
        hostnames = hostnames_without_agent(snapshot, pod.pod, choice.diagnosis)
        if not hostnames:
            count = f"{len(placed)} of the {len(pods)} pods that wait together fit; {pod.name}: {choice.reason}"
            wait = Wait(choice.diagnosis, count if len(pods) > 1 else choice.reason)
            return Unplaced(pod, wait, tuple(placed))
        placed.append(Placed(pod, "", Narrowing(hostnames), choice.reason))
    return tuple(placed)


def with_placed(snapshot: Snapshot, placed: Iterable[Placed]) -> Snapshot:
    """The snapshot in which these pods are on their nodes, where they have one that is known."""
    for each in placed:
        snapshot = apply(snapshot, PodAssumed(each.pod.pod, (each.node,), 0.0)) if each.node else snapshot
    return snapshot


def _largest_first(pod: WatchedPod) -> tuple[int, str]:
    """The sort key: pods that ask for many CPUs fit fewest nodes, and pods of one size have their answers in common."""
    return -requests_of(pod.pod).get("cpu", 0), pod.name
