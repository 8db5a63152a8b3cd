"""The protocol walked through: its main line, and every interleaving with faults and strangers up to a bound."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from tests.relaunch.world import OLD, RECORD, Broken, Rules, World, check, delete, serve, squat, start

from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import Relaunch, Step
from topomend.relaunch import protocol

MAX_REQUESTS = 60


def run(world: World, rules: Rules = Rules()) -> tuple[World, list[protocol.Request]]:  # noqa: B008  a frozen value
    """One undisturbed attempt: the world after it, and the requests it took."""
    progress, request = protocol.begin(OLD, RECORD, may_start=True)
    sent = [request]
    while not isinstance(request, protocol.Stop | protocol.Pause):
        assert len(sent) < MAX_REQUESTS, sent
        world, answer = serve(world, request, rules)
        progress, request = protocol.step(progress, answer)
        sent.append(request)
    return world, sent


def test_the_main_line_takes_nine_writes_in_their_order() -> None:
    world, sent = run(start())
    assert [_name(request) for request in sent] == [
        "ReadRecord",
        "ReadPod",
        "Claim",
        "Record",
        "Mark Committed",
        "Delete",
        "Unclaim",
        "Create",
        "Mark Created",
        "Choose",
        "Launch",
        "Mark Launched",
        "Stop",
    ]
    assert world.let_go == {"new0"}


def _name(request: protocol.Request) -> str:
    name = type(request).__name__
    return f"{name} {request.step.value}" if isinstance(request, protocol.Mark) else name


def test_a_pod_that_its_user_is_deleting_is_left_to_its_end() -> None:
    world = start()
    assert world.pod
    world = replace(world, pod=replace(world.pod, claimed=True, deleting=True))
    world, sent = run(world)
    assert [_name(request) for request in sent[2:]] == ["Unclaim", "Stop"]
    assert (world.pod, world.entry) == (None, None)


def test_a_pod_whose_replacement_is_denied_keeps_its_manifest_in_a_blocked_record() -> None:
    world, last = _run_with(protocol.Create, protocol.Denied("quota"))
    assert last == protocol.Pause("quota")
    assert world.entry
    assert world.entry.step is Step.BLOCKED
    world, _ = run(world)
    assert world.let_go == {"new0"}


def test_a_replacement_that_no_node_admits_waits_behind_its_gate() -> None:
    world, last = _run_with(protocol.Choose, protocol.NodesAre(()))
    assert isinstance(last, protocol.Pause)
    assert world.pod
    assert world.pod.gated
    assert not world.let_go


def _run_with(kind: type[protocol.Request], answer: protocol.Answer) -> tuple[World, protocol.Request]:
    """An attempt in which every request of this kind gets this answer."""
    world = start()
    progress, request = protocol.begin(OLD, RECORD, may_start=True)
    while not isinstance(request, protocol.Stop | protocol.Pause):
        if isinstance(request, kind):
            given = answer
        else:
            world, given = serve(world, request, Rules())
        progress, request = protocol.step(progress, given)
    return world, request


# Every interleaving


@dataclass(frozen=True)
class Operator:
    """One operator in the middle of an attempt."""

    progress: protocol.Progress
    request: protocol.Request


@dataclass(frozen=True)
class Situation:
    """The world, the operators in it, and how many faults and strangers may still come."""

    world: World
    operators: tuple[Operator, ...]
    faults: int
    deletions: int
    squatters: int

    def key(self) -> object:
        return (self.world, tuple(_key(each) for each in self.operators), self.faults, self.deletions, self.squatters)


def _key(operator: Operator) -> object:
    progress = operator.progress
    known = progress.pod.version if isinstance(progress.pod, WatchedPod) else progress.pod
    record = progress.record.version if isinstance(progress.record, Relaunch) else progress.record
    return (known, record, progress.nodes, repr(type(operator.request)))


def fresh() -> Operator:
    return Operator(*protocol.begin(OLD, RECORD, may_start=True))


def walk(rules: Rules, *, operators: int, faults: int, deletions: int, squatters: int) -> int:
    """Check every reachable situation; how many there are. Raises Broken."""
    first = Situation(start(), (fresh(),) * operators, faults, deletions, squatters)
    seen, waiting = {first.key()}, deque([first])
    while waiting:
        situation = waiting.popleft()
        check(situation.world)
        _check_end(situation.world, rules)
        for following in _following(situation, rules):
            if following.key() not in seen:
                seen.add(following.key())
                waiting.append(following)
    return len(seen)


def _check_end(world: World, rules: Rules) -> None:
    """I5: left alone, an operator that starts anew brings it to an end that keeps the invariants."""
    world, sent = run(world, rules)
    check(world)
    if isinstance(sent[-1], protocol.Pause):
        raise Broken(f"I5: stuck at {sent[-1]}")
    if not world.interfered and not world.let_go:
        raise Broken("I5: nobody interfered, and the pod does not run")


def _following(situation: Situation, rules: Rules) -> Iterator[Situation]:
    for number, operator in enumerate(situation.operators):
        yield from _moves(situation, number, operator, rules)
    if situation.deletions and situation.world.pod and not situation.world.pod.deleting:
        world = replace(delete(situation.world), interfered=True)
        yield replace(situation, world=world, deletions=situation.deletions - 1)
    if situation.squatters and situation.world.pod is None:
        yield replace(situation, world=squat(situation.world), squatters=situation.squatters - 1)


def _moves(situation: Situation, number: int, operator: Operator, rules: Rules) -> Iterator[Situation]:
    """The operator's request is answered; or it dies before it is sent, or before the answer comes."""
    if situation.faults:
        yield _with(replace(situation, faults=situation.faults - 1), number, fresh())
    if isinstance(operator.request, protocol.Stop | protocol.Pause):
        return
    world, answer = serve(situation.world, operator.request, rules)
    if situation.faults:
        yield _with(replace(situation, world=world, faults=situation.faults - 1), number, fresh())
    after = Operator(*protocol.step(operator.progress, answer))
    yield _with(replace(situation, world=world), number, after)


def _with(situation: Situation, number: int, operator: Operator) -> Situation:
    operators = list(situation.operators)
    operators[number] = operator
    return replace(situation, operators=tuple(operators))


@pytest.mark.parametrize(
    ("operators", "faults", "deletions", "squatters"),
    [(1, 3, 0, 0), (1, 2, 1, 0), (1, 1, 2, 1), (2, 0, 0, 0), (2, 1, 0, 0), (2, 0, 1, 0), (2, 2, 1, 1)],
)
def test_no_interleaving_of_faults_and_strangers_loses_or_doubles_the_pod(
    operators: int, faults: int, deletions: int, squatters: int
) -> None:
    assert walk(Rules(), operators=operators, faults=faults, deletions=deletions, squatters=squatters) > 20


@pytest.mark.parametrize(
    ("rules", "operators", "faults", "deletions"),
    [
        (Rules(delete_preconditions=False), 2, 0, 0),
        (Rules(gate=False), 2, 1, 1),
        (Rules(record_versions=False), 2, 0, 1),
    ],
    ids=["delete preconditions", "gate", "record versions"],
)
def test_each_guard_is_needed(rules: Rules, operators: int, faults: int, deletions: int) -> None:
    with pytest.raises(Broken):
        walk(rules, operators=operators, faults=faults, deletions=deletions, squatters=0)
