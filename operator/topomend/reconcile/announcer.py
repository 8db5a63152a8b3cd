"""What the operator tells people, as Events on the pods, their owners, the records and the published states."""

from collections.abc import Sequence

from topomend.decide.feasibility import Diagnosis
from topomend.decide.plan import Explained, ReplayMismatch
from topomend.kube.client import NODE_TOPOLOGIES, RELAUNCHES
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import Relaunch
from topomend.runtime.event_recorder import EventRecorder, Regarding
from topomend.wire.group import FIT_GATE, NODE_TOPOLOGY, RELAUNCH

NORMAL, WARNING = "Normal", "Warning"


class Announcer:
    """Words the events; who sees them is the recorder's business."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def judged(
        self,
        pod: WatchedPod,
        judgement: Explained | ReplayMismatch,
        diagnosis: Diagnosis | None,
        record: Relaunch | None,
    ) -> None:
        """Why the node refused the pod."""
        reason = "TopologyRefusalExplained" if isinstance(judgement, Explained) else "ReplayDisagreed"
        elsewhere = f"; {diagnosis.summary()}" if diagnosis else ""
        note = f"{judgement.text}{elsewhere}"
        self._emit(_pod(pod), WARNING, reason, "Admit", note)
        if pod.owner:
            self._emit(_owner(pod), WARNING, reason, "Admit", note)
        if record:
            self._emit(_record(record), WARNING, reason, "Admit", note)

    def relaunched(self, pod: WatchedPod, record: Relaunch, why: str, max_attempts: int) -> None:
        """The replacement has been let go."""
        where = why or f"it may run on {', '.join(record.candidates)}"
        note = (
            f"replaces {record.namespace}/{record.pod_name} refused by {record.refused_by}; "
            f"{where} (attempt {record.attempt} of {max_attempts})"
        )
        self._emit(_pod(pod), NORMAL, "Relaunched", "Relaunch", note)
        self._emit(_record(record), NORMAL, "Relaunched", "Relaunch", note)

    def deferred(self, pod: WatchedPod, why: str) -> None:
        """No node admits the pod now."""
        note = f"{why}; tried again when a node changes"
        if pod.gates == (FIT_GATE,):
            self._emit(_pod(pod), NORMAL, "FitDeferred", "Fit", note)
        else:
            self._emit(_pod(pod), WARNING, "RelaunchDeferred", "Relaunch", note)

    def held_up(self, pod: WatchedPod, why: str) -> None:
        """A node admits the pod, and yet it cannot be created anew."""
        self._emit(_pod(pod), WARNING, "RelaunchDeferred", "Relaunch", f"{why}; tried again every minute")

    def never(self, pod: WatchedPod, why: str) -> None:
        """No node admits the pod, whatever else ends."""
        note = f"{why}; tried again when a node or the pod changes"
        self._emit(_pod(pod), WARNING, "NoNodeCanEverAdmit", "Fit", note)

    def fitted(self, pod: WatchedPod, why: str) -> None:
        """A pod that was gated at birth has been let go."""
        self._emit(_pod(pod), NORMAL, "Fitted", "Fit", why)

    def unbound(self, pod: WatchedPod, nodes: Sequence[str]) -> None:
        """No scheduler has bound a pod that was let go."""
        note = (
            f"let go to {', '.join(nodes)} and not scheduled since: other pods took the room, or the scheduler has "
            "a reason of its own (kubectl describe pod). It runs once one of them takes it: nodes cannot be "
            "added again; or delete it and create it anew"
        )
        self._emit(_pod(pod), WARNING, "NotScheduled", "Fit", note)

    def blocked(self, record: Relaunch, why: str) -> None:
        """The API server will not create the replacement."""
        note = f"{record.pod_name} cannot be created anew: {why}; its manifest is kept here and tried again"
        self._emit(_record(record), WARNING, "RelaunchDeferred", "Relaunch", note)

    def ended(self, record: Relaunch) -> None:
        """The relaunch ended without a replacement of ours running."""
        why = record.conditions[0].message if record.conditions else record.step.value
        self._emit(_record(record), NORMAL, "RelaunchSkipped", "Relaunch", why)

    def skipped(self, pod: WatchedPod, why: str) -> None:
        """The pod is left to others."""
        self._emit(_pod(pod), NORMAL, "RelaunchSkipped", "Relaunch", why)

    def not_braked(self, pod: WatchedPod, why: str) -> None:
        """The pod's controller goes on making pods that are refused."""
        owner = _owner(pod)
        self._emit(owner, WARNING, "StormNotBraked", "Gate", f"{owner.kind} {owner.name}: {why}")

    def limit_reached(self, pod: WatchedPod, why: str) -> None:
        """The pod was relaunched often enough."""
        self._emit(_pod(pod), WARNING, "RelaunchLimitReached", "Relaunch", why)

    def stale(self, name: str, uid: str, heartbeat: str) -> None:
        """A node's agent has fallen silent: told once, whichever operator sees it, and however often."""
        note = (
            f"the agent of {name} has confirmed nothing since {heartbeat}: does it run, and is its clock right? "
            "No pod is sent there until it is heard again"
        )
        regarding = Regarding(NODE_TOPOLOGIES.api_version, NODE_TOPOLOGY, "", name, uid)
        self._recorder.emit(regarding, WARNING, "TopologyStale", "Publish", note, once=True)

    def _emit(self, regarding: Regarding, kind: str, reason: str, action: str, note: str) -> None:
        self._recorder.emit(regarding, kind, reason, action, note)


def _pod(pod: WatchedPod) -> Regarding:
    return Regarding("v1", "Pod", pod.namespace, pod.name, pod.uid)


def _owner(pod: WatchedPod) -> Regarding:
    assert pod.owner is not None  # noqa: S101  asked for owned pods alone
    return Regarding(pod.owner.api_version, pod.owner.kind, pod.namespace, pod.owner.name, pod.owner.uid)


def _record(record: Relaunch) -> Regarding:
    return Regarding(RELAUNCHES.api_version, RELAUNCH, record.namespace, record.name, record.uid)
