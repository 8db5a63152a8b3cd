"""The Events that the operator posts on pods, their owners, records and published states.

Owns reasons and wording: what happened, why, what to do, in this order. Leaves posting and repetition to
``runtime.event_recorder``.
"""

from collections.abc import Sequence

from topomend.decide.feasibility import Diagnosis
from topomend.decide.plan import Explained, ReplayMismatch
from topomend.kube.client import NODE_TOPOLOGIES, RELAUNCHES
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import Relaunch
from topomend.runtime.event_recorder import EventRecorder, Regarding
from topomend.wire.group import ALIGNMENT_ANNOTATION, FIT_GATE, NODE_TOPOLOGY, RELAUNCH, STEER_LABEL

NORMAL, WARNING = "Normal", "Warning"


class Announcer:
    """Words the Events."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

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
        self._emit(_pod(pod), WARNING, reason, "Admit", note)
        if pod.owner:
            self._emit(_owner(pod), WARNING, reason, "Admit", note)
        if record:
            self._emit(_record(record), WARNING, reason, "Admit", note)

    def relaunched(self, pod: WatchedPod, record: Relaunch, why: str, max_attempts: int) -> None:
        """The replacement was ungated."""
        where = why or f"ungated for {', '.join(record.candidates)}"
        pod_name, attempt = f"{record.namespace}/{record.pod_name}", f"attempt {record.attempt} of {max_attempts}"
        note = f"replaces {pod_name} refused by {record.refused_by}; {where} ({attempt})"
        if record.is_of_unbound:
            note = f"replaces {pod_name}, which no scheduler bound to its nodes; {where}"
        self._emit(_pod(pod), NORMAL, "Relaunched", "Relaunch", note)
        self._emit(_record(record), NORMAL, "Relaunched", "Relaunch", note)

    def unschedulable(self, pod: WatchedPod, why: str) -> None:
        """No node admits the pod now."""
        note = f"{why}; retried when a node changes"
        if pod.gates == (FIT_GATE,):
            self._emit(_pod(pod), NORMAL, "UngateDeferred", "Ungate", note)
        else:
            self._emit(_pod(pod), WARNING, "RelaunchDeferred", "Relaunch", note)

    def relaunch_deferred(self, pod: WatchedPod, why: str) -> None:
        """A node admits the pod, but its replacement may not be created."""
        self._emit(_pod(pod), WARNING, "RelaunchDeferred", "Relaunch", f"{why}; retried every minute")

    def may_tell_of(self, pod: WatchedPod) -> bool:
        """Whether an Event on the pod may be posted now. If not, nobody need find out what it would say."""
        return self._recorder.has_budget(_pod(pod))

    def infeasible(self, pod: WatchedPod, why: str) -> None:
        """No node admits the pod, even when empty."""
        note = f"{why}; retried when a node or the pod changes"
        self._emit(_pod(pod), WARNING, "NoNodeCanEverAdmit", "Admit", note)

    def not_aligned(self, pod: WatchedPod, why: str) -> None:
        """The pod runs, and its node does not align it as its creator asks."""
        note = (
            f"{pod.node} runs {pod.name}, but not on one NUMA node, as {ALIGNMENT_ANNOTATION} asks: {why}. "
            f"In a namespace labelled {STEER_LABEL}=enabled topomend chooses the node; to move it, recreate it"
        )
        self._emit(_pod(pod), WARNING, "NotAligned", "Admit", note)

    def alignment_ignored(self, pod: WatchedPod, why: str) -> None:
        """The pod's creator asks for an alignment that there is not."""
        self._emit(_pod(pod), WARNING, "AlignmentIgnored", "Admit", why)

    def ungated(self, pod: WatchedPod, why: str) -> None:
        """A pod gated at its creation was ungated."""
        self._emit(_pod(pod), NORMAL, "Ungated", "Ungate", why)

    def preempted(self, victim: WatchedPod, pod: WatchedPod, node: str) -> None:
        """A pod was evicted for another one, which is not named to the users of this one's namespace."""
        note = (
            f"evicted from {node} for a pod of priority {pod.priority} (uid {pod.uid}), as its own is {victim.priority}"
        )
        self._emit(_pod(victim), NORMAL, "Preempted", "Preempt", note)
        self._emit(_pod(pod), NORMAL, "Preempting", "Preempt", f"a pod of priority {victim.priority} leaves {node}")

    def not_scheduled(self, pod: WatchedPod, nodes: Sequence[str]) -> None:
        """No scheduler has bound an ungated pod."""
        note = (
            f"Ungated for nodes {', '.join(nodes)} but not scheduled: other pods use them, or the scheduler rejects "
            f"them. See `kubectl describe pod {pod.name}`. It is replaced once other nodes admit it, unless it opted "
            "out or its controller may create no other, such as a Job that may have no more failures. Then, to retry "
            "on other nodes, delete and recreate the pod."
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
        self._recorder.emit(_topology(name, uid), WARNING, "TopologyStale", "Publish", note, once=True)

    def distrusted(self, name: str, uid: str, why: str) -> None:
        """What a node's agent publishes is not believed."""
        note = f"no pod is placed on {name}: {why}"
        self._emit(_topology(name, uid), WARNING, "TopologyNotBelieved", "Publish", note)

    def _emit(self, regarding: Regarding, kind: str, reason: str, action: str, note: str) -> None:
        self._recorder.emit(regarding, kind, reason, action, note)


def _topology(name: str, uid: str) -> Regarding:
    return Regarding(NODE_TOPOLOGIES.api_version, NODE_TOPOLOGY, "", name, uid)


def _pod(pod: WatchedPod) -> Regarding:
    return Regarding("v1", "Pod", pod.namespace, pod.name, pod.uid)


def _owner(pod: WatchedPod) -> Regarding:
    assert pod.owner is not None  # noqa: S101  callers pass owned pods only
    return Regarding(pod.owner.api_version, pod.owner.kind, pod.namespace, pod.owner.name, pod.owner.uid)


def _record(record: Relaunch) -> Regarding:
    return Regarding(RELAUNCHES.api_version, RELAUNCH, record.namespace, record.name, record.uid)
