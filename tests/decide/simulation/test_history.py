"""What becomes of pods that come and end, under another policy, and with more nodes."""

from collections.abc import Sequence
from random import Random

from tests.builders import node_state, pod, snapshot_of
from tests.seeds import SEED

from topomend.decide.simulation.history import MOST_TRIED, Stay, what_if_since
from topomend.decide.simulation.what_if import Arrival, Outcome, Settings
from topomend.replay.admission import admit, release

AS_IT_IS, BEST_EFFORT = Settings(), Settings("best-effort")
TWO, THREE, FOUR = (f"cpu={cpus} memory=1Mi" for cpus in (2, 3, 4))
ONE_NODE = snapshot_of(node_state())
"""Three CPUs of its first NUMA node and four of its second are free."""


def stay(name: str, container: str, came: float, ended: float | None = None, node: str = "a") -> Stay:
    return Stay(Arrival(pod(name, container), node=node), came, ended)


def refused(outcome: Outcome) -> list[tuple[str, str]]:
    return [(each.arrival.pod.name, each.elsewhere) for each in outcome.refused]


def waiting(outcome: Outcome) -> list[str]:
    return [arrival.pod.name for arrival in outcome.waiting]


def test_a_pod_leaves_its_cpus_at_its_end_and_not_before() -> None:
    first = stay("first", FOUR, 0, 10)
    assert refused(what_if_since(ONE_NODE, [first, stay("second", FOUR, 10)], AS_IT_IS)) == []
    outcome = what_if_since(ONE_NODE, [first, stay("second", FOUR, 9)], AS_IT_IS)
    assert (refused(outcome), outcome.admitted) == ([("second", "a")], 1)


def test_each_pod_is_settled_once_it_has_come() -> None:
    settled: list[int] = []
    stays = [stay("first", FOUR, 0, 10), stay("second", FOUR, 1, 2), stay("third", FOUR, 2, node="")]
    what_if_since(ONE_NODE, stays, AS_IT_IS, (), lambda: settled.append(1))
    assert len(settled) == len(stays)


def test_another_policy_is_asked_in_time_too() -> None:
    stays = [stay("x", TWO, 0), stay("y", TWO, 1), stay("wide", THREE, 2)]
    assert refused(what_if_since(ONE_NODE, stays, AS_IT_IS)) == [("wide", "")]
    outcome = what_if_since(ONE_NODE, stays, BEST_EFFORT)
    assert (refused(outcome), outcome.admitted, outcome.aligned) == ([], 3, 2)


def test_the_order_is_that_of_time_and_of_one_time_that_in_which_pods_are_given() -> None:
    early, late = stay("early", FOUR, 1), stay("late", FOUR, 2)
    assert refused(what_if_since(ONE_NODE, [late, early], AS_IT_IS)) == [("late", "")]
    other = stay("other", FOUR, 1)
    assert refused(what_if_since(ONE_NODE, [other, early], AS_IT_IS)) == [("early", "")]


def test_a_pod_that_is_refused_runs_elsewhere_at_once_or_when_one_ends_and_then_as_long_as_it_ran() -> None:
    two = snapshot_of(node_state(name="a"), node_state(name="b"))
    first, second = stay("first", FOUR, 0, 10), stay("second", FOUR, 1, 21)
    assert refused(what_if_since(two, [first, second], AS_IT_IS)) == [("second", "b")]
    # Alone, the second begins at 10, runs for 20, and ends at 30.
    for came in (29, 30):
        third = stay("third", FOUR, came, 40)
        outcome = what_if_since(ONE_NODE, [first, second, third], AS_IT_IS)
        assert refused(outcome)[0] == ("second", "a")
        assert (("third", "a") in refused(outcome)) is (came < 30)


def test_a_pod_without_a_node_goes_to_the_best_one_or_waits_for_an_end() -> None:
    waits = stay("waits", FOUR, 1, node="")
    outcome = what_if_since(ONE_NODE, [waits], AS_IT_IS)
    assert (waiting(outcome), outcome.admitted) == ([], 1)
    holder = stay("holder", FOUR, 0)
    assert waiting(what_if_since(ONE_NODE, [holder, waits], AS_IT_IS)) == ["waits"]
    ends = stay("holder", FOUR, 0, 5)
    assert waiting(what_if_since(ONE_NODE, [ends, waits], AS_IT_IS)) == []


def test_of_several_that_wait_the_first_that_fits_gets_the_place() -> None:
    stays = [
        stay("holder", FOUR, 0, 9),
        stay("too-large", "cpu=5 memory=1Mi", 1, node=""),
        stay("first", FOUR, 2, node=""),
        stay("second", FOUR, 3, node=""),
    ]
    assert waiting(what_if_since(ONE_NODE, stays, AS_IT_IS)) == ["too-large", "second"]


def test_a_pod_of_each_node_waits_for_no_other() -> None:
    two = snapshot_of(node_state(name="a"), node_state(name="b"))
    of_each = Stay(Arrival(pod("agent", FOUR), node="a", of_each_node=True), 1)
    outcome = what_if_since(two, [stay("holder", FOUR, 0, 5), of_each], AS_IT_IS)
    assert (refused(outcome), waiting(outcome)) == ([("agent", "")], [])


def test_a_pod_beyond_the_first_that_wait_is_not_forgotten() -> None:
    several = [stay(f"p{number}", FOUR, 1 + number, node="") for number in range(MOST_TRIED + 1)]
    ends = [stay("holder", FOUR, 0, 1_000)]
    assert len(what_if_since(ONE_NODE, [*ends, *several], AS_IT_IS).waiting) == MOST_TRIED


def test_random_comings_and_ends_are_answered_as_one_after_the_other() -> None:
    """Each pod has a node of its own, on which alone it may be."""
    random, seen = Random(SEED), 0
    names = [f"n{number}" for number in range(3)]
    for _ in range(40):
        stays = [
            Stay(
                Arrival(
                    pod(f"p{number}", random.choice((TWO, THREE, FOUR))), node=random.choice(names), of_each_node=True
                ),
                came := random.randint(0, 40),
                random.choice((None, came + random.randint(0, 20))),
            )
            for number in range(30)
        ]
        states = [node_state(name=name) for name in names]
        outcome = what_if_since(snapshot_of(*states), stays, AS_IT_IS)
        assert {each.arrival.pod.name for each in outcome.refused} == _refused_in_turn(stays)
        seen += len(outcome.refused)
    assert seen > 100


def _refused_in_turn(stays: Sequence[Stay]) -> set[str]:
    """The pods that nodes refuse, second by second: ends first, then comings in the order given."""
    states, there = {f"n{number}": node_state(name=f"n{number}") for number in range(3)}, set[str]()
    for second in range(70):
        for stay in stays:
            if stay.ended == second and stay.arrival.pod.name in there and stay.came < second:
                states[stay.arrival.node] = release(states[stay.arrival.node], "ns", stay.arrival.pod.name)
        for stay in stays:
            if stay.came == second:
                verdict, states[stay.arrival.node] = admit(states[stay.arrival.node], stay.arrival.pod)
                there |= {stay.arrival.pod.name} if verdict.admitted else set()
                if stay.ended == second and verdict.admitted:
                    states[stay.arrival.node] = release(states[stay.arrival.node], "ns", stay.arrival.pod.name)
    return {stay.arrival.pod.name for stay in stays} - there
