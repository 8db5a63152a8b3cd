"""The lines of gated pods, brought up to date, are those that a new look at the snapshot would give."""

import random
from dataclasses import replace

from tests.builders import applied, gated_pod
from tests.seeds import SEED

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.decide.queue.lines import UPDATE_SECONDS, QueueLines, in_turns
from topomend.model.pods.scheduling import PodGroup, WatchedPod


def shown(lines: QueueLines, snapshot: Snapshot, now: float) -> list[list[str]]:
    return sorted([pod.name for pod in line] for line in lines.of(snapshot, now))


def of_namespace(namespace: str, name: str, **fields: object) -> WatchedPod:
    pod = gated_pod(name, uid=f"{namespace}-{name}")
    return replace(pod, namespace=namespace, **fields)  # type: ignore[arg-type]


def test_pods_are_in_the_order_of_turns_by_namespace_and_those_of_groups_or_on_their_way_out_in_none() -> None:
    pods = (
        of_namespace("one", "young", creation_time="2026-01-02T00:00:00Z"),
        of_namespace("one", "old", creation_time="2026-01-01T00:00:00Z"),
        of_namespace("one", "urgent", creation_time="2026-01-03T00:00:00Z", priority=5),
        of_namespace("one", "leaves", deleting=True),
        of_namespace("one", "of-a-group", group=PodGroup("", "g", 2)),
        of_namespace("two", "alone"),
    )
    snapshot = applied(*(changes.PodUpdated(pod, 1.0) for pod in pods))
    assert shown(QueueLines(), snapshot, 1.0) == [["alone"], ["urgent", "old", "young"]]


def test_lines_that_follow_random_changes_are_those_of_a_new_look() -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    lines, snapshot, now = QueueLines(), Snapshot(), 0.0
    for _ in range(300):
        for _ in range(chance.randrange(4)):
            namespace, name = chance.choice(["one", "two"]), f"p{chance.randrange(8)}"
            pod = of_namespace(
                namespace,
                name,
                version=str(chance.randrange(1000)),
                priority=chance.randrange(3),
                deleting=not chance.randrange(4),
                gates=chance.choice([(), gated_pod().gates, gated_pod().gates]),
            )
            change = changes.PodRemoved(namespace, name, pod.uid, now)
            snapshot = applied(change if chance.randrange(3) == 0 else changes.PodUpdated(pod, now), to=snapshot)
        now += UPDATE_SECONDS
        assert shown(lines, snapshot, now) == shown(QueueLines(), snapshot, now)


def test_until_the_next_look_those_who_came_are_not_in_line_and_those_who_left_are_not_either() -> None:
    lines = QueueLines()
    snapshot = applied(changes.PodUpdated(gated_pod("first"), 1.0))
    assert shown(lines, snapshot, 1.0) == [["first"]]
    snapshot = applied(changes.PodUpdated(gated_pod("second"), 1.0), to=snapshot)
    snapshot = applied(changes.PodRemoved("ns", "first", gated_pod("first").uid, 1.0), to=snapshot)
    assert shown(lines, snapshot, 1.1) == [[]]
    assert shown(lines, snapshot, 1.0 + UPDATE_SECONDS) == [["second"]]


def test_the_first_of_each_line_come_before_the_second_of_any_and_those_of_one_rank_in_their_order() -> None:
    long = [gated_pod(f"long-{number}", created=1) for number in range(3)]
    short, urgent = gated_pod("short", created=2), gated_pod("urgent", created=3, priority=5)
    turns = in_turns([long, [short], [urgent]], 2)
    assert [pod.name for pod in turns] == ["urgent", "long-0", "short", "long-1"]
