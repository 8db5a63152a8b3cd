"""The relaunch protocol as a pure state machine: ``step(progress, answer) -> (progress, request)``.

P is the refused pod, N its replacement of the same name, W the Relaunch record. The main line, one request each:

    read W, read P                                                     in this order: see below
    1. claim P: our finalizer and W's name, by P's resourceVersion     nobody deletes P behind our back
    2. create W with the stripped manifest and our finalizer           from here on the manifest cannot be lost
    3. mark W Committed                                                from here on P's end is our doing
    4. delete P, by uid and resourceVersion
    5. take our finalizer off P                                        P is gone
    6. create N behind our scheduling gate                             the gate is the fence: N cannot run yet
    7. mark W Created with N's uid                                     only this pod may lose the gate
    8. choose nodes; narrow N to them and take the gate off, one PATCH
    9. mark W Launched
    10. take our finalizer off W                                       W stays as a tombstone

With the name policy Suffix N has a name of its own and comes first, so that no moment is without a pod: steps 6 and 7
are before 4 and 5 (``_beside``).

``Progress`` holds what is true as far as it was read, not a place in a list: whoever starts anew reads P and W and
goes on from there, so a crash between any two requests needs no case of its own. Every write names the uid and the
resourceVersion it was decided on; where that no longer holds, all is read again.

W is read before P, because the absence of a pod means something only at a step that was reached before: P read first
could be from before N was created, and W from after it. A W that is stale in turn does no harm: every mark names its
resourceVersion. Where a read is answered from an older state all the same, W may end although N waits; it is opened
again as soon as N is seen. Where P is there although W says Created, W goes back to Committed, but only once a write
has found P: it may have been read from before.

W alone is harmless: it may be written long before P is claimed, to say what the pod waits for. Its manifest counts as
long as it is P's: one that is not (P was changed since, or W is not our work) is never created while P is there to be
recorded anew. A W that vanishes while N waits behind its gate is written again from N.

W's finalizer keeps the only copy of a pod from whoever deletes W, its kind, or its namespace: it is on W whenever P may
be gone and N may not be there. While N waits for a node it is off: a cluster without an operator is to lose nothing by
it. A W that was deleted is gone on with as if it were not, and goes with its finalizer. In a namespace that ends, W is
cancelled: nothing can be created there.

``draining`` is the same for a cluster that topomend leaves: nothing begins, N is let go to wherever its scheduler has
it, and P is given back as it was as long as nobody can have taken its deletion on: until W is committed, with the name
policy Suffix until N is there.

A user's delete wins until step 3; with the name policy Suffix until N is there, as P is not ours to delete before. From
there on nobody can tell whose delete it was that ends P, another operator's or a user's, and it is taken for ours: a
pod too many that the user deletes again costs less than a lost one. A pod of our making whose uid is not W's (a process
that woke late repeated step 6) stays gated and is removed.
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
    ``digest`` is that of P's manifest as it would be recorded now. ``replacement`` is N where it has a name of its own.
    ``nodes`` None is not asked yet, empty is none now. ``denied`` is why the API server would not create N or W.
    ``contradicted`` is that a write found P where W says that N was created. ``draining`` is whether topomend leaves
    the cluster. ``namespace_ends`` is that nothing can be created in the namespace any more.
    """

    uid: str
    record_name: str
    may_start: bool = True
    pod: WatchedPod | Unread | None = UNREAD
    digest: str = ""
    record: Relaunch | Unread | None = UNREAD
    replacement: WatchedPod | Unread | None = UNREAD
    nodes: tuple[str, ...] | None = None
    denied: str = ""
    contradicted: bool = False
    draining: bool = False
    namespace_ends: bool = False


DRAINED = "topomend was drained; the refused pod is as it was"
END_OF_RECORD = "the end of a record that somebody deleted"
NOT_ITS_MANIFEST = "the record's manifest is not the refused pod's: delete the record, and it is written anew"


# Requests


@dataclass(frozen=True)
class ReadPod:
    """GET the pod that has the name now."""


@dataclass(frozen=True)
class ReadRecord:
    """GET W."""


@dataclass(frozen=True)
class ReadReplacement:
    """GET the pod that has N's name, where it is not P's."""

    record: Relaunch


