"""Walks every interleaving of operators, faults and strangers with the protocol, breadth first.

Operators are processes that believe to lead, each in the middle of an attempt; any of them may stand still for as long
as it likes, which is a pause. A fault is one of these:

- a crash before a request is sent, or before its answer comes, and the process starts anew (so does one whose answer
  was lost: the driver ends the attempt);
- a request whose answer did not come in time and that the API server carries out later, at any moment;
- a read that is answered from an older state;
- the API server denies the replacement or the record, or no node admits the replacement now.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple, TypeVar

from tests.relaunch.world import (
    BEFORE,
    NEXT,
    NOW,
    OLD,
    RECORD,
    Broken,
    Entry,
    Rules,
    Thing,
    World,
    bind,
    check,
    check_end,
    check_told,
    delete,
    delete_record,
    edit,
    end_namespace,
    entry_of,
    serve,
    squat,
    start,
    thing_of,
)

from topomend.model.pods.scheduling import WatchedPod
from topomend.model.relaunch_record import Relaunch
from topomend.relaunch import messages, protocol

MAX_REQUESTS = 60

_Versioned = TypeVar("_Versioned", Thing, Entry)


@dataclass(frozen=True)
class Machine:
    """The protocol, or one that lacks a guard: what is asked next, and what is known after an answer."""

    next_request: Callable[[protocol.Progress], messages.Request] = protocol.next_request
    step: Callable[[protocol.Progress, messages.Answer], tuple[protocol.Progress, messages.Request]] = protocol.step


class Operator(NamedTuple):
    """One operator in the middle of an attempt: what it knows."""

    pod: Thing | protocol.Unread | None = protocol.UNREAD
    entry: Entry | protocol.Unread | None = protocol.UNREAD
    nodes: tuple[str, ...] | None = None
    denied: str = ""
    contradicted: bool = False
    confirmed: bool = False
    draining: bool = False
    ends: bool = False


BEGIN = Operator()
DRAIN = Operator(draining=True)


class Bounds(NamedTuple):
    """How many operators there are, how many drains beside them, and how much may yet happen to them.

    ``unbound``: the pod was not refused, and its scheduler may bind it once, at any moment. ``noted``: it has a record
    already. ``edits``: its user may change it once. ``fresh``: no read is answered from an older state, and
    ``check_told`` holds.
    """

    operators: int = 1
    faults: int = 0
    deletions: int = 0
    squatters: int = 0
    records: int = 0
    drains: int = 0
    ends: int = 0
    unbound: int = 0
    noted: int = 0
    edits: int = 0
    fresh: int = 0


class Situation(NamedTuple):
    """The world, what the operators in it know, the writes that are under way without anybody waiting for them (each
    by who sent it), what was there before, and how much may yet happen."""

    world: World
    operators: tuple[Operator, ...]
    late: tuple[Operator, ...]
    past_pods: frozenset[Thing | None]
    past_entries: frozenset[Entry | None]
    left: Bounds


class Walk:
    """Walks through a protocol."""

    def __init__(self, rules: Rules, machine: Machine) -> None:
        self._rules, self._machine = rules, machine
        self._checked: set[World] = set()
        self._ends: set[tuple[World, Operator]] = set()
        self._request = lru_cache(maxsize=None)(self._asked)
        self._act = lru_cache(maxsize=None)(self._acted)

    def walk(self, bounds: Bounds) -> int:
        """Check every situation that can be reached; how many there are. Raises Broken, with the way to it."""
        world = start(unbound=bool(bounds.unbound), noted=bool(bounds.noted))
        actors = (BEGIN,) * bounds.operators + (DRAIN,) * bounds.drains
        first = Situation(world, actors, (), frozenset(), frozenset(), bounds)
        came: dict[Situation, tuple[Situation | None, str]] = {first: (None, "")}
        waiting = deque([first])
        while waiting:
            here = waiting.popleft()
            try:
                self._check(here)
                for event, following in self._following(here):
                    if following not in came:
                        came[following] = (here, event)
                        waiting.append(following)
            except Broken as error:
                raise Broken("; ".join((str(error), *_trail(came, here)))) from None
        return len(came)

    def run(self, world: World, operator: Operator = BEGIN) -> tuple[World, list[messages.Request]]:
        """What an operator does that nobody disturbs: the world after it, and its requests. Raises Broken where it has
        no end."""
        sent = [self._request(operator)]
        while not _rests(sent[-1]):
            if len(sent) > MAX_REQUESTS:
                raise Broken(f"I5: no end: ..., {', '.join(_name(request) for request in sent[-4:])}")
            after, operator = self._act(world, operator)
            operator = _aged(operator, world, after)
            world = _settled(after)
            sent.append(self._request(operator))
        return world, sent

    def _check(self, now: Situation) -> None:
        """Each invariant holds now, each operator comes to an end if left alone, and one that starts anew to a good
        one."""
        for operator in now.operators:
            if (now.world, operator) not in self._ends:
                self._ends.add((now.world, operator))
                self.run(now.world, operator)
        if now.world in self._checked:
            return
        self._checked.add(now.world)
        check(now.world)
        if now.left.fresh:
            check_told(now.world)
        for fresh in (BEGIN, DRAIN):
            after, sent = self.run(now.world, fresh)
            if isinstance(sent[-1], messages.Pause) and not now.world.ends:
                raise Broken(f"I5: stuck at {sent[-1]}")
            check_end(after, drained=fresh is DRAIN)
        if now.world.ends:
            self._check_ended(now.world)

    def _check_ended(self, world: World) -> None:
        """The namespace goes as soon as an operator has looked at what its controller has deleted.

        That deletes everything at once, or first the pods and the rest once they are gone
        (pkg/controller/namespace/deletion/namespaced_resources_deleter.go).
        """
        for fresh in (BEGIN, DRAIN):
            deleted = _settled(delete(world, self._rules))
            at_once, _ = self.run(_settled(delete_record(deleted, self._rules)), fresh)
            without_pod, _ = self.run(deleted, fresh)
            in_turn, _ = self.run(_settled(delete_record(without_pod, self._rules)), fresh)
            for after in (at_once, without_pod._replace(entry=None), in_turn):
                if after.pod or after.entry:
                    raise Broken(f"I7: the namespace does not end: {after.pod}, {after.entry}")

    def _asked(self, operator: Operator) -> messages.Request:
        return self._machine.next_request(_progress(operator))

    def _acted(self, world: World, operator: Operator) -> tuple[World, Operator]:
        after, answer = serve(world, self._request(operator), self._rules)
        return after, self._stepped(operator, answer)

    def _stepped(self, operator: Operator, answer: messages.Answer) -> Operator:
        progress, _ = self._machine.step(_progress(operator), answer)
        pod, record = progress.pod, progress.record
        return Operator(
            thing_of(pod) if isinstance(pod, WatchedPod) else pod,
            entry_of(record) if isinstance(record, Relaunch) else record,
            progress.nodes,
            progress.denied,
            progress.contradicted,
            progress.confirmed,
            progress.draining,
            progress.namespace_ends,
        )

    def _following(self, now: Situation) -> Iterator[tuple[str, Situation]]:
        for number, operator in enumerate(now.operators):
            request = self._request(operator)
            others = (*now.operators[:number], *now.operators[number + 1 :])
            if _rests(request):
                yield "a relist", _next(now, now.world, (*others, _anew(operator)))
                continue
            world, acted = self._act(now.world, operator)
            yield _name(request), _next(now, world, (*others, acted))
            if now.left.faults:
                fewer = now._replace(left=now.left._replace(faults=now.left.faults - 1))
                for fault, following in self._faults(fewer, others, operator, world):
                    yield f"{_name(request)} {fault}", following
        for index, sender in enumerate(now.late):
            world, _ = self._act(now.world, sender)
            rest = now._replace(late=(*now.late[:index], *now.late[index + 1 :]))
            yield f"{_name(self._request(sender))} arrives late", _next(rest, world, now.operators)
        yield from self._strangers(now)

    def _faults(
        self, now: Situation, others: tuple[Operator, ...], operator: Operator, world: World
    ) -> Iterator[tuple[str, Situation]]:
        yield "is not sent", _next(now, now.world, (*others, _anew(operator)))
        yield "has its answer lost", _next(now, world, (*others, _anew(operator)))
        request = self._request(operator)
        for fault, answer in _other_answers(now, request):
            yield fault, _next(now, _unrecorded(now.world, request, answer), (*others, self._stepped(operator, answer)))
        if not isinstance(request, messages.ReadPod | messages.ReadRecord | messages.Choose):
            late = now._replace(late=(*now.late, operator))
            yield "is still under way", _next(late, now.world, (*others, _anew(operator)))

    def _strangers(self, now: Situation) -> Iterator[tuple[str, Situation]]:
        pod, left = now.world.pod, now.left
        if left.unbound and bind(now.world) is not now.world:
            fewer = now._replace(left=left._replace(unbound=0))
            yield "the scheduler binds the pod", _next(fewer, bind(now.world), now.operators)
        if left.edits and edit(now.world) is not now.world:
            fewer = now._replace(left=left._replace(edits=0))
            yield "its user changes the pod", _next(fewer, edit(now.world), now.operators)
        if left.deletions and pod and not pod.deleting:
            fewer = now._replace(left=left._replace(deletions=left.deletions - 1))
            yield f"somebody deletes {pod.uid}", _next(fewer, delete(now.world, self._rules), now.operators)
        if left.records and now.world.entry and not now.world.entry.deleting:
            fewer = now._replace(left=left._replace(records=left.records - 1))
            yield "somebody deletes the record", _next(fewer, delete_record(now.world, self._rules), now.operators)
        if left.ends:
            fewer = now._replace(left=left._replace(ends=0))
            yield "the namespace is deleted", _next(fewer, end_namespace(now.world), now.operators)
        if now.world.ends and pod and not pod.deleting:
            yield "its pod is deleted", _next(now, delete(now.world, self._rules), now.operators)
        if now.world.ends and now.world.entry and not now.world.entry.deleting:
            yield "its record is deleted", _next(now, delete_record(now.world, self._rules), now.operators)
        if left.squatters and pod is None:
            fewer = now._replace(left=left._replace(squatters=left.squatters - 1))
            yield "somebody takes the name", _next(fewer, squat(now.world), now.operators)


def _anew(operator: Operator) -> Operator:
    """The same, started again."""
    return DRAIN if operator.draining else BEGIN


def _rests(request: messages.Request) -> bool:
    return isinstance(request, messages.Stop | messages.Pause)


def _progress(operator: Operator) -> protocol.Progress:
    return protocol.Progress(
        OLD,
        RECORD,
        may_start=not operator.draining,
        pod=operator.pod.watched() if isinstance(operator.pod, Thing) else operator.pod,
        digest=operator.pod.digest if isinstance(operator.pod, Thing) else "",
        record=operator.entry.relaunch() if isinstance(operator.entry, Entry) else operator.entry,
        nodes=operator.nodes,
        denied=operator.denied,
        contradicted=operator.contradicted,
        confirmed=operator.confirmed,
        draining=operator.draining,
        namespace_ends=operator.ends,
    )


def _other_answers(now: Situation, request: messages.Request) -> Iterator[tuple[str, messages.Answer]]:
    match request:
        case messages.ReadPod():
            for pod in now.past_pods:
                yield (
                    f"is answered from before, {pod}",
                    (messages.PodIs(pod.watched(), pod.digest) if pod else messages.PodIs(None)),
                )
        case messages.ReadRecord():
            for entry in now.past_entries:
                yield f"is answered from before, {entry}", messages.RecordIs(entry.relaunch() if entry else None)
        case messages.Choose():
            yield "finds none", messages.NodesAre(())
        case messages.Create() | messages.Record():
            yield "is denied", messages.Denied("quota")


def _unrecorded(world: World, request: messages.Request, answer: messages.Answer) -> World:
    """The world in which nobody can ask for a record of the pod, where that is what was denied."""
    is_denied = isinstance(request, messages.Record) and isinstance(answer, messages.Denied)
    return world._replace(was_claimed=False) if is_denied else world


def _next(before: Situation, after: World, operators: tuple[Operator, ...]) -> Situation:
    """The situation in which the world is ``after``: what is NEXT in it is today's, what was today's is of BEFORE.

    What was there before may yet be read, if a fault is left for that. Operators are alike, so their order is none.
    """
    world = before.world
    pods, entries = before.past_pods, before.past_entries
    if not before.left.faults or before.left.fresh:
        pods, entries = frozenset(), frozenset()
    elif after is not world:
        pods = pods | {_as(world.pod, BEFORE)} if after.pod != world.pod else pods
        entries = entries | {_as(world.entry, BEFORE)} if after.entry != world.entry else entries
    return Situation(
        _settled(after),
        tuple(sorted((_aged(operator, world, after) for operator in operators), key=hash)),
        tuple(sorted((_aged(write, world, after) for write in before.late), key=hash)),
        pods,
        entries,
        before.left,
    )


@cache
def _settled(world: World) -> World:
    """The world with every version today's."""
    return world._replace(pod=_as(world.pod, NOW), entry=_as(world.entry, NOW))


@cache
def _aged(operator: Operator, before: World, after: World) -> Operator:
    pod, entry = operator.pod, operator.entry
    if isinstance(pod, Thing) and before.pod != after.pod:
        pod = _as(pod, NOW if pod.version == NEXT else BEFORE)
    if isinstance(entry, Entry) and before.entry != after.entry:
        entry = _as(entry, NOW if entry.version == NEXT else BEFORE)
    return operator._replace(pod=pod, entry=entry)


def _as(thing: _Versioned | None, version: int) -> _Versioned | None:
    """The same with another version."""
    return thing and thing._replace(version=version)


def _name(request: messages.Request) -> str:
    name = type(request).__name__
    return f"{name} {request.step.value}" if isinstance(request, messages.Mark) else name


def _trail(came: dict[Situation, tuple[Situation | None, str]], situation: Situation) -> list[str]:
    """How a situation came about."""
    trail: list[str] = []
    here: Situation | None = situation
    while here is not None:
        here, event = came[here]
        trail.append(event)
    return trail[-2::-1]
