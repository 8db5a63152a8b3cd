"""The relaunch protocol as a pure state machine: ``step(progress, answer) -> (progress, request)``.

P is the refused pod, N its replacement of the same name, W the Relaunch record. The main line, one request each:

    read W, read P                                                     in this order: see below
    1. claim P: our finalizer and W's name, by P's resourceVersion     nobody can delete P unnoticed
    2. create W with the digest of P's manifest and our finalizer      from here on the record cannot be lost
    3. commit: mark W Committed, and write P's manifest into it        from here on we count P's deletion as ours
    4. delete P, by uid and resourceVersion
    5. remove our finalizer from P                                     P is gone
    6. create N behind our scheduling gate                             the gate is the fence: N cannot run yet
    7. mark W Created with N's uid                                     only this pod may lose the gate
    8. choose nodes; narrow N to them and ungate it, one PATCH
    9. mark W Launched, and drop its manifest
    10. remove our finalizer from W                                    W stays as a tombstone

With the name policy Suffix, N has a name of its own. Steps 6 and 7 then come before 4 and 5, so that one of the two
pods always exists (``_with_own_name``).

``messages`` names the requests and the answers. ``Progress`` holds what was read, not a position in that list. A new
attempt reads P and W and continues from there, so a crash between two requests needs no case of its own. Every write
names the uid and the resourceVersion it was decided on; where that precondition fails, everything is read again.

W is read before P. The absence of P means something only at a step that W had already reached: if P were read first,
that read could be older than N, and the read of W newer. A stale W does no harm, because every mark names its
resourceVersion. If the API server still answers a read from an older state, W may end although N waits; W is reopened
as soon as N is read. Where P exists although W says Created, W returns to Committed, but only once a write has
confirmed P: the read of P may be stale.

W alone has no effect. It may be written long before P is claimed, to say what the pod waits for. It has no manifest
then: P is there, and a manifest has megabytes. The write that commits P to deletion writes the manifest too, so W is a
copy of P before P may go; the write that ends the relaunch drops it. W's digest counts as long as it is that of P's
manifest. If it differs (P was changed since, or somebody else wrote W), N is never created while P exists: before the
commit W is written anew, and after it W is cancelled and P stays, once a write has confirmed P. If W vanishes while N
waits behind its gate, W is restored from N.

W's finalizer protects the only copy of a pod from the deletion of W, its kind, or its namespace. It is on W whenever P
may be gone and N may not exist yet. It is off while N waits for a node, so that it blocks no deletion in a cluster
without an operator. A deleted W that still has the finalizer is completed like any other, and vanishes when the
finalizer is removed. In a terminating namespace W is cancelled: nothing can be created there.

``draining`` runs the same protocol in a cluster that topomend leaves. No relaunch starts, and N is ungated for whatever
node its scheduler chooses. P is released unchanged as long as no other operator can have deleted it: until W is
committed, with the name policy Suffix until N exists.

P may also be unbound: narrowed and ungated, and bound by no scheduler to any of its nodes (``record.is_of_unbound``).
It may be bound at any moment. Then it stays: W ends, and nothing here deletes a pod that has a node. The API server
sees to that: the deletion names P's resourceVersion, which a binding changes, and a pod that is being deleted is not
bound. Three things differ from the main line:

- Our finalizer is needed until W has ended. A pod that was bound after the commit may run, end and be deleted while no
  operator looks. Without the finalizer its absence would count as ours, and it would run twice. So W is created before
  P is claimed, and ends before the finalizer goes: nobody takes it off because he found no W.
- A P that is claimed and bound is found through W alone: the operator does not watch pods that run. So W has its
  finalizer before P is claimed, and until P is given back. A W that somebody deletes before P is claimed keeps it too,
  for another operator may be claiming P: P is claimed, which changes the version that such a claim names, and W is
  completed. Where W is gone nevertheless, because somebody forced it away or after a drain, it is written again; in a
  terminating namespace, where nothing can be created, P is given back.
- N has P's name, whatever the name policy: while P exists, no N can.

A user's delete wins until step 3, with the name policy Suffix until N exists, because P is not ours to delete earlier.
After that nobody can tell whether a user or another operator deleted P, and the deletion counts as ours: a surplus pod
that the user deletes again costs less than a lost one. A duplicate of N, whose uid is not W's (a process that woke late
repeated step 6), stays gated and is deleted, once a write has confirmed W: it may be the N of a later W.
"""