@dataclass(frozen=True)
class Claim:
    """PATCH P: our finalizer and W's name."""

    pod: WatchedPod


@dataclass(frozen=True)
class Record:
    """CREATE W with P's stripped manifest and our finalizer."""

    pod: WatchedPod


@dataclass(frozen=True)
class Restore:
    """CREATE W anew from N, which waits behind our gate: somebody deleted W."""

    pod: WatchedPod


@dataclass(frozen=True)
class Discard:
    """DELETE W, by uid and resourceVersion: nothing was done by it yet."""

    record: Relaunch


@dataclass(frozen=True)
class Protect:
    """PATCH W: put our finalizer on, by its resourceVersion."""

    record: Relaunch


@dataclass(frozen=True)
class Unprotect:
    """PATCH W: take our finalizer off, by its resourceVersion. A W that was deleted is gone then."""

    record: Relaunch


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
    """PATCH N: narrow it to ``nodes``, if there are any, and take the gate off, by uid and resourceVersion."""

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


Request = (
    ReadPod
    | ReadRecord
    | ReadReplacement
    | Claim
    | Record
    | Restore
    | Discard
    | Protect
    | Unprotect
    | Mark
    | Delete
    | Unclaim
    | Create
    | Choose
    | Launch
    | Stop
    | Pause
)


# Answers


@dataclass(frozen=True)
class PodIs:
    """The pod of that name as the API server has it now; None: there is none. ``digest`` is its manifest's."""

    pod: WatchedPod | None
    digest: str = ""


@dataclass(frozen=True)
class ReplacementIs:
    """The pod of N's own name as the API server has it now; None: there is none."""

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


@dataclass(frozen=True)
class NamespaceEnds:
    """The namespace is being deleted, or gone: nothing can be created in it."""


Answer = PodIs | ReplacementIs | RecordIs | NodesAre | NotAsExpected | Denied | NamespaceEnds


def begin(uid: str, record_name: str, *, may_start: bool, draining: bool = False) -> tuple[Progress, Request]:
    """Where every attempt starts, the first as the one after a crash."""
    progress = Progress(uid, record_name, may_start, draining=draining)
    return progress, next_request(progress)


def step(progress: Progress, answer: Answer) -> tuple[Progress, Request]:
    """Take the answer to the last request in, and say what to ask next."""
    learned = _learn(progress, answer)
    return learned, next_request(learned)


def _learn(progress: Progress, answer: Answer) -> Progress:
    match answer:
        case PodIs(pod, digest):
            return replace(progress, pod=pod, digest=digest, contradicted=_is_contradicted(progress, pod))
        case ReplacementIs(pod):
            return replace(progress, replacement=pod)
        case RecordIs(record):
            return replace(progress, record=record)
        case NodesAre(nodes):
            return replace(progress, nodes=nodes)
        case Denied(why):
            return replace(progress, denied=why)
        case NamespaceEnds():
            return replace(progress, namespace_ends=True)
    return Progress(progress.uid, progress.record_name, progress.may_start, draining=progress.draining)


def _is_contradicted(progress: Progress, pod: WatchedPod | None) -> bool:
    """P was known before: this is no read's answer, which may be from an older state, but a write's."""
    record = progress.record
    is_written = progress.pod is not UNREAD and pod is not None and pod.uid == progress.uid
    return is_written and isinstance(record, Relaunch) and record.step is Step.CREATED


def next_request(progress: Progress) -> Request:
    """What to ask next, from what is known alone."""
    if progress.record is UNREAD:
        return ReadRecord()
    if progress.pod is UNREAD:
        return ReadPod()
    pod, record = progress.pod, progress.record
    if record is None:
        return _without_record(progress, pod)
    refused = pod if pod and pod.uid == progress.uid else None
    if record.pod_uid != progress.uid:
        return _name_taken(progress, refused, record)
    if not record.keeps_name:
        return _beside(progress, refused, record)
    if refused:
        return _old_pod(progress, refused, record)
    if record.step.ended:
        return _reopened(pod, record) or _leftover(pod, record) or _ended(record)
    if record.step is Step.CREATED:
        return _created(progress, pod, record)
    return _uncreated(progress, pod, record)


