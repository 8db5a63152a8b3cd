"""The protocol walked through: its main line, the rows of its table, every interleaving with faults and strangers."""

import subprocess
import sys
from dataclasses import replace

import pytest
from tests.relaunch.guards import GUARDS, PRECONDITIONS, Guard, lacking
from tests.relaunch.walk import BEGIN, DRAIN, Bounds, Machine, Operator, Walk
from tests.relaunch.walks import EVERY
from tests.relaunch.world import (
    FOREIGN,
    NEXT,
    NOW,
    OLD,
    RECORD,
    Broken,
    Entry,
    Rules,
    Thing,
    World,
    check_end,
    delete_record,
    serve,
    start,
)

from topomend.model.relaunch_record import Step
from topomend.relaunch import messages, protocol

REFUSED = Thing(OLD, NOW, failed=True)
CLAIMED = REFUSED._replace(claimed=True)
NEW = Thing("new0", NOW, ours=True, gated=True)


def entry(step: Step, new_uid: str = "") -> Entry:
    """The record as the main line leaves it: our finalizer is on it while it may be the only copy."""
    return Entry(
        NOW,
        step,
        new_uid,
        protected=step in (Step.RECORDED, Step.COMMITTED, Step.BLOCKED),
        manifest=step in (Step.COMMITTED, Step.BLOCKED, Step.CREATED),
    )


def run(world: World) -> tuple[World, list[str]]:
    """One undisturbed attempt: the world after it, and the names of its requests."""
    world, sent = Walk(Rules(), Machine()).run(world)
    return world, [_name(request) for request in sent]


def _name(request: messages.Request) -> str:
    name = type(request).__name__
    return f"{name} {request.step.value}" if isinstance(request, messages.Mark) else name


def test_the_main_line_takes_ten_writes_in_their_order() -> None:
    world, sent = run(start())
    assert sent == [
        "ReadRecord",
        "ReadPod",
        "Claim",
        "Record",
        "Commit",
        "Delete",
        "Unclaim",
        "Create",
        "Mark Created",
        "Choose",
        "Launch",
        "Mark Launched",
        "Unprotect",
        "Stop",
    ]
    assert world.ungate == {"new0"}


# The rows of the table


def test_a_pod_that_its_user_deletes_before_it_is_recorded_leaves_a_cancelled_record() -> None:
    world, sent = run(World(CLAIMED._replace(deleting=True), was_claimed=True))
    assert sent[2:] == ["Record", "Unclaim", "Mark Cancelled", "Unprotect", "Stop"]
    assert world.pod is None
    assert world.step is Step.CANCELLED


def test_a_pod_that_its_user_deletes_before_the_commit_is_not_replaced() -> None:
    world, sent = run(World(CLAIMED._replace(deleting=True), entry(Step.RECORDED), was_claimed=True))
    assert sent[2:] == ["Unclaim", "Mark Cancelled", "Unprotect", "Stop"]
    assert not world.ungate


def test_a_delete_that_meets_another_version_is_decided_again() -> None:
    progress, _ = protocol.begin(OLD, RECORD, may_start=True)
    progress, _ = protocol.step(progress, messages.RecordIs(entry(Step.COMMITTED).relaunch()))
    progress, request = protocol.step(progress, messages.PodIs(CLAIMED.watched()))
    assert isinstance(request, messages.Delete)
    _, request = protocol.step(progress, messages.NotAsExpected())
    assert isinstance(request, messages.ReadRecord)


@pytest.mark.parametrize(
    "world",
    [
        World(CLAIMED),
        World(CLAIMED, entry(Step.RECORDED)),
        World(REFUSED, entry(Step.RECORDED)),
        World(CLAIMED, entry(Step.COMMITTED)),
        World(CLAIMED._replace(deleting=True), entry(Step.COMMITTED)),
        World(REFUSED, entry(Step.CREATED, "nobody")),
        World(CLAIMED, entry(Step.CREATED, "nobody")),
        World(None, entry(Step.COMMITTED)),
        World(None, entry(Step.BLOCKED)),
        World(NEW, entry(Step.COMMITTED), made=1),
        World(NEW, entry(Step.CREATED, "new0"), made=1),
        World(NEW._replace(gated=False), entry(Step.CREATED, "new0"), made=1, ungate=frozenset({"new0"})),
    ],
    ids=lambda world: f"{world.pod and world.pod.uid} {world.step and world.step.value}",
)
def test_whoever_starts_anew_goes_on_from_there(world: World) -> None:
    after, _ = run(world)
    check_end(after)
    assert after.ungate == {"new0"}


