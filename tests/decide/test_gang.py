"""Nodes for all pods of a group, or for none."""

from random import Random

from tests.builders import gated_pod, guaranteed_pod, node, node_state, running, snapshot_of
from tests.clock import Clock
from tests.seeds import SEED, cases

from topomend.cache import changes
from topomend.cache.changes import apply
from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.node_status import insufficient
from topomend.decide.gang import Placed, Unplaced, choose_for_all
from topomend.decide.queue.order import Reservation
from topomend.model.pods.scheduling import PodGroup, WatchedPod
from topomend.replay.admission import admit, release
from topomend.replay.effort import Effort, Shares

GROUP = PodGroup("kueue.x-k8s.io", "train")

GANGS = cases(200, 1_000)

QUEUED = 5
"""How many groups wait for their turn at a time."""

SHAPES = ("sockets:2 cores:4 memory:8Gi", "sockets:1 cores:6 memory:8Gi", "sockets:2 cores:6 memory:8Gi")


def members(*cpus: int) -> list[WatchedPod]:
    return [gated_pod(f"train-{number}", count, group=GROUP) for number, count in enumerate(cpus)]


def placed(snapshot: Snapshot, pods: list[WatchedPod]) -> dict[str, str]:
    """The node of each pod."""
    chosen = choose_for_all(snapshot, pods)
    assert not isinstance(chosen, Unplaced)
    return {member.pod.name: member.node for member in chosen}


def test_each_pod_is_placed_beside_the_others() -> None:
    snapshot = snapshot_of(node_state(name="a"), node_state(name="b"))
    nodes = placed(snapshot, members(3, 3, 3))
    assert sorted(nodes.values()) == ["a", "a", "b"]


def test_a_group_that_does_not_fit_as_a_whole_gets_nothing() -> None:
    chosen = choose_for_all(snapshot_of(node_state(name="a")), members(3, 3, 3))
    assert isinstance(chosen, Unplaced)
    assert chosen.pod.name == "train-2"
    assert chosen.wait.reason.startswith("2 of the 3 pods that wait together fit; train-2: no node admits it now")


def test_the_largest_pods_are_placed_first() -> None:
    """The small pods would have taken the only NUMA node of four CPUs."""
    snapshot = snapshot_of(running(node_state(name="a"), guaranteed_pod("other", 1)))
    assert set(placed(snapshot, members(1, 1, 4))) == {"train-0", "train-1", "train-2"}


def test_a_pod_goes_to_one_node_alone() -> None:
    chosen = choose_for_all(snapshot_of(*(node_state(name=name) for name in "abc")), members(2, 2))
    assert not isinstance(chosen, Unplaced)
    assert [member.narrowing.hosts for member in chosen] == [(member.node,) for member in chosen]


def test_a_pod_with_rules_of_the_scheduler_may_go_to_every_node_that_admits_it() -> None:
    pod = gated_pod("train-0", 2, group=GROUP, scheduler_rules=("affinity",))
    (only,) = _all(choose_for_all(snapshot_of(*(node_state(name=name) for name in "abcde")), [pod]))
    assert len(only.narrowing.hosts) == 5


def test_excluded_nodes_are_those_of_the_pod() -> None:
    first, second = members(3, 3)
    snapshot = snapshot_of(node_state(name="a"), node_state(name="b"))
    excluded = {first.uid: {"a": insufficient("a", "cpu")}, second.uid: {"b": insufficient("b", "cpu")}}
    chosen = _all(choose_for_all(snapshot, [first, second], (), excluded))
    assert {member.pod.name: member.node for member in chosen} == {"train-0": "b", "train-1": "a"}


def test_numa_nodes_reserved_for_an_earlier_pod_are_not_taken() -> None:
    earlier = gated_pod("earlier", 4, created=0)
    snapshot = snapshot_of(node_state(name="a"), pods=[earlier])
    later = [gated_pod("train-0", 2, created=5, group=GROUP)]
    reserved = [Reservation(earlier, "a", 0b11)]
    assert isinstance(choose_for_all(snapshot, later, reserved), Unplaced)
    assert not isinstance(choose_for_all(snapshot, later), Unplaced)


def test_a_pod_that_no_known_node_admits_may_go_to_nodes_without_an_agent() -> None:
    snapshot = apply(snapshot_of(node_state(name="a")), changes.NodeUpdated(node("new")))
    chosen = _all(choose_for_all(snapshot, members(3, 3, 3)))
    assert sorted(member.node for member in chosen) == ["", "a", "a"]
    assert [member.narrowing.hosts for member in chosen if not member.node] == [("new",)]


def test_random_groups_never_hold_half_and_all_of_them_run() -> None:
    """Each fits the empty cluster, runs for a while and ends. Slow: a thousand groups take some seconds."""
    random = Random(SEED)
    states = {name: node_state(random.choice(SHAPES), name=name) for name in "abcd"}
    empty = snapshot_of(*states.values())
    groups = (_random_group(random, number) for number in range(2 * GANGS))
    waiting = [group for group in groups if not isinstance(choose_for_all(empty, group), Unplaced)][:GANGS]
    assert len(waiting) == GANGS
    running_groups: list[tuple[Placed, ...]] = []
    while waiting:
        snapshot = snapshot_of(*states.values())
        group = random.choice(waiting[:QUEUED])
        chosen = choose_for_all(snapshot, group)
        if isinstance(chosen, Unplaced):
            assert running_groups, f"an empty cluster lets {group[0].group} wait: {chosen.wait.reason}"
            for member in running_groups.pop(random.randrange(len(running_groups))):
                states[member.node] = release(states[member.node], member.pod.namespace, member.pod.name)
            continue
        assert {member.pod.name for member in chosen} == {pod.name for pod in group}
        for member in random.sample(chosen, len(chosen)):
            verdict, states[member.node] = admit(states[member.node], member.pod.pod)
            assert verdict.admitted, f"{member.node} refuses {member.pod.name}: {verdict.message}"
        waiting.remove(group)
        running_groups.append(chosen)


def _random_group(random: Random, number: int) -> list[WatchedPod]:
    group = PodGroup("kueue.x-k8s.io", f"group-{number}")
    cpus = random.randint(1, 4)
    return [
        gated_pod(f"{group.name}-{index}", random.choice((cpus, cpus, random.randint(1, 4))), group=group)
        for index in range(random.randint(1, 6))
    ]


def test_each_pod_has_a_share_of_replay_s_time_of_its_own() -> None:
    """Within one share for all of them a large group would have healthy nodes set aside."""
    begun: list[Effort] = []

    def for_one() -> Effort:
        begun.append(Shares(Clock()))
        return begun[-1]

    choose_for_all(snapshot_of(node_state(name="a")), members(2, 2, 2), for_one=for_one)
    assert len(begun) == 3


def _all(chosen: tuple[Placed, ...] | Unplaced) -> tuple[Placed, ...]:
    assert not isinstance(chosen, Unplaced)
    return chosen