def _name_taken(progress: Progress, pod: WatchedPod | None, record: Relaunch) -> Request:
    """W is another pod's record, which is none of ours: P is as if we had never seen it."""
    why = f"record {record.name} is another pod's, and its own would have that name: delete it if it is nobody's"
    if pod and _claimed(pod):
        return Unclaim(pod)
    return Pause(why) if pod and progress.may_start and not pod.deleting else Stop(why)


def _without_record(progress: Progress, pod: WatchedPod | None) -> Request:
    if pod is None or pod.uid != progress.uid:
        return _without_both(progress, pod)
    if pod.deleting and _claimed(pod) and not progress.denied:
        return Record(pod)  # W tells what became of P; where there can be none, P ends without
    if pod.deleting or progress.denied or not progress.may_start:
        return Unclaim(pod) if _claimed(pod) else _untouched(progress, pod)
    return Record(pod) if _claimed(pod) and pod.record == progress.record_name else Claim(pod)


def _without_both(progress: Progress, pod: WatchedPod | None) -> Request:
    """Neither P nor W is there; ``pod`` has the name now."""
    if pod is None or not _orphaned(progress, pod):
        return Stop("the pod is gone")
    if not progress.denied:
        return Restore(pod)
    return Launch(pod, ()) if progress.draining else Pause(progress.denied)


def _untouched(progress: Progress, pod: WatchedPod) -> Request:
    """P is as if we had never seen it."""
    return Pause(progress.denied) if progress.denied and not pod.deleting else Stop("the pod is not to be relaunched")


def _old_pod(progress: Progress, pod: WatchedPod, record: Relaunch) -> Request:
    """P is still there."""
    if record.step.ended:
        return Unclaim(pod) if _claimed(pod) else _ended(record)
    if pod.deleting:
        return _terminating(pod, record)
    if record.step is Step.RECORDED:
        return _recorded(progress, pod, record)
    if record.step is Step.CREATED:  # not our work, for N has P's name; or P was read from before
        return Mark(record, Step.COMMITTED) if progress.contradicted else Claim(pod)
    if record.deleting and not record.protected:
        return Pause(END_OF_RECORD)
    return _unprotected(record) or (Delete(pod) if record.manifest_hash == progress.digest else Pause(NOT_ITS_MANIFEST))


def _recorded(progress: Progress, pod: WatchedPod, record: Relaunch) -> Request:
    """P and W are there, and nothing was done yet."""
    if progress.draining:
        return _given_back(pod, record)
    if record.deleting:
        return Unprotect(record) if record.protected else Pause(END_OF_RECORD)
    if not _claimed(pod):
        return Claim(pod) if progress.may_start else Stop("the pod is not to be relaunched now")
    if record.manifest_hash != progress.digest:
        return Discard(record)
    return _unprotected(record) or Mark(record, Step.COMMITTED)


def _given_back(pod: WatchedPod, record: Relaunch) -> Request:
    """P stays, and there is to be no N."""
    return Unclaim(pod) if _claimed(pod) else Mark(record, Step.CANCELLED, why=DRAINED)


def _terminating(pod: WatchedPod, record: Relaunch) -> Request:
    """P is being deleted. The finalizer goes first and the mark after it, so that no ended record leaves one behind."""
    if _claimed(pod):
        return (record.step is not Step.RECORDED and _unprotected(record)) or Unclaim(pod)
    return _cancelled(record) if record.step is Step.RECORDED else Pause("the end of the refused pod")


def _uncreated(progress: Progress, pod: WatchedPod | None, record: Relaunch) -> Request:
    """P is gone and W does not know N yet."""
    if record.step is Step.RECORDED:
        return Mark(record, Step.CREATED, new_uid=pod.uid) if pod and _waits(pod, record) else _cancelled(record)
    if pod is None:
        return _create(progress, record)
    if not _ours(pod, record):
        return Mark(record, Step.SUPERSEDED, why=f"another pod took the name {record.pod_name}")
    if pod.deleting:
        return Pause("the end of a deleted replacement")
    return Mark(record, Step.CREATED, new_uid=pod.uid)


def _create(progress: Progress, record: Relaunch) -> Request:
    if progress.namespace_ends:
        return Mark(record, Step.CANCELLED, why="its namespace is being deleted")
    if not progress.denied:
        return _unprotected(record) or Create(record)
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
    if progress.draining:
        return Launch(pod, ())
    if progress.nodes is None:
        return Choose(pod, record)
    if progress.nodes:
        return Launch(pod, progress.nodes)
    return Unprotect(record) if record.protected else Pause("a node that admits the replacement")