def test_a_replacement_that_another_operator_made_is_adopted() -> None:
    _, sent = run(World(NEW, entry(Step.COMMITTED), made=1))
    assert sent[2:] == ["Mark Created", "Choose", "Launch", "Mark Launched", "Unprotect", "Stop"]


def test_another_pod_of_the_name_ends_the_relaunch() -> None:
    world, sent = run(World(Thing(FOREIGN, NOW), entry(Step.COMMITTED), excused=True))
    assert sent[2:] == ["Mark Superseded", "Unprotect", "Stop"]
    assert world.pod == Thing(FOREIGN, NOW)


def test_a_pod_whose_replacement_is_denied_keeps_its_manifest_in_a_blocked_record() -> None:
    world, last = _run_with(messages.Create, messages.Denied("quota"))
    assert last == messages.Pause("quota")
    assert world.step is Step.BLOCKED
    world, _ = run(world)
    assert world.ungate == {"new0"}


def test_where_no_record_is_taken_a_deleted_pod_ends_without() -> None:
    """A namespace in termination takes no new object, and our finalizer must not hold it up."""
    world, _ = _run_with(messages.Record, messages.Denied("terminating"), World(CLAIMED._replace(deleting=True)))
    assert (world.pod, world.entry) == (None, None)


def test_where_no_record_is_taken_a_pod_that_stays_is_given_back_and_waits() -> None:
    world, last = _run_with(messages.Record, messages.Denied("terminating"))
    assert last == messages.Pause("terminating")
    assert (world.pod, world.entry) == (REFUSED._replace(version=NEXT), None)


def test_a_replacement_that_no_node_admits_waits_behind_its_gate() -> None:
    world, last = _run_with(messages.Choose, messages.NodesAre(()))
    assert isinstance(last, messages.Pause)
    assert world.pod
    assert world.pod.gated
    assert not world.ungate


def test_a_replacement_that_its_user_deletes_before_it_is_ungated_is_not_recreated() -> None:
    world, sent = run(World(None, entry(Step.CREATED, "new0"), made=1, excused=True))
    assert sent[2:] == ["Mark Cancelled", "Stop"]
    assert not world.ungate


def test_a_pod_that_a_process_made_which_woke_late_is_removed_and_never_ungated() -> None:
    late = NEW._replace(uid="new1")
    world, sent = run(World(late, entry(Step.LAUNCHED, "new0"), made=2, ungate=frozenset({"new0"})))
    assert sent[2:] == ["Confirm", "Delete", "Stop"]
    assert world.ungate == {"new0"}


@pytest.mark.parametrize("step", [Step.CANCELLED, Step.SUPERSEDED])
def test_a_record_that_ended_on_a_read_from_before_is_opened_again(step: Step) -> None:
    world, sent = run(World(NEW, entry(step, "new0"), made=1))
    assert sent[2] == "Mark Created"
    assert world.ungate == {"new0"}


def test_a_finalizer_that_an_ended_record_left_is_taken_off() -> None:
    world, sent = run(World(CLAIMED, entry(Step.CANCELLED), excused=True))
    assert sent[2] == "Unclaim"
    assert world.pod == REFUSED


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (REFUSED, messages.Pause),
        (CLAIMED, messages.Unclaim),
        (CLAIMED._replace(deleting=True), messages.Unclaim),
        (REFUSED._replace(deleting=True), messages.Stop),
    ],
)
@pytest.mark.parametrize("step", [Step.RECORDED, Step.COMMITTED, Step.CREATED, Step.LAUNCHED])
def test_a_record_of_another_pod_is_left_alone_and_the_pod_is_as_if_never_seen(
    step: Step, pod: Thing, expected: type
) -> None:
    other = replace(entry(step).relaunch(), pod_uid="another")
    progress, _ = protocol.begin(OLD, RECORD, may_start=True)
    progress, _ = protocol.step(progress, messages.RecordIs(other))
    _, request = protocol.step(progress, messages.PodIs(pod.watched()))
    assert isinstance(request, expected)


