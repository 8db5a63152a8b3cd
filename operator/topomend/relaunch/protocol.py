"""The relaunch protocol as a pure state machine: ``step(progress, answer) -> (progress, request)``.

P is the refused pod, N its replacement of the same name, W the Relaunch record. The main line, one request each:

    read W, read P                                                     in this order: see below
    1. claim P: our finalizer and W's name, by P's resourceVersion     nobody deletes P behind our back
    2. create W with the stripped manifest                             from here on the manifest cannot be lost
    3. mark W Committed                                                from here on P's end is our doing
    4. delete P, by uid and resourceVersion
    5. take our finalizer off P                                        P is gone
    6. create N behind our scheduling gate                             the gate is the fence: N cannot run yet
    7. mark W Created with N's uid                                     only this pod may lose the gate
    8. choose nodes; narrow N to them and take the gate off, one PATCH
    9. mark W Launched                                                 W stays as a tombstone

``Progress`` holds what is true as far as it was read, not a place in a list: whoever starts anew reads P and W and
goes on from there, so a crash between any two requests needs no case of its own. Every write names the uid and the
resourceVersion it was decided on; where that no longer holds, all is read again.

W is read before P, because the absence of a pod means something only at a step that was reached before: P read first
could be from before N was created, and W from after it. A W that is stale in turn does no harm: every mark names its
resourceVersion.

A user's delete wins until step 3. From there on nobody can tell whose delete it was that ends P, another operator's
or a user's, and it is taken for ours: a pod too many that the user deletes again costs less than a lost one. A pod of
our making whose uid is not W's (a process that woke late repeated step 6) stays gated and is removed.
"""

from dataclasses import dataclass, replace
from enum import Enum

from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import Relaunch, Step
from topomend.wire.group import RELAUNCH_FINALIZER, RELAUNCH_GATE


class Unread(Enum):
    """What has not been read, or no longer holds for certain."""

    UNREAD = "unread"


UNREAD = Unread.UNREAD


@dataclass(frozen=True)
class Progress:
    """What is known. ``uid`` is P's, ``record_name`` W's.

    ``pod`` and ``record`` None are known to be absent. ``may_start`` is whether a pod without a record may be claimed.
    ``nodes`` None is not asked yet, empty is none now. ``denied`` is why the API server would not create N.
    """

    uid: str
    record_name: str
    may_start: bool = True
    pod: WatchedPod | Unread | None = UNREAD
    record: Relaunch | Unread | None = UNREAD
    nodes: tuple[str, ...] | None = None
    denied: str = ""


# Requests


@dataclass(frozen=True)
class ReadPod:
    """GET the pod that has the name now."""


@dataclass(frozen=True)
class ReadRecord:
    """GET W."""


@dataclass(frozen=True)
class Claim:
    """PATCH P: our finalizer and W's name."""

    pod: WatchedPod


@dataclass(frozen=True)
class Record:
    """CREATE W with P's stripped manifest."""

    pod: WatchedPod


@dataclass(frozen=True)
class Mark:
    """PATCH W's status to ``step``, by its resourceVersion. ``why`` goes into its condition."""

    record: Relaunch
    step: Step
    new_uid: str = ""
    nodes: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Delete:
    """DELETE this pod, by uid and resourceVersion."""

    pod: WatchedPod


@dataclass(frozen=True)
class Unclaim:
    """PATCH P: take our finalizer off."""

    pod: WatchedPod


@dataclass(frozen=True)
class Create:
    """CREATE N from W's manifest, gated."""

    record: Relaunch


@dataclass(frozen=True)
class Choose:
    """Decide where N may go now, and take its place there."""

    pod: WatchedPod
    record: Relaunch


@dataclass(frozen=True)
class Launch:
    """PATCH N: narrow it to ``nodes`` and take the gate off, by uid and resourceVersion."""

    pod: WatchedPod
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Stop:
    """Nothing is left to do."""

    outcome: str


@dataclass(frozen=True)
class Pause:
    """Nothing can be done now: N waits behind its gate for a node, or P for its end, or the API server says no."""

    waiting_for: str


Request = ReadPod | ReadRecord | Claim | Record | Mark | Delete | Unclaim | Create | Choose | Launch | Stop | Pause


# Answers


@dataclass(frozen=True)
class PodIs:
    """The pod of that name as the API server has it now; None: there is none."""

    pod: WatchedPod | None


@dataclass(frozen=True)
class RecordIs:
    """W as the API server has it now; None: there is none."""

    record: Relaunch | None


@dataclass(frozen=True)
class NodesAre:
    """The nodes chosen; empty: none admits the pod now."""

    nodes: tuple[str, ...]


@dataclass(frozen=True)
class NotAsExpected:
    """A precondition did not hold, or no answer came: whatever was known may be wrong."""


@dataclass(frozen=True)
class Denied:
    """The API server will not create the object: a quota, a policy, or an object that it finds invalid."""

    why: str


Answer = PodIs | RecordIs | NodesAre | NotAsExpected | Denied