from dataclasses import dataclass, replace
from enum import Enum

from topomend.model.pods.scheduling import WatchedPod, is_refusal
from topomend.model.relaunch_record import Relaunch, Step
from topomend.relaunch.messages import (
    Answer,
    Choose,
    Claim,
    Commit,
    Confirm,
    Create,
    Delete,
    Denied,
    Discard,
    Launch,
    Mark,
    NamespaceEnds,
    NodesAre,
    Pause,
    PodIs,
    Protect,
    ReadPod,
    ReadRecord,
    ReadReplacement,
    Record,
    RecordIs,
    ReplacementIs,
    Request,
    Restore,
    Stop,
    Unclaim,
    Unprotect,
)
from topomend.wire.group import RELAUNCH_FINALIZER, RELAUNCH_GATE


class Unread(Enum):
    """The type of UNREAD: an object that was not read yet, or that may have changed since."""

    UNREAD = "unread"


UNREAD = Unread.UNREAD


@dataclass(frozen=True)
class Progress:
    """What was read so far.

    ``uid`` is P's, and ``record_name`` is W's name. ``may_start`` is whether a pod without a record may be claimed.
    ``pod`` is the pod that has the refused pod's name, ``record`` is W, and ``replacement`` is N where it has a name of
    its own; None means that there is none. ``digest`` is that of P's manifest as it would be recorded now. ``nodes`` is
    None before they were chosen, and empty where no node admits N now. ``denied`` is why the API server refuses to
    create N or W, empty where it does not. ``contradicted`` is whether a write found P although W says that N was
    created, or with another manifest than W's. ``confirmed`` is whether a write found W as it was read, after the pods
    were read. ``draining`` is whether topomend is leaving the cluster.
    ``namespace_ends`` is whether the namespace is being deleted, so that nothing can be created in it.
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
    confirmed: bool = False
    draining: bool = False
    namespace_ends: bool = False


BOUND = "a scheduler bound the pod after all"
CHANGED = "the pod was changed after it was recorded; delete it and create it again"
DRAINED = "topomend was drained; the refused pod is unchanged"
END_OF_RECORD = "the end of a deleted record"
NAMESPACE_ENDS = "its namespace is being deleted"
NOT_NOW = "the pod is not to be relaunched now"


def begin(uid: str, record_name: str, *, may_start: bool, draining: bool = False) -> tuple[Progress, Request]:
    """The first state and request of an attempt, be it the first one or one after a crash.

    ``uid`` is the refused pod's, ``record_name`` the name of its record. See ``Progress`` for the flags.
    """
    progress = Progress(uid, record_name, may_start, draining=draining)
    return progress, next_request(progress)


def step(progress: Progress, answer: Answer) -> tuple[Progress, Request]:
    """The state after the answer to the last request, and the next request."""
    updated = _updated(progress, answer)
    return updated, next_request(updated)


def _updated(progress: Progress, answer: Answer) -> Progress:
    match answer:
        case PodIs(pod, digest):
            contradicted = _is_contradicted(progress, pod, digest)
            return replace(progress, pod=pod, digest=digest, contradicted=contradicted, confirmed=False)
        case ReplacementIs(pod):
            return replace(progress, replacement=pod, confirmed=False)
        case RecordIs(record):
            return replace(progress, record=record, confirmed=progress.pod is not UNREAD)
        case NodesAre(nodes):
            return replace(progress, nodes=nodes)
        case Denied(why):
            return replace(progress, denied=why)
        case NamespaceEnds():
            return replace(progress, namespace_ends=True, denied=NAMESPACE_ENDS)
    return Progress(progress.uid, progress.record_name, progress.may_start, draining=progress.draining)


def _is_contradicted(progress: Progress, pod: WatchedPod | None, digest: str) -> bool:
    """Whether a write just found P although W says Created, or with another manifest than W's.

    P was read before, so this answer is a write's; a read's may come from an older state.
    """
    record = progress.record
    is_written = progress.pod is not UNREAD and pod is not None and pod.uid == progress.uid
    if not (is_written and isinstance(record, Relaunch)):
        return False
    return record.step is Step.CREATED or record.manifest_hash != digest


def next_request(progress: Progress) -> Request:
    """The next request. It depends on ``progress`` alone."""
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
    if refused and refused.node and record.is_of_unbound:
        return _bound(progress, refused, record)
    if not record.keeps_name:
        return _with_own_name(progress, refused, record)
    if refused:
        return _with_refused_pod(progress, refused, record)
    if record.step.ended:
        return _reopen(pod, record) or _delete_duplicate(progress, pod, record) or _ended(record)
    if record.step is Step.CREATED:
        return _created(progress, pod, record)
    return _uncreated(progress, pod, record)


def _name_taken(progress: Progress, pod: WatchedPod | None, record: Relaunch) -> Request:
    """The record of W's name belongs to another pod: undo the claim and leave P alone."""
    why = f"record {record.name} is another pod's, but this relaunch needs its name; delete the record if it is unused"
    if pod and _is_claimed(pod):
        return Unclaim(pod)
    return Pause(why) if pod and progress.may_start and not pod.deleting else Stop(why)