# Records that somebody deletes, namespaces that end, and clusters that topomend leaves


@pytest.mark.parametrize("step", [Step.COMMITTED, Step.BLOCKED])
@pytest.mark.parametrize("actor", [BEGIN, DRAIN], ids=["operator", "drain"])
def test_a_deleted_record_that_is_the_only_copy_of_a_pod_is_kept_until_the_pod_runs(
    step: Step, actor: Operator
) -> None:
    world = delete_record(World(None, entry(step)), Rules())
    assert world.entry
    world, sent = Walk(Rules(), Machine()).run(world._replace(entry=world.entry._replace(version=NOW)), actor)
    assert isinstance(sent[-2], messages.Unprotect)
    assert world.entry is None
    assert world.ungate == {"new0"}


def test_an_unprotected_record_of_an_earlier_version_is_protected_before_the_pod_goes() -> None:
    world, sent = run(World(CLAIMED, Entry(NOW, Step.COMMITTED, manifest=True)))
    assert sent[2:4] == ["Protect", "Delete"]
    assert world.ungate == {"new0"}


def test_a_record_that_somebody_deletes_before_the_commit_goes_and_the_pod_is_recorded_again() -> None:
    world, sent = run(World(CLAIMED, entry(Step.RECORDED)._replace(deleting=True)))
    assert sent[2:5] == ["Unprotect", "Record", "Commit"]
    assert world.ungate == {"new0"}


def test_the_record_of_a_replacement_that_waits_for_a_node_holds_up_nobody() -> None:
    world = World(NEW, entry(Step.CREATED, "new0")._replace(protected=True), made=1)
    world, last = _run_with(messages.Choose, messages.NodesAre(()), world)
    assert isinstance(last, messages.Pause)
    assert world.entry
    assert not world.entry.protected


@pytest.mark.parametrize("step", [Step.COMMITTED, Step.BLOCKED])
def test_a_relaunch_whose_namespace_ends_is_cancelled_and_its_record_goes(step: Step) -> None:
    world = World(None, entry(step)._replace(deleting=True), excused=True, ends=True)
    world, sent = run(world)
    assert sent[2:] == ["Create", "Mark Cancelled", "Unprotect", "Stop"]
    assert world.entry is None


@pytest.mark.parametrize("pod", [REFUSED, CLAIMED], ids=["unclaimed", "claimed"])
def test_a_drain_gives_back_a_pod_that_was_only_recorded(pod: Thing) -> None:
    world, _ = Walk(Rules(), Machine()).run(World(pod, entry(Step.RECORDED)), DRAIN)
    assert world.pod
    assert (world.pod.claimed, world.pod.uid, world.step) == (False, OLD, Step.CANCELLED)
    assert not world.ungate


UNBOUND = Thing(OLD, NOW)


def unbound_entry(step: Step) -> Entry:
    return entry(step)._replace(unbound=True)


def test_an_unbound_pod_is_recorded_before_it_is_claimed_and_then_relaunched_as_a_refused_one() -> None:
    world, sent = run(start(unbound=True))
    refused, sent_for_refused = run(start())
    assert sent[2:4] == ["Record", "Claim"]
    assert sent[4:] == sent_for_refused[4:]
    assert (world.ungate, world.step) == (refused.ungate, refused.step)
    assert world.ungate == {"new0"}


@pytest.mark.parametrize("step", [Step.RECORDED, Step.COMMITTED, Step.BLOCKED])
@pytest.mark.parametrize("deleting", [False, True])
def test_a_pod_that_a_scheduler_binds_meanwhile_is_given_back(step: Step, deleting: bool) -> None:
    bound = UNBOUND._replace(bound=True, claimed=True, deleting=deleting)
    world, sent = run(World(bound, unbound_entry(step), unbound=True, ungate=frozenset({OLD})))
    assert sent[2:] == ["Mark Cancelled", "Unclaim", "Unprotect", "Stop"]
    assert world.pod == (None if deleting else UNBOUND._replace(bound=True))
    assert world.ungate == {OLD}


