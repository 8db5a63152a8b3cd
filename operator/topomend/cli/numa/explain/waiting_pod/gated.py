"""A pod that topomend keeps gated: since when and why, what goes before it, and what happens next.

Owns these words. Leaves what the nodes say to ``node_table`` and reading to ``surroundings``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from topomend.cli.numa.explain.pod_state import event_time
from topomend.cli.numa.explain.waiting_pod.surroundings import Surroundings
from topomend.decide.diagnosis.feasibility import Diagnosis
from topomend.model.nodes.node import Node
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import WatchedPod
from topomend.wire.group import (
    ALIGNMENT_ANNOTATION,
    FIT_GATE,
    PLACEHOLDER_GATE,
    RELAUNCH_GATE,
    STEER_LABEL,
)

OUR_GATES = (FIT_GATE, RELAUNCH_GATE, PLACEHOLDER_GATE)

RETRIES, GROUP_PATIENCE = "once a minute", "five minutes after the first came"
"""In words how often the operator tries a pod again, and for how long it waits for a group: the plugin knows no policy
of the operator, and a test compares them."""

MOST_NAMED = 3
"""How many other pods a line names."""


@dataclass(frozen=True)
class Gated:
    """Why a pod is gated and what becomes of it. ``because`` is one word, ``since`` its creation in RFC 3339.

    ``first`` is one line, ``why`` and ``next`` are others.
    """

    because: str
    since: str
    first: str
    why: tuple[str, ...]
    next: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Why it is gated, without its name and since when."""
        return self.first.partition(f"{self.since}: ")[2]

    def record(self) -> dict[str, Any]:
        """What programs read."""
        return {"since": self.since, "because": self.because, "why": [self.first, *self.why], "next": list(self.next)}


def is_gated(pod: WatchedPod) -> bool:
    """Whether topomend keeps the pod from its scheduler."""
    return not pod.node and not pod.deleting and any(gate in OUR_GATES for gate in pod.gates)


def gated(
    pod: WatchedPod, diagnosis: Diagnosis, around: Surroundings, infeasible: str, nodes: Iterable[Node] = ()
) -> Gated:
    """All that is known of a pod that ``is_gated``, in a cluster of these nodes.

    ``infeasible`` is why no node can ever admit it, else empty.
    """
    because, reason = _because(pod, around)
    group = tuple(_group_lines(pod, around))
    why = (*_other_gates(pod), *group, *_alignment(diagnosis), *_earlier(pod, around))
    said = _said(pod, diagnosis, around)
    ahead = (
        *said,
        *(_autoscaler(pod, diagnosis, infeasible) if around.sees_autoscaler(pod, nodes) else ()),
        _next(pod, diagnosis, infeasible, waits_for_group=bool(group)),
    )
    return Gated(
        because, pod.creation_time, f"{pod.name} is gated by topomend since {pod.creation_time}: {reason}", why, ahead
    )


def _because(pod: WatchedPod, around: Surroundings) -> tuple[str, str]:
    if PLACEHOLDER_GATE in pod.gates:
        return "placeholder", "it is a placeholder, for which cluster autoscalers add a node, and never runs"
    if RELAUNCH_GATE in pod.gates:
        return "relaunched", f"it replaces a pod that a kubelet refused (relaunch {pod.record or 'unknown'})"
    if around.is_steered(pod.namespace):
        return "steered", f"namespace {pod.namespace} is steered ({STEER_LABEL}=enabled), so a node is chosen first"
    if pod.owner is None:
        known = around.is_steered(pod.namespace) is not None
        steered = "was steered when it was created" if known else "is steered"
        return "steered", f"namespace {pod.namespace} {steered}, or its creator gated it"
    owner = f"{pod.owner.kind} {pod.owner.name}"
    refusal = around.refusal_of_sibling(pod.namespace, pod.owner.uid)
    if not refusal and around.is_steered(pod.namespace) is None:
        return (
            "unknown",
            f"namespace {pod.namespace} is steered, or new pods of {owner} are braked: you may not read which",
        )
    if not refusal:
        return "braked", f"new pods of {owner} are braked, because one of them was refused"
    regarding, related = refusal.get("regarding") or {}, refusal.get("related") or {}
    name = next((each.get("name", "") for each in (regarding, related) if each.get("kind") == "Pod"), "one of them")
    return "braked", f"new pods of {owner} are braked, because {name} was refused: {refusal.get('note', '')}"