def _without_record(progress: Progress, pod: WatchedPod | None) -> Request:
    if pod is None or pod.uid != progress.uid:
        return _without_both(progress, pod)
    if not is_refusal(pod):
        return _unbound_without_record(progress, pod)
    if pod.deleting and _is_claimed(pod) and not progress.denied:
        return Record(pod)  # W then says what became of P; where W cannot be created, P ends without it
    if pod.deleting or progress.denied or not progress.may_start:
        return Unclaim(pod) if _is_claimed(pod) else _untouched(progress, pod)
    return Record(pod) if _is_claimed(pod) and pod.record == progress.record_name else Claim(pod)


def _bound(progress: Progress, pod: WatchedPod, record: Relaunch) -> Request:
    """W is of an unbound pod, and P has a node: P stays. If a kubelet has refused it since, it gets another W."""
    if not record.step.ended:
        return Mark(record, Step.CANCELLED, why=BOUND)
    if _is_claimed(pod):
        return Unclaim(pod)
    is_to_be_relaunched = progress.may_start and is_refusal(pod) and not pod.deleting
    return Discard(record) if is_to_be_relaunched and not record.protected else _ended(record)


def _unbound_without_record(progress: Progress, pod: WatchedPod) -> Request:
    """No kubelet refused P. If it is claimed, there is a W that was not read, or somebody forced W away."""
    if not _is_claimed(pod):
        may_start = progress.may_start and not (pod.node or pod.deleting or progress.denied)
        return Record(pod) if may_start else _untouched(progress, pod)
    if not progress.denied:
        return Record(pod)
    is_useless = progress.namespace_ends or (pod.deleting and not pod.node)
    return Unclaim(pod) if is_useless else Pause(progress.denied)


def _without_both(progress: Progress, pod: WatchedPod | None) -> Request:
    """Neither P nor W exists; ``pod`` is the one that has P's name now."""
    if pod is None or not _lost_its_record(progress, pod):
        return Stop("the pod is gone")
    if not progress.denied:
        return Restore(pod)
    return Launch(pod, ()) if progress.draining else Pause(progress.denied)


def _untouched(progress: Progress, pod: WatchedPod) -> Request:
    """Leave P alone: nothing was done to it."""
    return Pause(progress.denied) if progress.denied and not pod.deleting else Stop("the pod is not to be relaunched")


def _with_refused_pod(progress: Progress, pod: WatchedPod, record: Relaunch) -> Request:
    """P still exists."""
    if record.step.ended:
        return Unclaim(pod) if _is_claimed(pod) else _ended(record)
    if pod.deleting:
        return _terminating(pod, record)
    if record.step is Step.RECORDED:
        return _recorded(progress, pod, record)
    if record.step is Step.CREATED:  # N has P's name, so somebody else marked W, or the read of P is stale
        return Commit(pod, record) if progress.contradicted else Claim(pod)
    if record.deleting and not record.protected:
        return Pause(END_OF_RECORD)
    if record.manifest_hash != progress.digest:
        return _changed(progress, pod, record)
    if record.is_of_unbound and not _is_claimed(pod):
        return Claim(pod)
    return _protect_first(record) or (Delete(pod) if record.manifest else Commit(pod, record))