def test_a_bound_pod_without_a_record_is_left_alone() -> None:
    bound = UNBOUND._replace(bound=True)
    world, sent = run(World(bound, unbound=True, ungate=frozenset({OLD})))
    assert (sent[2:], world.pod) == (["Stop"], bound)


def test_a_pod_that_is_refused_once_it_was_bound_is_relaunched_with_a_record_of_that() -> None:
    refused = REFUSED._replace(bound=True)
    for step in (Step.RECORDED, Step.COMMITTED, Step.CANCELLED):
        progress, request = protocol.begin(OLD, RECORD, may_start=True)
        ended = unbound_entry(Step.CANCELLED)._replace(protected=False, manifest=False)
        held = unbound_entry(step) if step is not Step.CANCELLED else ended
        progress, _ = protocol.step(progress, messages.RecordIs(held.relaunch()))
        progress, request = protocol.step(progress, messages.PodIs(refused.watched()))
        assert isinstance(request, messages.Discard if held == ended else messages.Mark)
        progress, request = protocol.step(progress, messages.RecordIs(ended.relaunch()))
        assert isinstance(request, messages.Discard)
        progress, request = protocol.step(progress, messages.RecordIs(None))
        assert isinstance(request, messages.Claim)


def test_an_unbound_pod_is_not_touched_where_no_record_is_taken() -> None:
    world, last = _run_with(messages.Record, messages.Denied("quota"), start(unbound=True))
    assert (world.pod, world.entry, last) == (UNBOUND, None, messages.Pause("quota"))


def test_an_unbound_pod_that_was_changed_before_it_is_claimed_is_recorded_again() -> None:
    world, sent = run(World(UNBOUND._replace(edited=True), Entry(NOW, unbound=True), unbound=True))
    assert sent[2:5] == ["Discard", "Record", "Claim"]
    assert world.ungate == {"new0"}


@pytest.mark.parametrize("step", [Step.RECORDED, Step.COMMITTED])
@pytest.mark.parametrize("claimed", [False, True])
def test_an_unbound_pod_that_was_changed_while_it_is_relaunched_is_given_back(step: Step, claimed: bool) -> None:
    edited = UNBOUND._replace(edited=True, claimed=claimed)
    world, sent = run(World(edited, unbound_entry(step), unbound=True))
    assert [name for name in sent[2:] if name != "Claim"] == ["Mark Cancelled", "Unclaim", "Unprotect", "Stop"]
    assert world.pod
    assert (world.pod.uid, world.pod.claimed, world.ungate) == (OLD, False, frozenset())


def test_a_refused_pod_that_was_changed_after_the_commit_is_given_back() -> None:
    world, sent = run(World(CLAIMED._replace(edited=True), entry(Step.COMMITTED)))
    assert sent[2:] == ["Claim", "Mark Cancelled", "Unclaim", "Unprotect", "Stop"]
    assert world.pod
    assert (world.pod.uid, world.pod.claimed, world.ungate) == (OLD, False, frozenset())


def test_such_a_pod_is_recorded_again_where_somebody_deletes_its_record() -> None:
    world, sent = run(World(CLAIMED._replace(edited=True), entry(Step.COMMITTED)._replace(deleting=True)))
    assert sent[2:8] == ["Claim", "Mark Cancelled", "Unclaim", "Unprotect", "Claim", "Record"]
    assert world.ungate == {"new0"}


@pytest.mark.parametrize("claimed", [False, True])
def test_a_record_of_an_unbound_pod_that_somebody_deletes_is_completed(claimed: bool) -> None:
    deleted = unbound_entry(Step.RECORDED)._replace(deleting=True)
    world, sent = run(World(UNBOUND._replace(claimed=claimed), deleted, unbound=True))
    assert [name for name in sent[2:] if name != "Claim"][:2] == ["Commit", "Delete"]
    assert world.ungate == {"new0"}
    assert world.entry is None


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("deleting", [False, True])
def test_an_unbound_pod_whose_record_was_forced_away_is_given_back_where_its_namespace_ends(
    bound: bool, deleting: bool
) -> None:
    claimed = UNBOUND._replace(claimed=True, bound=bound, deleting=deleting)
    world, sent = run(World(claimed, unbound=True, ends=True, excused=True))
    assert sent[2:4] == ["Record", "Unclaim"]
    assert world.pod == (None if deleting else claimed._replace(claimed=False))


