"""The Events that the operator posts on pods, their owners, records and published states.

Owns reasons and wording: what happened, why, what to do, in this order. Leaves posting and repetition to
``runtime.event_recorder``.
"""

from collections.abc import Sequence

from topomend.alignment.requested import wrong_value
from topomend.decide.defragment.moves import Move, Place
from topomend.decide.diagnosis.feasibility import Diagnosis
from topomend.decide.eligibility import Limits, wrong_relaunch_value
from topomend.decide.plan import Explained, ReplayMismatch
from topomend.explain.trace_text import numa_text
from topomend.kube.resources import NODE_TOPOLOGIES, RELAUNCHES
from topomend.model.pods.scheduling import WatchedPod
from topomend.model.relaunch_record import Relaunch
from topomend.runtime.event_recorder import EventRecorder, Regarding
from topomend.wire.group import (
    ALIGNMENT_ANNOTATION,
    FIT_GATE,
    NODE_TOPOLOGY,
    RELAUNCH,
    RELAUNCH_ANNOTATION,
    STEER_LABEL,
)

NORMAL, WARNING = "Normal", "Warning"


class Announcer:
    """Words the Events."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder, self._emit = recorder, recorder.emit

    def refusal_explained(
        self,
        pod: WatchedPod,
        explanation: Explained | ReplayMismatch,
        diagnosis: Diagnosis | None,
        record: Relaunch | None,
    ) -> None:
        """Why the node refused the pod, on the pod, its owner and its record."""
        reason = "TopologyRefusalExplained" if isinstance(explanation, Explained) else "ReplayMismatch"
        elsewhere = f"; {diagnosis.summary()}" if diagnosis else ""
        note = f"{explanation.text}{elsewhere}"
        owner = _owner(pod) if pod.owner else None
        self._emit(_pod(pod), WARNING, reason, "Admit", note, fact=reason, related=owner)
        if owner:  # one for all its pods that the node refused for the same
            resources = explanation.resources if isinstance(explanation, Explained) else ()
            self._emit(owner, WARNING, reason, "Admit", note, fact=f"{pod.node} {resources}", related=_pod(pod))
        if record:
            self._emit(_record(record), WARNING, reason, "Admit", note)

    def relaunched(self, pod: WatchedPod, record: Relaunch, why: str, max_attempts: int) -> None:
        """The replacement was ungated."""
        where = why or f"ungated for {', '.join(record.candidates) or 'any node'}"
        pod_name, attempt = f"{record.namespace}/{record.pod_name}", f"attempt {record.attempt} of {max_attempts}"
        note = f"replaces {pod_name} refused by {record.refused_by}; {where} ({attempt})"
        if record.is_of_unbound:
            note = f"replaces {pod_name}, which no scheduler bound to its nodes; {where}"
        self._emit(_pod(pod), NORMAL, "Relaunched", "Relaunch", note)
        self._emit(_record(record), NORMAL, "Relaunched", "Relaunch", note)

    def unschedulable(self, pod: WatchedPod, why: str, more: str = "") -> None:
        """No node admits the pod now. Its owner has one event for all its pods that wait for the same.

        ``why`` is the fact, ``more`` what is known of it besides, whose figures change with each node that does.
        """
        note = f"{why}{f'; {more}' if more else ''}; retried when a node changes"
        owner = _owner(pod) if pod.owner else None
        if pod.gates == (FIT_GATE,):
            self._emit(_pod(pod), WARNING, "UngateDeferred", "Ungate", note, fact=why, related=owner)
            if owner:
                of_pod = f"{pod.name} waits: {note}"
                self._emit(owner, WARNING, "UngateDeferred", "Ungate", of_pod, fact=why, related=_pod(pod))
        else:
            self._emit(_pod(pod), WARNING, "RelaunchDeferred", "Relaunch", note, fact=why, related=owner)

    def is_new_that(self, pod: WatchedPod, why: str) -> bool:
        """Whether an Event would be posted by ``unschedulable``. If not, nobody need find out more."""
        reason = "UngateDeferred" if pod.gates == (FIT_GATE,) else "RelaunchDeferred"
        return self._recorder.is_new(_pod(pod), reason, why)

    def waits_for_turn(self, pod: WatchedPod, why: str) -> None:
        """A node admits the pod, and other pods go first. Nobody need act."""
        self._emit(_pod(pod), NORMAL, "WaitingForTurn", "Ungate", f"{why}; tried again when it is free")

    def relaunch_deferred(self, pod: WatchedPod, why: str) -> None:
        """A node admits the pod, but its replacement may not be created."""
        self._emit(_pod(pod), WARNING, "RelaunchDeferred", "Relaunch", f"{why}; retried every minute")

    def may_tell_of(self, pod: WatchedPod) -> bool:
        """Whether an Event on the pod may be posted now. If not, nobody need find out what it would say."""
        return self._recorder.has_budget(_pod(pod))

    def infeasible(self, pod: WatchedPod, why: str) -> None:
        """No node admits the pod, even when empty."""
        note = f"{why}; retried when a node or the pod changes"
        owner = _owner(pod) if pod.owner else None
        self._emit(_pod(pod), WARNING, "NoNodeCanEverAdmit", "Admit", note, related=owner)
        if owner:  # one for all its pods
            fact = "NoNodeCanEverAdmit"
            self._emit(owner, WARNING, "NoNodeCanEverAdmit", "Admit", note, fact=fact, related=_pod(pod))

    def not_aligned(self, pod: WatchedPod, why: str) -> None:
        """The pod runs, and its node does not align it as its creator asks."""
        note = (
            f"{pod.node} runs {pod.name}, but not on one NUMA node, as {ALIGNMENT_ANNOTATION} asks: {why}. "
            f"In a namespace labelled {STEER_LABEL}=enabled topomend chooses the node; to move it, recreate it"
        )
        self._emit(_pod(pod), WARNING, "NotAligned", "Admit", note)

    def alignment_ignored(self, pod: WatchedPod, why: str) -> None:
        """The pod's creator asks for an alignment that does not exist."""
        self._emit(_pod(pod), WARNING, "AlignmentIgnored", "Admit", why)

    def check_annotations(self, pod: WatchedPod, limits: Limits) -> None:
        """Say what is wrong with the annotations of a pod that topomend handles. The recorder says it once."""
        if why := wrong_value(pod.pod):
            self.alignment_ignored(pod, why)
        self.check_relaunch_value(pod, limits)

    def check_relaunch_value(self, pod: WatchedPod, limits: Limits) -> None:
        """The pod's or its namespace's topomend.io/relaunch is neither "true" nor "false", and counts as "false"."""
        if why := wrong_relaunch_value(pod, limits):
            note = f"{why}: the pod is neither gated nor relaunched nor evicted; write one of the two"
            self._emit(_pod(pod), WARNING, "RelaunchValueWrong", "Relaunch", note)

    def held_in_vain(self, pod: WatchedPod, why: str) -> None:
        """The operator only observes, and may not ungate a pod that an operator of mode relaunch has gated."""
        note = (
            f"held by topomend, whose operator now only observes and may not ungate it: {why}; run kubectl numa drain"
        )
        self._emit(_pod(pod), WARNING, "HeldInVain", "Ungate", note)

    def ungated(self, pod: WatchedPod, why: str) -> None:
        """A pod gated at its creation was ungated."""
        self._emit(_pod(pod), NORMAL, "Ungated", "Ungate", why)

    def group_incomplete(self, pod: WatchedPod, there: int, size: int, held: int, end: str) -> None:
        """Pods of a group wait for the rest of it. ``held`` more are there, and another owner's gate holds them."""
        others = f"; {held} more have the gate of another owner" if held else ""
        note = (
            f"{there} of the {size} pods of its group have come{others}; they are ungated together once all have come, "
            f"and without the missing ones at {end}"
        )
        owner = _owner(pod) if pod.owner else None
        self._emit(_pod(pod), NORMAL, "WaitingForGroup", "Ungate", note, related=owner)
        if owner:
            self._emit(owner, NORMAL, "WaitingForGroup", "Ungate", note, related=_pod(pod))

    def group_goes_alone(self, pod: WatchedPod, size: int, seconds: float, end: str) -> None:
        """The pods of a group are ungated one by one."""
        note = (
            f"choosing nodes for the {size} pods of its group together took more than {seconds:.0f} s of work; until "
            f"{end} they are ungated one by one, so that some may run and others wait"
        )
        self._emit(_pod(pod), WARNING, "GroupGoesAlone", "Ungate", note)

    def composite(self, pod: WatchedPod, group: str, composite: str) -> None:
        """A PodGroup that is part of a CompositePodGroup is ungated by itself."""
        note = (
            f"topomend ungates PodGroup {group} by itself: it does not wait for the other groups of CompositePodGroup "
            f"{composite}, nor for room for them; leave the namespace unsteered if they are useless without each other"
        )
        self._emit(_pod(pod), WARNING, "CompositePodGroupIgnored", "Ungate", note)

    def preempted(self, victims: Sequence[WatchedPod], pod: WatchedPod, node: str, seconds: float) -> None:
        """Pods were evicted for ``pod``, which is tried again after so many seconds if it still waits.

        Users of one namespace do not learn the names of another's pods.
        """
        for victim in victims:
            note = (
                f"evicted from {node}: preempted by a pod of priority {pod.priority} (uid {pod.uid}); "
                f"this pod has priority {victim.priority}"
            )
            self._emit(_pod(victim), NORMAL, "Preempted", "Preempt", note)
        named = ", ".join(_as_known_to(pod.namespace, victim) for victim in victims)
        note = (
            f"evicted from {node} for it: {named}; the place is kept for it, and if it still waits in {seconds:.0f} s, "
            "others may be evicted"
        )
        self._emit(_pod(pod), NORMAL, "Preempting", "Preempt", note)

    def moves(self, pod: WatchedPod, move: Move) -> None:
        """A pod was evicted for a better place."""
        then = f", and {len(move.then)} that wait can run" if move.then else ""
        note = (
            f"evicted from {_place(move.origin)} so that more of what is free is of use: its next pod is to come to "
            f"{_place(move.target)}; the fragmentation of pool {move.pool} falls from {move.before:.1%} to "
            f"{move.after:.1%}{then}; to keep pods where they are, annotate them or their namespace with "
            f"{RELAUNCH_ANNOTATION}=false"
        )
        self._emit(_pod(pod), NORMAL, "Defragmenting", "Move", note, related=_owner(pod))
        self._emit(_owner(pod), NORMAL, "Defragmenting", "Move", f"{pod.name} was {note}", related=_pod(pod))

    def moved(self, pod: WatchedPod, move: Move, name: str, node: str) -> None:
        """The next pod of one that was moved runs where it was told."""
        note = (
            f"{pod.name} was moved: {name} runs on {node}; the fragmentation of pool {move.pool} was {move.before:.1%} "
            f"before and {move.after:.1%} after it"
        )
        self._emit(_owner(pod), NORMAL, "Defragmented", "Move", note)

    def not_as_told(self, pod: WatchedPod, move: Move, why: str, seconds: float) -> None:
        """A move did not bring what it promised."""
        note = (
            f"{pod.name} was evicted for a better place, and {why}; it was to be {_place(move.target)}; no pod of pool "
            f"{move.pool} is moved for {seconds / 60:.0f} minutes"
        )
        self._emit(_owner(pod), WARNING, "DefragmentationFailed", "Move", note)

    def not_scheduled(self, pod: WatchedPod, nodes: Sequence[str]) -> None:
        """No scheduler has bound an ungated pod."""
        note = (
            f"Ungated for nodes {', '.join(nodes)} but not scheduled: other pods use them, or the scheduler rejects "
            f"them. See `kubectl describe pod {pod.name}`. topomend replaces the pod when other nodes admit it. If it "
            "opted out, or its Job may have no more failures, delete and recreate it."
        )
        self._emit(_pod(pod), WARNING, "NotScheduled", "Ungate", note)

    def blocked(self, record: Relaunch, why: str) -> None:
        """The API server rejects the replacement."""
        note = (
            f"{record.pod_name} cannot be recreated: {why}; this record holds its manifest, and the creation is retried"
        )
        self._emit(_record(record), WARNING, "RelaunchDeferred", "Relaunch", note)

    def ended(self, record: Relaunch) -> None:
        """The relaunch ended without a replacement of ours."""
        why = record.conditions[0].message if record.conditions else record.step.value
        self._emit(_record(record), NORMAL, "RelaunchSkipped", "Relaunch", why)

    def skipped(self, pod: WatchedPod, why: str) -> None:
        """The pod is not relaunched."""
        self._emit(_pod(pod), NORMAL, "RelaunchSkipped", "Relaunch", why)

    def observed(self, pod: WatchedPod, would: str) -> None:
        """What mode relaunch would do about a refused pod: once for all pods of an owner, on that."""
        note = f"the operator only observes; in mode relaunch {would}"
        is_one_of_many = pod.owner is not None and not pod.mirror
        regarding, related = (_owner(pod), _pod(pod)) if is_one_of_many else (_pod(pod), None)
        self._emit(regarding, NORMAL, "RelaunchSkipped", "Relaunch", note, related=related)

    def not_braked(self, pod: WatchedPod, why: str) -> None:
        """The pod's controller can still create pods that are refused."""
        owner = _owner(pod)
        self._emit(owner, WARNING, "StormNotBraked", "Gate", f"{owner.kind} {owner.name}: {why}")

    def limit_reached(self, pod: WatchedPod, why: str) -> None:
        """The pod has used up its attempts."""
        self._emit(_pod(pod), WARNING, "RelaunchLimitReached", "Relaunch", why)

    def stale(self, name: str, uid: str, heartbeat: str) -> None:
        """A node's agent is silent: posted once a heartbeat, even where several operators see it."""
        note = (
            f"the agent of {name} has confirmed nothing since {heartbeat}, so no pod is placed there; check that the "
            "agent runs and that the node's clock is right"
        )
        self._emit(_topology(name, uid), WARNING, "TopologyStale", "Publish", note, once=True)

    def distrusted(self, name: str, uid: str, why: str) -> None:
        """What a node's agent publishes is not believed."""
        note = f"no pod is placed on {name}: {why}"
        self._emit(_topology(name, uid), WARNING, "TopologyNotBelieved", "Publish", note)


def _place(place: Place) -> str:
    return f"{place.node} {numa_text(place.numa_nodes)}" if place.numa_nodes else place.node


def _as_known_to(namespace: str, victim: WatchedPod) -> str:
    """A victim in words for the users of a namespace: by its name only where it is theirs."""
    if victim.namespace == namespace:
        return f"{victim.name} (priority {victim.priority})"
    return f"a pod of priority {victim.priority}"


def _topology(name: str, uid: str) -> Regarding:
    return Regarding(NODE_TOPOLOGIES.api_version, NODE_TOPOLOGY, "", name, uid)


def _pod(pod: WatchedPod) -> Regarding:
    return Regarding("v1", "Pod", pod.namespace, pod.name, pod.uid)


def _owner(pod: WatchedPod) -> Regarding:
    assert pod.owner is not None  # noqa: S101  callers pass owned pods only
    return Regarding(pod.owner.api_version, pod.owner.kind, pod.namespace, pod.owner.name, pod.owner.uid)


def _record(record: Relaunch) -> Regarding:
    return Regarding(RELAUNCHES.api_version, RELAUNCH, record.namespace, record.name, record.uid)
