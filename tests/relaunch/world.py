"""A model of what the protocol meets: one pod name, one record, the API server's versions and preconditions.

Small and hashable, so that every interleaving of operators, faults and strangers can be walked. Whatever the API server
would check is a switch in ``Rules``, so that a test can show what each check is for.
"""

from dataclasses import dataclass, replace

from topomend.model.cluster import WatchedPod
from topomend.model.pod import Pod
from topomend.model.relaunch import Relaunch, Step
from topomend.relaunch import protocol
from topomend.wire.group import RELAUNCH_FINALIZER, RELAUNCH_GATE

OLD = "old"
RECORD = "p-record"
FOREIGN = "foreign"


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Rules:
    """What is in force; each one that is off is a fault of the protocol that some walk must find."""

    delete_preconditions: bool = True
    gate: bool = True
    finalizer: bool = True
    record_versions: bool = True
    launch_only_the_recorded: bool = True


@dataclass(frozen=True)
class Thing:
    """The pod that has the name."""

    uid: str
    version: int
    failed: bool = False
    claimed: bool = False
    ours: bool = False
    gated: bool = False
    deleting: bool = False

    def watched(self) -> WatchedPod:
        return WatchedPod(
            namespace="ns",
            name="p",
            uid=self.uid,
            version=str(self.version),
            pod=Pod("ns", "p", self.uid),
            phase="Failed" if self.failed else "Pending",
            deleting=self.deleting,
            finalizers=(RELAUNCH_FINALIZER,) if self.claimed else (),
            gates=(RELAUNCH_GATE,) if self.gated else (),
            record=RECORD if self.claimed or self.ours else "",
            replaces=OLD if self.ours else "",
        )


@dataclass(frozen=True)
class Entry:
    """The record."""

    version: int
    step: Step = Step.RECORDED
    new_uid: str = ""

    def relaunch(self) -> Relaunch:
        return Relaunch(
            namespace="ns",
            name=RECORD,
            pod_name="p",
            pod_uid=OLD,
            refused_by="n",
            reason="TopologyAffinityError",
            message="",
            attempt=1,
            manifest={},
            step=self.step,
            new_uid=self.new_uid,
            version=str(self.version),
        )


@dataclass(frozen=True)
class World:
    """What the API server holds, and what has ever happened that an invariant asks for."""

    pod: Thing | None
    entry: Entry | None = None
    version: int = 1
    made: int = 0
    let_go: frozenset[str] = frozenset()
    interfered: bool = False

    def bumped(self) -> "World":
        return replace(self, version=self.version + 1)


def start() -> World:
    return World(Thing(OLD, 1, failed=True))


def serve(world: World, request: protocol.Request, rules: Rules) -> tuple[World, protocol.Answer]:
    """Do what a request asks, as the API server would."""
    match request:
        case protocol.ReadPod():
            return world, protocol.PodIs(world.pod.watched() if world.pod else None)
        case protocol.ReadRecord():
            return world, protocol.RecordIs(world.entry.relaunch() if world.entry else None)
        case protocol.Choose():
            return world, protocol.NodesAre(("n",))
        case protocol.Record() if world.entry is None:
            after = replace(world.bumped(), entry=Entry(world.version + 1))
            return after, protocol.RecordIs(after.entry.relaunch() if after.entry else None)
        case protocol.Mark():
            return _mark(world, request, rules)
        case protocol.Create() if world.pod is None:
            after = world.bumped()
            made = Thing(f"new{world.made}", after.version, ours=True, gated=rules.gate)
            after = replace(after, pod=made, made=world.made + 1)
            if not rules.gate:
                after = replace(after, let_go=after.let_go | {made.uid})
            return after, protocol.PodIs(made.watched())
        case protocol.Claim(pod) | protocol.Unclaim(pod) | protocol.Delete(pod) | protocol.Launch(pod):
            return _on_pod(world, request, pod, rules)
    return world, protocol.NotAsExpected()


def _mark(world: World, mark: protocol.Mark, rules: Rules) -> tuple[World, protocol.Answer]:
    entry = world.entry
    if entry is None or (rules.record_versions and str(entry.version) != mark.record.version):
        return world, protocol.NotAsExpected()
    after = world.bumped()
    marked = Entry(after.version, mark.step, mark.new_uid or mark.record.new_uid)
    return replace(after, entry=marked), protocol.RecordIs(marked.relaunch())


def _on_pod(world: World, request: protocol.Request, pod: WatchedPod, rules: Rules) -> tuple[World, protocol.Answer]:
    there = world.pod
    is_delete = isinstance(request, protocol.Delete)
    checked = rules.delete_preconditions or not is_delete
    if there is None or (checked and (there.uid, str(there.version)) != (pod.uid, pod.version)):
        return world, protocol.NotAsExpected()
    if is_delete:
        if not (there.failed or (there.ours and there.gated)):
            raise Broken(f"I4: {there.uid} was deleted, which neither failed nor waited behind our gate")
        return _answered(delete(world))
    after = world.bumped()
    match request:
        case protocol.Claim() if there.deleting:
            return world, protocol.NotAsExpected()
        case protocol.Claim():
            there = replace(there, claimed=rules.finalizer, version=after.version)
            seen = replace(there, claimed=True)
            return replace(after, pod=there), protocol.PodIs(seen.watched())
        case protocol.Unclaim() if there.deleting:
            return _answered(replace(after, pod=None))
        case protocol.Unclaim():
            return replace(after, pod=replace(there, claimed=False, version=after.version)), protocol.NotAsExpected()
    there = replace(there, gated=False, version=after.version)
    return _answered(replace(after, pod=there, let_go=world.let_go | {there.uid}))


def _answered(world: World) -> tuple[World, protocol.Answer]:
    return world, protocol.PodIs(world.pod.watched() if world.pod else None)


def delete(world: World) -> World:
    """A delete by name, as a user or the pod garbage collector sends it."""
    if world.pod is None or world.pod.deleting:
        return world
    after = world.bumped()
    if world.pod.claimed:
        return replace(after, pod=replace(world.pod, deleting=True, version=after.version))
    return replace(after, pod=None)


def squat(world: World) -> World:
    """Somebody takes the free name."""
    after = world.bumped()
    return replace(after, pod=Thing(FOREIGN, after.version), interfered=True)


def check(world: World) -> None:
    """Raise Broken for an invariant that does not hold."""
    if len(world.let_go) > 1:
        raise Broken(f"I1: {sorted(world.let_go)} all lost our gate")
    old_is_there = world.pod is not None and world.pod.uid == OLD
    ended = world.entry is not None and world.entry.step.ended
    is_kept = old_is_there or world.let_go or world.interfered or (world.entry is not None and not ended)
    if not is_kept:
        raise Broken("I2: neither the pod, nor an open record, nor a replacement is left, and nobody else took it")
    if ended and world.pod and old_is_there and world.pod.claimed:
        raise Broken("I3: an ended record left our finalizer behind")
