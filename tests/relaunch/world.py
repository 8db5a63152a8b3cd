"""A model of what the protocol meets: one pod name, one record, the API server's versions and preconditions.

Small and hashable, so that every interleaving of operators, faults and strangers can be walked: tuples, because Python
hashes them fastest. Whatever the API server would check is a switch in ``Rules``, so that a test can show what each
check is for.

Of a version only matters whether it is today's: one that is not never will be again. Every thing in the world is of
version NOW; what changes in a step has NEXT, until ``Situation`` in ``walk.py`` makes that today's.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import REFUSAL_PREFIX, WatchedPod
from topomend.model.relaunch_record import UNSCHEDULABLE, Relaunch, Step
from topomend.relaunch import messages, protocol
from topomend.wire.group import RELAUNCH_FINALIZER, RELAUNCH_GATE

OLD = "old"
RECORD = "p-record"
FOREIGN = "foreign"

BEFORE, NOW, NEXT = 0, 1, 2

UNCOMMITTED = (None, Step.RECORDED)


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Rules:
    """What is in force; each one that is off is a fault of the protocol that some walk must find.

    A precondition is the uid and the resourceVersion that a write names (``manifest.claim``, ``unclaim`` and
    ``launch``, the driver's delete), or the resourceVersion alone (its mark). ``record_once`` is that a second record
    of the same pod has the name of the first.
    """

    claim_precondition: bool = True
    unclaim_precondition: bool = True
    delete_precondition: bool = True
    launch_precondition: bool = True
    mark_precondition: bool = True
    protect_precondition: bool = True
    record_once: bool = True
    record_finalizer: bool = True
    gate: bool = True
    finalizer: bool = True


class Thing(NamedTuple):
    """The pod that has the name. ``claimed``: it has our finalizer and the record's name. ``bound``: it has a node.
    ``edited``: its user changed it."""

    uid: str
    version: int = NEXT
    failed: bool = False
    claimed: bool = False
    ours: bool = False
    gated: bool = False
    deleting: bool = False
    bound: bool = False
    edited: bool = False

    @property
    def digest(self) -> str:
        """That of its manifest."""
        return "edited" if self.edited else ""

    @cache  # noqa: B019  there are few
    def watched(self) -> WatchedPod:
        return WatchedPod(
            namespace="ns",
            name="p",
            uid=self.uid,
            version=str(self.version),
            pod=Pod("ns", "p", self.uid),
            phase="Failed" if self.failed else "Pending",
            message=REFUSAL_PREFIX if self.failed else "",
            node="n" if self.bound else "",
            deleting=self.deleting,
            finalizers=(RELAUNCH_FINALIZER,) if self.claimed else (),
            gates=(RELAUNCH_GATE,) if self.gated else (),
            record=RECORD if self.claimed or self.ours else "",
            replaces=OLD if self.ours else "",
            generation=1 + self.edited,
        )


class Entry(NamedTuple):
    """The record. ``protected``: it has our finalizer. ``manifest``: it is a copy of the pod. ``unbound``: that was not
    refused, and no scheduler bound it. ``edited``: the pod had been changed when it was recorded."""

    version: int = NEXT
    step: Step = Step.RECORDED
    new_uid: str = ""
    protected: bool = False
    deleting: bool = False
    manifest: bool = False
    unbound: bool = False
    edited: bool = False

    @cache  # noqa: B019  there are few
    def relaunch(self) -> Relaunch:
        return Relaunch(
            namespace="ns",
            name=RECORD,
            pod_name="p",
            pod_uid=OLD,
            refused_by="n",
            reason=UNSCHEDULABLE if self.unbound else "TopologyAffinityError",
            message="",
            attempt=1,
            manifest={"metadata": {}} if self.manifest else {},
            step=self.step,
            new_uid=self.new_uid,
            version=str(self.version),
            protected=self.protected,
            deleting=self.deleting,
            manifest_hash="edited" if self.edited else "",
        )


def thing_of(pod: WatchedPod) -> Thing:
    """The thing that was read."""
    return Thing(
        pod.uid,
        int(pod.version),
        failed=pod.phase == "Failed",
        claimed=bool(pod.finalizers),
        ours=bool(pod.replaces),
        gated=bool(pod.gates),
        deleting=pod.deleting,
        bound=bool(pod.node),
        edited=pod.generation > 1,
    )


def entry_of(record: Relaunch) -> Entry:
    """The record that was read."""
    return Entry(
        int(record.version),
        record.step,
        record.new_uid,
        record.protected,
        record.deleting,
        bool(record.manifest),
        record.is_of_unbound,
        bool(record.manifest_hash),
    )


class World(NamedTuple):
    """What the API server holds, and what has ever happened that an invariant asks for.

    ``unbound`` is that the pod was not refused, and no scheduler bound it at first. ``ungate`` are the pods that can
    run: those that lost our gate or were bound. ``excused`` is that a stranger ended the relaunch: he deleted the pod
    before the commit or once it was bound, deleted its replacement, or took the name. ``was_claimed`` is that the pod
    had our finalizer since the API server last denied its record or we gave it back. ``given_back`` is that topomend
    left the cluster before the pod's end was its doing, ``record_deleted`` that somebody deleted a record,
    ``forgotten`` one that knew of its replacement: who acts by it later, having read it before, may make another.
    ``ends`` is that the namespace does.
    """

    pod: Thing | None
    entry: Entry | None = None
    made: int = 0
    ungate: frozenset[str] = frozenset()
    excused: bool = False
    was_claimed: bool = False
    given_back: bool = False
    record_deleted: bool = False
    forgotten: bool = False
    ends: bool = False
    unbound: bool = False

    @property
    def step(self) -> Step | None:
        """How far the record says that the relaunch has come."""
        return self.entry.step if self.entry else None


def start(*, unbound: bool = False, noted: bool = False) -> World:
    """``noted``: a record says already what the pod waits for. Nothing has been done to the pod, so anybody may delete
    the record."""
    entry = Entry(NOW, unbound=unbound) if noted else None
    return World(Thing(OLD, NOW, failed=not unbound), entry, unbound=unbound)


def serve(world: World, request: messages.Request, rules: Rules) -> tuple[World, messages.Answer]:
    """Do what a request asks, as the API server would."""
    match request:
        case messages.ReadPod():
            return _answered(world)
        case messages.ReadRecord():
            return world, messages.RecordIs(world.entry.relaunch() if world.entry else None)
        case messages.Choose():
            return world, messages.NodesAre(("n",))
        case messages.Record() | messages.Restore():
            return _record(world, request, rules)
        case messages.Confirm(record) if entry_of(record) == world.entry:
            return world, messages.RecordIs(record)
        case messages.Commit() | messages.Mark() | messages.Protect() | messages.Unprotect() | messages.Discard():
            return _on_record(world, request, rules)
        case messages.Create() if world.ends:
            return world, messages.NamespaceEnds()
        case messages.Create(record) if world.pod is None:
            return _create(world, entry_of(record), rules)
        case messages.Claim(pod) | messages.Unclaim(pod) | messages.Delete(pod) | messages.Launch(pod):
            return _on_pod(world, request, thing_of(pod), rules)
    return world, messages.NotAsExpected()


def _record(world: World, request: messages.Record | messages.Restore, rules: Rules) -> tuple[World, messages.Answer]:
    if world.ends:
        return world, messages.NamespaceEnds()
    if world.entry and rules.record_once:
        return world, messages.NotAsExpected()
    is_of_pod = isinstance(request, messages.Record)
    pod = thing_of(request.pod)
    entry = Entry(protected=is_of_pod, unbound=is_of_pod and not pod.failed, edited=pod.edited)
    return world._replace(entry=entry), messages.RecordIs(entry.relaunch())


def _on_record(
    world: World,
    request: messages.Commit | messages.Mark | messages.Protect | messages.Unprotect | messages.Discard,
    rules: Rules,
) -> tuple[World, messages.Answer]:
    expected, current = entry_of(request.record), world.entry
    is_mark = isinstance(request, messages.Commit | messages.Mark)
    is_checked = rules.mark_precondition if is_mark else rules.protect_precondition
    if current is None or (is_checked and expected.version != current.version):
        return world, messages.NotAsExpected()
    match request:
        case messages.Commit():
            is_copy = thing_of(request.pod).edited == current.edited
            after = current._replace(version=NEXT, step=Step.COMMITTED, new_uid=expected.new_uid, manifest=is_copy)
        case messages.Mark(step=step, new_uid=new_uid, why=why):
            has_manifest = current.manifest and not step.ended
            after = current._replace(
                version=NEXT, step=step, new_uid=new_uid or expected.new_uid, manifest=has_manifest
            )
            world = world._replace(given_back=world.given_back or why == protocol.DRAINED)
        case messages.Protect() if current.deleting:
            return world, messages.NotAsExpected()
        case messages.Protect():
            after = current._replace(version=NEXT, protected=True)
        case messages.Discard() if current.protected:
            after = current._replace(version=NEXT, deleting=True)
        case messages.Unprotect() | messages.Discard() if current.deleting or not current.protected:
            return _without_entry(world), messages.RecordIs(None)
        case messages.Unprotect():
            after = current._replace(version=NEXT, protected=False)
    return world._replace(entry=after), messages.RecordIs(after.relaunch())


def _create(world: World, read: Entry, rules: Rules) -> tuple[World, messages.Answer]:
    if not read.manifest:
        raise Broken("I2: a replacement was to be created from a record without a manifest")
    if world.step in UNCOMMITTED and not world.forgotten:
        raise Broken(f"I2: a replacement was created while its record was {world.step}")
    made = Thing(f"new{world.made}", ours=True, gated=rules.gate)
    ungate = world.ungate if rules.gate else world.ungate | {made.uid}
    return _answered(world._replace(pod=made, made=world.made + 1, ungate=ungate))


def _on_pod(world: World, request: messages.Request, expected: Thing, rules: Rules) -> tuple[World, messages.Answer]:
    pod = world.pod
    if isinstance(request, messages.Delete) and world.entry and expected.uid == world.entry.new_uid:
        raise Broken(f"I4: {expected.uid}, for which the record stands, was to be deleted")
    if pod is None or (_is_checked(request, rules) and (pod.uid, pod.version) != (expected.uid, expected.version)):
        return world, messages.NotAsExpected()
    if pod.uid == FOREIGN:
        raise Broken(f"I4: {type(request).__name__} was sent for a stranger's pod")
    match request:
        case messages.Delete():
            _check_deleted(world, pod)
            return _answered(_deleted(world, pod, rules))
        case messages.Claim() if pod.deleting:
            return world, messages.NotAsExpected()
        case messages.Claim():
            return _answered(world._replace(pod=pod._replace(claimed=True, version=NEXT), was_claimed=True))
        case messages.Unclaim() if pod.deleting:
            return _answered(world._replace(pod=None))
        case messages.Unclaim():
            given_back = pod._replace(claimed=False, version=NEXT)
            return _answered(world._replace(pod=given_back, was_claimed=False))
    ungate = world._replace(pod=pod._replace(gated=False, version=NEXT), ungate=world.ungate | {pod.uid})
    return _answered(ungate)


def _is_checked(request: messages.Request, rules: Rules) -> bool:
    match request:
        case messages.Claim():
            return rules.claim_precondition
        case messages.Unclaim():
            return rules.unclaim_precondition
        case messages.Delete():
            return rules.delete_precondition
    return rules.launch_precondition


def _check_deleted(world: World, pod: Thing) -> None:
    """We delete the refused pod once its record is committed, and what we made and no record stands for."""
    if pod.bound and not pod.failed:
        raise Broken(f"I4: {pod.uid}, which a scheduler has bound, was deleted")
    if pod.uid == OLD and world.step in UNCOMMITTED:
        raise Broken(f"I2: the refused pod was deleted while its record was {world.step}")
    if pod.uid == OLD and world.entry and world.entry.edited != pod.edited:
        raise Broken("I2: a pod was deleted that was changed after it was recorded")
    is_leftover = world.forgotten if world.entry is None else pod.uid != world.entry.new_uid
    if pod.uid != OLD and not (pod.gated and is_leftover):
        raise Broken(f"I4: {pod.uid} was deleted, which neither failed nor waited behind our gate for nothing")


def _answered(world: World) -> tuple[World, messages.Answer]:
    return world, messages.PodIs(world.pod.watched(), world.pod.digest) if world.pod else messages.PodIs(None)


def _deleted(world: World, pod: Thing, rules: Rules) -> World:
    has_finalizer = pod.claimed and rules.finalizer
    return world._replace(pod=pod._replace(deleting=True, version=NEXT) if has_finalizer else None)


# Strangers


def delete(world: World, rules: Rules) -> World:
    """A delete by name, as a user or the pod garbage collector sends it."""
    pod = world.pod
    if pod is None or pod.deleting:
        return world
    is_ended = world.entry is not None and world.entry.step.ended
    excuse = is_ended or world.step in UNCOMMITTED if pod.uid == OLD else pod.ours and _stands(pod, world.entry)
    is_changed = world.entry is not None and pod.edited != world.entry.edited  # we would not delete it
    excuse = excuse or pod.bound or is_changed
    return _deleted(world, pod, rules)._replace(excused=world.excused or excuse)


def _stands(pod: Thing, entry: Entry | None) -> bool:
    """Whether the record stands for this pod, or may come to."""
    return entry is None or entry.new_uid in ("", pod.uid)


def bind(world: World) -> World:
    """The scheduler binds the pod: it can run from now on."""
    pod = world.pod
    if pod is None or pod.uid != OLD or pod.failed or pod.bound or pod.deleting:
        return world
    return world._replace(pod=pod._replace(bound=True, version=NEXT), ungate=world.ungate | {pod.uid})


def edit(world: World) -> World:
    """The pod's user changes its labels."""
    pod = world.pod
    if pod is None or pod.uid != OLD or pod.edited or pod.deleting:
        return world
    return world._replace(pod=pod._replace(edited=True, version=NEXT))


def delete_record(world: World, rules: Rules) -> World:
    """A delete of the record by name: its user's, or that of its kind's or its namespace's end."""
    entry = world.entry
    if entry is None or entry.deleting:
        return world
    if entry.protected and rules.record_finalizer:
        return world._replace(entry=entry._replace(version=NEXT, deleting=True))
    return _without_entry(world)


def _without_entry(world: World) -> World:
    entry = world.entry
    forgotten = world.forgotten or (entry is not None and (entry.step.ended or bool(entry.new_uid)))
    return world._replace(entry=None, record_deleted=True, forgotten=forgotten)


def end_namespace(world: World) -> World:
    """From now on nothing can be created; the namespace controller deletes what is there, at any moments."""
    return world._replace(ends=True, excused=True)


def squat(world: World) -> World:
    """Somebody takes the free name, with a pod that a kubelet refuses too."""
    return world._replace(pod=Thing(FOREIGN, failed=True), excused=True)


# Invariants


def check(world: World) -> None:
    """Raise Broken for an invariant that does not hold at every moment."""
    pod, entry = world.pod, world.entry
    if len(world.ungate) > 1 and not (world.forgotten or world.ends):
        raise Broken(f"I1: {sorted(world.ungate)} can all run")
    ended = entry is not None and entry.step.ended
    old_is_there = pod is not None and pod.uid == OLD
    new_is_there = pod is not None and entry is not None and pod.uid == entry.new_uid
    is_orphan = pod is not None and entry is None and pod.ours and pod.gated
    is_copy = entry is not None and not ended and entry.manifest
    waits = pod is not None and pod.ours and pod.gated and not ended and _stands(pod, entry)
    is_kept = old_is_there or new_is_there or waits or is_copy
    if not (is_kept or world.ungate or world.excused):
        raise Broken("I2: neither the pod, nor a copy in an open record, nor a replacement is left, by nobody's fault")
    if entry and entry.manifest and (ended or entry.step is Step.RECORDED):
        raise Broken(f"I8: a record that is {entry.step.value} holds a manifest")
    if entry and entry.step is Step.LAUNCHED and entry.new_uid not in world.ungate:
        raise Broken(f"I2: the record says that {entry.new_uid} was launched, and it was {sorted(world.ungate)}")
    is_told = entry is not None or is_orphan or world.ungate or world.ends or world.record_deleted
    if world.was_claimed and not old_is_there and not is_told:
        raise Broken("I2: a pod that we had claimed is gone, and no record tells of it")
    if ended and pod and old_is_there and pod.claimed and not (world.given_back or pod.bound or pod.edited):
        raise Broken("I3: an ended record left our finalizer behind")


def check_told(world: World) -> None:
    """Raise Broken where a pod has our finalizer that may run, so that no watch has it, and no open record tells of it.

    A drain looks at every pod. Nor does it hold where a read is answered from an older state: such a pod is found once
    it fails or is deleted before it runs.
    """
    pod, entry = world.pod, world.entry
    if pod and pod.claimed and not pod.failed and not (entry and entry.protected) and not world.given_back:
        raise Broken(f"I9: no open record tells of {pod.uid}, which has our finalizer and may run")


def check_end(world: World, *, drained: bool = False) -> None:
    """Raise Broken for what does not hold once nothing is left to do, for an operator or for a drain."""
    check(world)
    pod, entry = world.pod, world.entry
    if pod and pod.claimed:
        raise Broken(f"I3: our finalizer stays on {pod.uid}")
    if pod and pod.ours and pod.gated and not world.ends:
        raise Broken(f"I5: {pod.uid} waits behind our gate for ever")
    if entry and not entry.step.ended and not (world.ends and pod):
        raise Broken(f"I5: the record stays {entry.step.value}")
    if entry and entry.protected and not (world.ends and pod):
        raise Broken("I6: our finalizer stays on the record")
    is_given_back = pod is not None and pod.uid == OLD and (world.given_back or drained or pod.edited)
    if not (world.ungate or world.excused or is_given_back):
        raise Broken("I5: nobody interfered, and the pod does not run")