def _beside(progress: Progress, old: WatchedPod | None, record: Relaunch) -> Request:
    """N has a name of its own: it is created first, P (``old``, None once it is gone) deleted then, N let go last."""
    if record.step is Step.RECORDED and old:
        return _terminating(old, record) if old.deleting else _recorded(progress, old, record)
    if record.step.ended and old and _claimed(old):
        return Unclaim(old)
    if progress.replacement is UNREAD:
        return ReadReplacement(record)
    new = progress.replacement
    if record.step.ended:
        return _reopened(new, record) or _leftover(new, record) or _ended(record)
    if record.step is Step.RECORDED:
        return Mark(record, Step.CREATED, new_uid=new.uid) if new and _waits(new, record) else _cancelled(record)
    if record.step is not Step.CREATED:
        return _beside_uncreated(progress, old, new, record)
    if new is None or new.uid != record.new_uid or new.deleting:
        return Unclaim(old) if old and _claimed(old) else _created(progress, new, record)
    if old:
        return _end_of(old)
    return _created(progress, new, record)


def _beside_uncreated(progress: Progress, old: WatchedPod | None, new: WatchedPod | None, record: Relaunch) -> Request:
    """W is committed and does not know N yet. Whoever took P away meanwhile, N takes its place."""
    if old and not (new and _ours(new, record)):
        if old.deleting:
            return _cancelled(record)
        if progress.draining:
            return _given_back(old, record)
    if old and record.manifest_hash != progress.digest:
        return Pause(NOT_ITS_MANIFEST)
    if new is None:
        return _create(progress, record)
    if not _ours(new, record):
        return _create(replace(progress, denied=f"another pod has the name {new.name}"), record)
    if new.deleting:
        return Pause("the end of a deleted replacement")
    return Mark(record, Step.CREATED, new_uid=new.uid)


def _end_of(old: WatchedPod) -> Request:
    """N waits behind our gate, and P is still there."""
    if not old.deleting:
        return Delete(old)
    return Unclaim(old) if _claimed(old) else Pause("the end of the refused pod")


def _ended(record: Relaunch) -> Request:
    """Nothing is left to do but to give W itself back."""
    return Unprotect(record) if record.protected else Stop(record.step.value)


def _unprotected(record: Relaunch) -> Request | None:
    """What W lacks to be the only copy of the pod. One that is being deleted takes no finalizer any more."""
    return None if record.protected or record.deleting else Protect(record)


def _reopened(pod: WatchedPod | None, record: Relaunch) -> Request | None:
    """N still waits behind our gate though W has ended: whoever ended it had read what was no longer so."""
    waits = record.step is not Step.LAUNCHED and pod and pod.uid == record.new_uid and _waits(pod, record)
    return Mark(record, Step.CREATED) if waits else None


def _leftover(pod: WatchedPod | None, record: Relaunch) -> Request | None:
    """A pod of our making that W does not stand for: it never lost its gate, and never will."""
    if pod and _ours(pod, record) and pod.uid != record.new_uid and RELAUNCH_GATE in pod.gates and not pod.deleting:
        return Delete(pod)
    return None


def _cancelled(record: Relaunch) -> Request:
    return Mark(record, Step.CANCELLED, why="somebody deleted the refused pod")


def _claimed(pod: WatchedPod) -> bool:
    return RELAUNCH_FINALIZER in pod.finalizers


def _waits(pod: WatchedPod, record: Relaunch) -> bool:
    """Whether N waits behind our gate, W having been written again."""
    return _ours(pod, record) and RELAUNCH_GATE in pod.gates and not pod.deleting


def _orphaned(progress: Progress, pod: WatchedPod) -> bool:
    """Whether the pod is an N that waits behind our gate for a W that is no more."""
    ours = pod.replaces == progress.uid and pod.record == progress.record_name
    return ours and RELAUNCH_GATE in pod.gates and not pod.deleting


def _ours(pod: WatchedPod, record: Relaunch) -> bool:
    return pod.record == record.name and pod.replaces == record.pod_uid