def test_an_unbound_pod_that_lost_our_finalizer_gets_it_again_before_it_is_deleted() -> None:
    _, sent = run(World(UNBOUND, unbound_entry(Step.COMMITTED), unbound=True))
    assert sent[2:4] == ["Claim", "Delete"]


def test_a_drain_begins_nothing() -> None:
    progress, _ = protocol.begin(OLD, RECORD, may_start=False, draining=True)
    progress, _ = protocol.step(progress, messages.RecordIs(None))
    _, request = protocol.step(progress, messages.PodIs(REFUSED.watched()))
    assert isinstance(request, messages.Stop)


def test_a_drain_lets_a_waiting_replacement_go_to_wherever_its_scheduler_has_it() -> None:
    world, sent = Walk(Rules(), Machine()).run(World(NEW, entry(Step.CREATED, "new0"), made=1), DRAIN)
    assert [_name(request) for request in sent[2:]] == ["Launch", "Mark Launched", "Stop"]
    assert isinstance(sent[2], messages.Launch)
    assert sent[2].nodes == ()
    assert world.ungate == {"new0"}


def test_a_drain_lets_a_replacement_go_that_nothing_can_be_recorded_of() -> None:
    world, last = _run_with(
        messages.Restore, messages.Denied("there is no such kind"), World(NEW, made=1), draining=True
    )
    assert isinstance(last, messages.Stop)
    assert world.ungate == {"new0"}


@pytest.mark.parametrize(("pod", "expected"), [(REFUSED, messages.Stop), (CLAIMED, messages.Unclaim)])
def test_a_pod_that_may_not_be_relaunched_is_not_claimed_and_is_given_back(pod: Thing, expected: type) -> None:
    progress, _ = protocol.begin(OLD, RECORD, may_start=False)
    progress, _ = protocol.step(progress, messages.RecordIs(None))
    _, request = protocol.step(progress, messages.PodIs(pod.watched()))
    assert isinstance(request, expected)


def _run_with(
    kind: type[messages.Request], answer: messages.Answer, world: World | None = None, *, draining: bool = False
) -> tuple[World, messages.Request]:
    """An attempt in which every request of this kind gets this answer, and no version is ever old."""
    world = world or start()
    progress, request = protocol.begin(OLD, RECORD, may_start=not draining, draining=draining)
    while not isinstance(request, messages.Stop | messages.Pause):
        given = answer
        if not isinstance(request, kind):
            world, given = serve(world, request, Rules())
        progress, request = protocol.step(progress, given)
    return world, request


# Every interleaving


@pytest.mark.timeout(1800)  # a minute where nothing else runs, many with FURTHER
def test_no_interleaving_of_faults_and_strangers_loses_or_doubles_the_pod() -> None:
    walks = subprocess.run([sys.executable, "-m", "tests.relaunch.walks"], capture_output=True, text=True, check=False)
    assert walks.returncode == 0, walks.stdout + walks.stderr
    situations = [int(line.split()[-2]) for line in walks.stdout.splitlines()]
    assert len(situations) >= len(EVERY)
    assert min(situations) > 5_000


@pytest.mark.parametrize(("rules", "bounds"), PRECONDITIONS.values(), ids=PRECONDITIONS)
def test_each_precondition_the_gate_and_the_finalizer_are_needed(rules: Rules, bounds: Bounds) -> None:
    with pytest.raises(Broken):
        Walk(rules, Machine()).walk(bounds)


def test_a_record_that_lost_its_manifest_gets_it_again_before_the_pod_goes() -> None:
    _, sent = run(World(CLAIMED, entry(Step.COMMITTED)._replace(manifest=False)))
    assert sent[2:4] == ["Commit", "Delete"]


@pytest.mark.parametrize("guard", GUARDS, ids=[guard.purpose for guard in GUARDS])
def test_each_guard_of_the_protocol_is_needed(guard: Guard) -> None:
    with pytest.raises(Broken):
        Walk(Rules(), lacking(guard)).walk(guard.bounds)