def _other_gates(pod: WatchedPod) -> Iterator[str]:
    others = [gate for gate in pod.gates if gate not in OUR_GATES]
    if others:
        yield f"{', '.join(others)} of {'others keep' if len(others) > 1 else 'another owner keeps'} it gated as well"


def _group_lines(pod: WatchedPod, around: Surroundings) -> Iterator[str]:
    """How much of the pod's group has come; nothing for a pod without one, or of a complete group."""
    group = pod.group
    if group is None:
        return
    there = [each for each in around.pods(pod.namespace) if each.group == group and not each.deleting]
    size = group.size or next((each.group.size for each in there if each.group and each.group.size), None)
    if size is None:
        size = around.group_size(pod.namespace, group)
    if size is None:
        yield f"{len(there)} pods of its group {group.name} have come, and how many it needs is not known"
    elif len(there) < size:
        yield f"its group {group.name} is incomplete: {len(there)} of {size} have come ({_named(there)})"


def _alignment(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.lacks_alignment_alone:
        yield (
            f"it is held for its alignment alone: a kubelet would admit it, and not on one NUMA node, as "
            f"{ALIGNMENT_ANNOTATION} asks"
        )


def _earlier(pod: WatchedPod, around: Surroundings) -> Iterator[str]:
    """The pods of the namespace that go first if both need the same place; pods like it are not told of."""
    earlier = [
        each
        for each in around.pods(pod.namespace)
        if each.gates == (FIT_GATE,)
        and not each.deleting
        and each.order < pod.order
        and not _is_alike(each.pod, pod.pod)
    ]
    if earlier:
        goes = "goes" if len(earlier) == 1 else "go"
        yield f"{_named(sorted(earlier, key=lambda each: each.order))} {goes} first where both need the same place"


def _is_alike(one: Pod, other: Pod) -> bool:
    return (one.containers, one.resources) == (other.containers, other.resources)


def _said(pod: WatchedPod, diagnosis: Diagnosis, around: Surroundings) -> Iterator[str]:
    """What only the operator knows: who has reserved the place, until when a group is waited for."""
    event = around.said_of(pod)
    if event and (diagnosis.candidates or event.get("reason") not in ("UngateDeferred", "NoNodeCanEverAdmit")):
        yield f"topomend said at {event_time(event)} ({event.get('reason', '')}): {event.get('note', '')}"


def _autoscaler(pod: WatchedPod, diagnosis: Diagnosis, infeasible: str) -> Iterator[str]:
    if pod.asks_for_node:
        yield "cluster autoscalers count it: a new node of a kind that is known would admit it"
    elif infeasible:
        yield "cluster autoscalers are not told of it: a new node of a kind that is known would not admit it either"
    elif not diagnosis.candidates:
        yield "cluster autoscalers are not told of it yet"


def _next(pod: WatchedPod, diagnosis: Diagnosis, infeasible: str, *, waits_for_group: bool) -> str:
    if PLACEHOLDER_GATE in pod.gates:
        return "next: topomend deletes it once the pod that it stands for has a node"
    if any(gate not in OUR_GATES for gate in pod.gates):
        return "next: topomend looks for a node once no other gate is left"
    if infeasible:
        return "next: nothing, until a node or the pod changes: ask for less, or add nodes that are large enough"
    if waits_for_group:
        return f"next: its group is ungated together once all have come, and without the missing ones {GROUP_PATIENCE}"
    if diagnosis.candidates:
        return "next: topomend ungates it when its turn comes, within seconds if nobody goes first"
    return f"next: topomend ungates it once a node admits it, which it asks whenever a node changes, and {RETRIES}"


def _named(pods: Sequence[WatchedPod]) -> str:
    names = [pod.name for pod in pods[:MOST_NAMED]]
    more = f" and {len(pods) - MOST_NAMED} more" if len(pods) > MOST_NAMED else ""
    return ", ".join(names) + more