def _changed(progress: Progress, pod: WatchedPod, record: Relaunch) -> Request:
    """P was changed after W was committed, and stays as it is: W is no copy of it."""
    # Only a write shows that P is still there: a read may be stale, and W all that is left. Nobody misses a P that its
    # user deletes.
    is_certain = progress.contradicted or pod.deleting
    return Mark(record, Step.CANCELLED, why=CHANGED) if is_certain else Claim(pod)


def _recorded(progress: Progress, pod: WatchedPod, record: Relaunch) -> Request:
    """P and W exist, and P is not committed to deletion yet."""
    if progress.draining:
        return _give_back(pod, record)
    if record.is_of_unbound:
        return _unbound_recorded(progress, pod, record)
    if record.deleting:
        return Unprotect(record) if record.protected else Pause(END_OF_RECORD)
    if not _is_claimed(pod):
        return Claim(pod) if progress.may_start else Stop(NOT_NOW)
    if record.manifest_hash != progress.digest:
        return Discard(record)
    return _protect_first(record) or Commit(pod, record)


def _unbound_recorded(progress: Progress, pod: WatchedPod, record: Relaunch) -> Request:
    """The same for an unbound P. W keeps its finalizer, and a W that is being deleted is completed."""
    if record.deleting and not record.protected:
        return Pause(END_OF_RECORD)
    is_its = record.manifest_hash == progress.digest
    if _is_claimed(pod):
        return (_protect_first(record) or Commit(pod, record)) if is_its else Mark(record, Step.CANCELLED, why=CHANGED)
    if record.deleting:
        return Claim(pod)
    if not progress.may_start:
        return Stop(NOT_NOW)
    if not (is_its or record.protected):
        return Discard(record)
    return _protect_first(record) or Claim(pod)


def _give_back(pod: WatchedPod, record: Relaunch) -> Request:
    """Release P, and end W without an N."""
    is_first = _is_claimed(pod) and not record.is_of_unbound
    return Unclaim(pod) if is_first else Mark(record, Step.CANCELLED, why=DRAINED)


def _terminating(pod: WatchedPod, record: Relaunch) -> Request:
    """P is being deleted. The finalizer goes first and the mark second, so that no ended record leaves one behind."""
    if _is_claimed(pod):
        return (record.step is not Step.RECORDED and _protect_first(record)) or Unclaim(pod)
    return _cancel(record) if record.step is Step.RECORDED else Pause("the end of the refused pod")


def _uncreated(progress: Progress, pod: WatchedPod | None, record: Relaunch) -> Request:
    """P is gone, and W does not name N yet."""
    if record.step is Step.RECORDED:
        return Mark(record, Step.CREATED, new_uid=pod.uid) if pod and _waits_gated(pod, record) else _cancel(record)
    if pod is None:
        return _create(progress, record)
    if not _made_from(pod, record):
        return Mark(record, Step.SUPERSEDED, why=f"another pod took the name {record.pod_name}")
    if pod.deleting:
        return Pause("the end of a deleted replacement")
    return Mark(record, Step.CREATED, new_uid=pod.uid)


def _create(progress: Progress, record: Relaunch) -> Request:
    if progress.namespace_ends:
        return Mark(record, Step.CANCELLED, why=NAMESPACE_ENDS)
    if not progress.denied:
        return _protect_first(record) or Create(record)
    if record.step is not Step.BLOCKED:
        return Mark(record, Step.BLOCKED, why=progress.denied)
    return Pause(progress.denied)