def begin(uid: str, record_name: str, *, may_start: bool) -> tuple[Progress, Request]:
    """Where every attempt starts, the first as the one after a crash."""
    progress = Progress(uid, record_name, may_start)
    return progress, next_request(progress)


def step(progress: Progress, answer: Answer) -> tuple[Progress, Request]:
    """Take the answer to the last request in, and say what to ask next."""
    learned = _learn(progress, answer)
    return learned, next_request(learned)


def _learn(progress: Progress, answer: Answer) -> Progress:
    match answer:
        case PodIs(pod):
            return replace(progress, pod=pod)
        case RecordIs(record):
            return replace(progress, record=record)
        case NodesAre(nodes):
            return replace(progress, nodes=nodes)
        case Denied(why):
            return replace(progress, denied=why)
    return replace(progress, pod=UNREAD, record=UNREAD, nodes=None)


def next_request(progress: Progress) -> Request:
    """What to ask next, from what is known alone."""
    if progress.record is UNREAD:
        return ReadRecord()
    if progress.pod is UNREAD:
        return ReadPod()
    pod, record = progress.pod, progress.record
    if record is None:
        return _without_record(progress, pod)
    if record.pod_uid != progress.uid:
        return Stop(f"record {record.name} belongs to another pod")
    if pod and pod.uid == progress.uid:
        return _old_pod(pod, record)
    if record.step.ended:
        return _leftover(pod, record) or Stop(record.step.value)
    if record.step is Step.CREATED:
        return _created(progress, pod, record)
    return _uncreated(progress, pod, record)


def _without_record(progress: Progress, pod: WatchedPod | None) -> Request:
    if pod is None or pod.uid != progress.uid:
        return Stop("the pod is gone")
    if pod.deleting or not progress.may_start:
        return Unclaim(pod) if _claimed(pod) else Stop("the pod is not to be relaunched")
    return Record(pod) if _claimed(pod) and pod.record == progress.record_name else Claim(pod)


def _old_pod(pod: WatchedPod, record: Relaunch) -> Request:
    """P is still there."""
    if record.step.ended:
        return Unclaim(pod) if _claimed(pod) else Stop(record.step.value)
    if pod.deleting:
        return _terminating(pod, record)
    if record.step is Step.RECORDED:
        return Mark(record, Step.COMMITTED) if _claimed(pod) else Claim(pod)
    if record.step is Step.COMMITTED:
        return Delete(pod)
    return Mark(record, Step.CANCELLED, why="the refused pod is back under its old uid")


def _terminating(pod: WatchedPod, record: Relaunch) -> Request:
    """P is being deleted. The finalizer goes first and the mark after it, so that no ended record leaves one behind."""
    if _claimed(pod):
        return Unclaim(pod)
    return _cancelled(record) if record.step is Step.RECORDED else Pause("the end of the refused pod")


def _uncreated(progress: Progress, pod: WatchedPod | None, record: Relaunch) -> Request:
    """P is gone and W does not know N yet."""
    if record.step is Step.RECORDED:
        return _cancelled(record)
    if pod is None:
        return _create(progress, record)
    if not _ours(pod, record):
        return Mark(record, Step.SUPERSEDED, why=f"another pod took the name {record.pod_name}")
    if pod.deleting:
        return Pause("the end of a deleted replacement")
    return Mark(record, Step.CREATED, new_uid=pod.uid)


def _create(progress: Progress, record: Relaunch) -> Request:
    if not progress.denied:
        return Create(record)
    if record.step is not Step.BLOCKED:
        return Mark(record, Step.BLOCKED, why=progress.denied)
    return Pause(progress.denied)


def _created(progress: Progress, pod: WatchedPod | None, record: Relaunch) -> Request:
    if pod is None or (pod.uid == record.new_uid and pod.deleting):
        return Mark(record, Step.CANCELLED, why="the replacement was deleted before it was let go")
    if pod.uid != record.new_uid:
        return _leftover(pod, record) or Mark(
            record, Step.SUPERSEDED, why=f"another pod took the name {record.pod_name}"
        )
    if RELAUNCH_GATE not in pod.gates:
        return Mark(record, Step.LAUNCHED, nodes=progress.nodes or record.candidates)
    if progress.nodes is None:
        return Choose(pod, record)
    return Launch(pod, progress.nodes) if progress.nodes else Pause("a node that admits the replacement")


def _leftover(pod: WatchedPod | None, record: Relaunch) -> Request | None:
    """A pod of our making that W does not stand for: it never lost its gate, and never will."""
    if pod and _ours(pod, record) and pod.uid != record.new_uid and RELAUNCH_GATE in pod.gates and not pod.deleting:
        return Delete(pod)
    return None


def _cancelled(record: Relaunch) -> Request:
    return Mark(record, Step.CANCELLED, why="somebody deleted the refused pod")


def _claimed(pod: WatchedPod) -> bool:
    return RELAUNCH_FINALIZER in pod.finalizers


def _ours(pod: WatchedPod, record: Relaunch) -> bool:
    return pod.record == record.name and pod.replaces == record.pod_uid
