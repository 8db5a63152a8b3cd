"""The name policy Suffix, walked through: the replacement has a name of its own and is there before the pod goes.

Every interleaving of two operators, faults, an API server that denies the replacement, and somebody who deletes or
edits either pod, on a model of two pod names and one record.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from tests.relaunch.guards import Guard, lacking
from tests.relaunch.walk import Bounds, Machine

from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import REFUSAL_PREFIX, WatchedPod
from topomend.model.relaunch_record import Relaunch, Step
from topomend.relaunch import messages, protocol
from topomend.wire.group import RELAUNCH_FINALIZER, RELAUNCH_GATE

OLD, RECORD = "old", "p-record"
PROTOCOL = Machine()


@dataclass(frozen=True)
class Thing:
    """A pod; ``digest`` is that of what it would be recorded as."""

    name: str
    uid: str
    version: int
    claimed: bool = False
    ours: bool = False
    gated: bool = False
    deleting: bool = False
    digest: str = ""

    def watched(self) -> WatchedPod:
        return WatchedPod(
            namespace="ns",
            name=self.name,
            uid=self.uid,
            version=str(self.version),
            pod=Pod("ns", self.name, self.uid),
            phase="Pending" if self.ours else "Failed",
            message="" if self.ours else REFUSAL_PREFIX,
            deleting=self.deleting,
            finalizers=(RELAUNCH_FINALIZER,) if self.claimed else (),
            gates=(RELAUNCH_GATE,) if self.gated else (),
            record=RECORD if self.claimed or self.ours else "",
            replaces=OLD if self.ours else "",
        )


@dataclass(frozen=True)
class Entry:
    version: int
    step: Step = Step.RECORDED
    new_uid: str = ""
    digest: str = ""
    protected: bool = False
    manifest: str = ""

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
            manifest={"metadata": {"name": self.manifest}} if self.manifest else {},
            own_name="p-r1",
            step=self.step,
            new_uid=self.new_uid,
            version=str(self.version),
            manifest_hash=self.digest,
            protected=self.protected,
        )


@dataclass(frozen=True)
class World:
    old: Thing | None
    new: Thing | None = None
    entry: Entry | None = None
    version: int = 1
    made: int = 0
    ungate: frozenset[str] = frozenset()
    created_as: str = ""
    interfered: bool = False

    def bumped(self) -> "World":
        return replace(self, version=self.version + 1)


def start() -> World:
    return World(Thing("p", OLD, 1))


def serve(world: World, request: messages.Request, digest: str) -> tuple[World, messages.Answer]:
    """Do what a request asks, as the API server would; ``digest`` is that of the manifest as the operator read it."""
    after = world.bumped()
    match request:
        case messages.ReadPod():
            return world, _pod_is(world.old)
        case messages.ReadReplacement():
            return world, messages.ReplacementIs(world.new.watched() if world.new else None)
        case messages.ReadRecord():
            return world, messages.RecordIs(world.entry.relaunch() if world.entry else None)
        case messages.Choose():
            return world, messages.NodesAre(("n",))
        case messages.Record() if world.entry is None:
            entry = Entry(after.version, digest=digest, protected=True)
            return replace(after, entry=entry), messages.RecordIs(entry.relaunch())
        case messages.Discard(record) if world.entry and str(world.entry.version) == record.version:
            return replace(after, entry=None), messages.RecordIs(None)
        case (
            messages.Commit(record=record)
            | messages.Mark(record)
            | messages.Protect(record)
            | messages.Unprotect(record)
            | messages.Confirm(record)
        ) if world.entry and str(world.entry.version) == record.version:
            return _on_entry(world, world.entry, request, digest)
        case messages.Create(record) if world.new is None:
            assert record.manifest, "I2: a replacement is created from a record with a manifest"
            made = Thing("p-r1", f"new{world.made}", after.version, ours=True, gated=True)
            created = replace(after, new=made, made=world.made + 1, created_as=record.manifest_hash)
            return created, messages.ReplacementIs(made.watched())
        case messages.Claim(pod) | messages.Unclaim(pod) | messages.Delete(pod) | messages.Launch(pod):
            return _on_pod(world, request, pod)
    return world, messages.NotAsExpected()


def _on_entry(world: World, entry: Entry, request: messages.Request, digest: str) -> tuple[World, messages.Answer]:
    if isinstance(request, messages.Confirm):
        return world, messages.RecordIs(entry.relaunch())
    after = world.bumped()
    patched = _patched(replace(entry, version=after.version), request, digest)
    return replace(after, entry=patched), messages.RecordIs(patched.relaunch())


def _patched(entry: Entry, request: messages.Request, digest: str) -> Entry:
    if isinstance(request, messages.Commit):
        assert digest == request.record.manifest_hash, "only the pod that was recorded is written into its record"
        return replace(entry, step=Step.COMMITTED, manifest=f"of {digest}")
    if isinstance(request, messages.Mark):
        text = "" if request.step.ended else entry.manifest
        return replace(entry, step=request.step, new_uid=request.new_uid or entry.new_uid, manifest=text)
    return replace(entry, protected=isinstance(request, messages.Protect))


def _pod_is(pod: Thing | None) -> messages.PodIs:
    return messages.PodIs(pod.watched(), pod.digest) if pod else messages.PodIs(None)


def _on_pod(world: World, request: messages.Request, pod: WatchedPod) -> tuple[World, messages.Answer]:
    there = world.old if pod.name == "p" else world.new
    if there is None or (there.uid, str(there.version)) != (pod.uid, pod.version):
        return world, messages.NotAsExpected()
    after = world.bumped()
    match request:
        case messages.Claim() if not there.deleting:
            claimed = replace(there, claimed=True, version=after.version)
            return replace(after, old=claimed), _pod_is(claimed)
        case messages.Unclaim() if there.deleting:
            return replace(after, old=None), messages.PodIs(None)
        case messages.Unclaim():
            given_back = replace(there, claimed=False, version=after.version)
            return replace(after, old=given_back), _pod_is(given_back)
        case messages.Delete() if pod.name == "p":
            after = delete(world, "old")
            return after, _pod_is(after.old)
        case messages.Delete():
            assert there.gated, "I4: a replacement that was ungated is never deleted"
            return delete(world, "new"), messages.NotAsExpected()
        case messages.Launch():
            launched = replace(there, gated=False, version=after.version)
            after = replace(after, new=launched, ungate=world.ungate | {there.uid})
            return after, messages.ReplacementIs(launched.watched())
    return world, messages.NotAsExpected()


def delete(world: World, which: str) -> World:
    """A delete by name."""
    there = world.old if which == "old" else world.new
    if there is None or there.deleting:
        return world
    after = world.bumped()
    remains = replace(there, deleting=True, version=after.version) if there.claimed else None
    return replace(after, old=remains) if which == "old" else replace(after, new=remains)


@dataclass(frozen=True)
class Operator:
    progress: protocol.Progress
    request: messages.Request


def fresh() -> Operator:
    return Operator(*protocol.begin(OLD, RECORD, may_start=True))


def stepped(machine: Machine, operator: Operator, answer: messages.Answer) -> Operator:
    return Operator(*machine.step(operator.progress, answer))


@dataclass(frozen=True)
class Situation:
    world: World
    operators: tuple[Operator, ...]
    faults: int
    strangers: int


def _key(situation: Situation) -> object:
    operators = []
    for operator in situation.operators:
        progress = operator.progress
        pods = [
            pod.version if isinstance(pod, WatchedPod) else str(pod) for pod in (progress.pod, progress.replacement)
        ]
        record = progress.record.version if isinstance(progress.record, Relaunch) else str(progress.record)
        operators.append(
            (
                *pods,
                progress.digest,
                record,
                progress.nodes,
                progress.denied,
                progress.confirmed,
                type(operator.request).__name__,
            )
        )
    return situation.world, tuple(operators), situation.faults, situation.strangers


DENIED = messages.Denied("quota")


def run(world: World, machine: Machine = PROTOCOL, *, denied: bool = False) -> tuple[World, messages.Request]:
    """An undisturbed attempt. ``denied``: the API server denies the replacement."""
    operator = fresh()
    for _ in range(60):
        if isinstance(operator.request, messages.Stop | messages.Pause):
            return world, operator.request
        if denied and isinstance(operator.request, messages.Create):
            operator = stepped(machine, operator, DENIED)
            continue
        world, answer = serve(world, operator.request, operator.progress.digest)
        operator = stepped(machine, operator, answer)
    raise AssertionError(f"no end: {operator.request}")


def check(world: World) -> None:
    assert len(world.ungate) <= 1, "I1: two replacements lost the gate"
    ended = world.entry is not None and world.entry.step.ended
    remnant = world.old or world.ungate or world.interfered or (world.entry and not ended) or world.new
    assert remnant, "I2: the pod is lost"
    assert not (world.ungate and not world.interfered and world.entry is None), "I2: the record went"


def walk(*, operators: int, faults: int, strangers: int, machine: Machine = PROTOCOL) -> int:
    first = Situation(start(), (fresh(),) * operators, faults, strangers)
    visited, waiting = {_key(first)}, deque([first])
    while waiting:
        situation = waiting.popleft()
        check(situation.world)
        _check_end(situation.world, machine)
        _check_deleted(situation.world, machine)
        for following in _following(situation, machine):
            if _key(following) not in visited:
                visited.add(_key(following))
                waiting.append(following)
    return len(visited)


def _check_deleted(world: World, machine: Machine) -> None:
    """I8: a pod whose user deletes it before it has a replacement goes at once and never comes back."""
    if world.old is None or not world.old.deleting or world.new:
        return
    for denied in (False, True):
        after, last = run(world, machine, denied=denied)
        assert isinstance(last, messages.Stop), f"I8: the deleted pod waits: {last}"
        assert (after.old, after.new) == (None, None), "I8: the deleted pod stays, or came back"


def _check_end(world: World, machine: Machine) -> None:
    """I3, I5: left alone, an operator that starts anew brings it to an end."""
    world, last = run(world, machine)
    check(world)
    assert not isinstance(last, messages.Pause), f"I5: stuck at {last}"
    assert world.interfered or world.ungate, "I5: nobody interfered, and the pod does not run"
    assert not (world.old and world.old.claimed), "I3: our finalizer was left behind"


def _following(situation: Situation, machine: Machine) -> Iterator[Situation]:
    for number, operator in enumerate(situation.operators):
        yield from _moves(situation, number, operator, machine)
    if situation.strangers:
        world = situation.world
        less = replace(situation, strangers=situation.strangers - 1)
        for which in ("old", "new"):
            yield replace(less, world=replace(delete(world, which), interfered=True))
        if world.old:
            after = world.bumped()
            edited = replace(world.old, digest="edited", version=after.version)
            yield replace(less, world=replace(after, old=edited, interfered=True))


def _moves(situation: Situation, number: int, operator: Operator, machine: Machine) -> Iterator[Situation]:
    if situation.faults:
        yield _with(replace(situation, faults=situation.faults - 1), number, fresh())
    if isinstance(operator.request, messages.Stop | messages.Pause):
        return
    world, answer = serve(situation.world, operator.request, operator.progress.digest)
    if situation.faults:
        yield _with(replace(situation, world=world, faults=situation.faults - 1), number, fresh())
    if situation.faults and isinstance(operator.request, messages.Create):
        yield _with(replace(situation, faults=situation.faults - 1), number, stepped(machine, operator, DENIED))
    yield _with(replace(situation, world=world), number, stepped(machine, operator, answer))


def _with(situation: Situation, number: int, operator: Operator) -> Situation:
    operators = list(situation.operators)
    operators[number] = operator
    return replace(situation, operators=tuple(operators))


def test_the_replacement_is_there_before_the_pod_goes_and_ungated_after() -> None:
    world, operator, sent = start(), fresh(), []
    while not isinstance(operator.request, messages.Stop | messages.Pause):
        request = operator.request
        step = f" {request.step.value}" if isinstance(request, messages.Mark) else ""
        sent.append(type(request).__name__ + step)
        assert world.old or world.new, "no moment is without a pod"
        world, answer = serve(world, request, operator.progress.digest)
        operator = Operator(*protocol.step(operator.progress, answer))
    assert [request for request in sent if not request.startswith("Read")] == [
        "Claim",
        "Record",
        "Commit",
        "Create",
        "Mark Created",
        "Delete",
        "Unclaim",
        "Choose",
        "Launch",
        "Mark Launched",
        "Unprotect",
    ]
    assert world.ungate == {"new0"}


@pytest.mark.parametrize(("operators", "faults", "strangers"), [(1, 3, 0), (1, 1, 2), (2, 1, 0), (2, 0, 1)])
def test_no_interleaving_loses_or_doubles_the_pod(operators: int, faults: int, strangers: int) -> None:
    assert walk(operators=operators, faults=faults, strangers=strangers) > 20


def test_without_its_guard_a_pod_that_its_user_deletes_while_its_replacement_is_denied_comes_back() -> None:
    guard = Guard(
        "a user's deletion is honoured until the replacement exists",
        "        if refused.deleting:\n            return _cancel(record)\n        if progress.draining:\n",
        "        if progress.draining:\n",
        Bounds(),
    )
    with pytest.raises(AssertionError, match="I8"):
        walk(operators=1, faults=1, strangers=1, machine=lacking(guard))


def test_a_pod_that_was_changed_after_it_was_recorded_is_recorded_again() -> None:
    edited = Thing("p", OLD, 2, digest="edited")
    world, _ = run(World(edited, entry=Entry(1, digest="forged"), version=2))
    assert world.ungate == {"new0"}
    assert world.created_as == "edited"


def test_a_committed_record_that_is_not_the_pods_creates_and_deletes_nothing() -> None:
    claimed = Thing("p", OLD, 2, claimed=True)
    world, last = run(World(claimed, entry=Entry(1, Step.COMMITTED, digest="forged"), version=2))
    assert isinstance(last, messages.Stop)
    assert world.old
    assert (world.old.uid, world.old.claimed, world.new) == (OLD, False, None)
    assert world.entry
    assert (world.entry.step, world.entry.manifest) == (Step.CANCELLED, "")


def test_a_user_who_deletes_the_pod_while_its_replacement_is_denied_removes_it() -> None:
    deleted = Thing("p", OLD, 2, claimed=True, deleting=True)
    world, last = run(World(deleted, entry=Entry(1, Step.BLOCKED, protected=True), version=2))
    assert isinstance(last, messages.Stop)
    assert (world.old, world.new, world.ungate) == (None, None, frozenset())
    assert world.entry
    assert (world.entry.step, world.entry.protected) == (Step.CANCELLED, False)


def test_a_name_that_somebody_took_blocks_the_relaunch_and_loses_nothing() -> None:
    squatter = Thing("p-r1", "foreign", 1)
    world, last = run(World(Thing("p", OLD, 1), squatter))
    assert last == messages.Pause("another pod has the name p-r1")
    assert world.entry
    assert world.entry.step is Step.BLOCKED
    assert (world.old is not None, world.new) == (True, squatter)
    world, _ = run(replace(world, new=None))
    assert world.ungate == {"new0"}