def _created(progress: Progress, pod: WatchedPod | None, record: Relaunch) -> Request:
    if pod is None or (pod.uid == record.new_uid and pod.deleting):
        return Mark(record, Step.CANCELLED, why="the replacement was deleted before it was ungated")
    if pod.uid != record.new_uid:
        return _delete_duplicate(progress, pod, record) or Mark(
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


def _with_own_name(progress: Progress, refused: WatchedPod | None, record: Relaunch) -> Request:
    """N has a name of its own: create it first, then delete P (``refused``, None once it is gone), then ungate N."""
    if record.step is Step.RECORDED and refused:
        return _terminating(refused, record) if refused.deleting else _recorded(progress, refused, record)
    if record.step.ended and refused and _is_claimed(refused):
        return Unclaim(refused)
    if progress.replacement is UNREAD:
        return ReadReplacement(record)
    replacement = progress.replacement
    if record.step.ended:
        return _reopen(replacement, record) or _delete_duplicate(progress, replacement, record) or _ended(record)
    if record.step is Step.RECORDED:
        return (
            Mark(record, Step.CREATED, new_uid=replacement.uid)
            if replacement and _waits_gated(replacement, record)
            else _cancel(record)
        )
    if record.step is not Step.CREATED:
        return _with_own_name_uncreated(progress, refused, replacement, record)
    if replacement is None or replacement.uid != record.new_uid or replacement.deleting:
        return Unclaim(refused) if refused and _is_claimed(refused) else _created(progress, replacement, record)
    if refused:
        return _delete_refused(refused)
    return _created(progress, replacement, record)


def _with_own_name_uncreated(
    progress: Progress, refused: WatchedPod | None, replacement: WatchedPod | None, record: Relaunch
) -> Request:
    """W is committed and does not name N yet. If P vanished meanwhile, N still replaces it."""
    if refused and not (replacement and _made_from(replacement, record)):
        if refused.deleting:
            return _cancel(record)
        if progress.draining:
            return _give_back(refused, record)
    if refused and record.manifest_hash != progress.digest:
        return _changed(progress, refused, record)
    if replacement is None:
        return Commit(refused, record) if refused and not record.manifest else _create(progress, record)
    if not _made_from(replacement, record):
        return _create(replace(progress, denied=f"another pod has the name {replacement.name}"), record)
    if replacement.deleting:
        return Pause("the end of a deleted replacement")
    return Mark(record, Step.CREATED, new_uid=replacement.uid)


def _delete_refused(refused: WatchedPod) -> Request:
    """N waits behind our gate, and P still exists: delete it."""
    if not refused.deleting:
        return Delete(refused)
    return Unclaim(refused) if _is_claimed(refused) else Pause("the end of the refused pod")


def _ended(record: Relaunch) -> Request:
    """The relaunch is over: release W itself, then stop."""
    return Unprotect(record) if record.protected else Stop(record.step.value)


def _protect_first(record: Relaunch) -> Request | None:
    """Put our finalizer on W, where it lacks it, before W becomes the only copy of the pod.

    The API server accepts no new finalizer on a W that is being deleted.
    """
    return None if record.protected or record.deleting else Protect(record)


def _reopen(pod: WatchedPod | None, record: Relaunch) -> Request | None:
    """Reopen W where N still waits behind our gate: an operator read a stale state, or somebody else ended W."""
    waits = pod and pod.uid == record.new_uid and _waits_gated(pod, record)
    return Mark(record, Step.CREATED) if waits else None


def _delete_duplicate(progress: Progress, pod: WatchedPod | None, record: Relaunch) -> Request | None:
    """Delete a duplicate of N: ``pod``, which is not N itself, waits behind our gate, and will never lose it.

    W is confirmed before: ``pod`` may be the N of another W, which has followed this one under its name.
    """
    if pod is None or not _waits_gated(pod, record):
        return None
    return Delete(pod) if progress.confirmed else Confirm(record)


def _cancel(record: Relaunch) -> Request:
    return Mark(record, Step.CANCELLED, why="the refused pod was deleted by someone else")


def _is_claimed(pod: WatchedPod) -> bool:
    return RELAUNCH_FINALIZER in pod.finalizers


def _waits_gated(pod: WatchedPod, record: Relaunch) -> bool:
    """Whether the pod was created from W and waits behind our gate."""
    return _made_from(pod, record) and RELAUNCH_GATE in pod.gates and not pod.deleting


def _lost_its_record(progress: Progress, pod: WatchedPod) -> bool:
    """Whether the pod is an N that waits behind our gate for a W that was deleted."""
    names_record = pod.replaces == progress.uid and pod.record == progress.record_name
    return names_record and RELAUNCH_GATE in pod.gates and not pod.deleting


def _made_from(pod: WatchedPod, record: Relaunch) -> bool:
    return pod.record == record.name and pod.replaces == record.pod_uid
