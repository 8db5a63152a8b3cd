"""Whether all pods of a workload fit, on how few nodes, and the words of the answer."""

from dataclasses import replace

from tests.builders import gated_pod, guaranteed_pod, node_state, running, snapshot_of

from topomend.cache import changes
from topomend.cache.changes import apply
from topomend.cache.snapshot import Snapshot
from topomend.decide.gang import Placed, Unplaced
from topomend.decide.workload_fit import Asked, choose_places, fit_words, members, pins, unfit_words
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.pods.queued_workload import PodSet
from topomend.model.pods.scheduling import Placement, WatchedPod

TWO = snapshot_of(node_state(name="a"), node_state(name="b"))


def pod_set(count: int, cpus: int, name: str = "main", placement: Placement | None = None) -> PodSet:
    """A set of pods without gates, which no pod of a workload has that is still to come."""
    pod = gated_pod(f"train/{name}", cpus, gates=(), placement=placement or Placement())
    return PodSet(name, count, pod)


def chosen(snapshot: Snapshot, *pod_sets: PodSet, together: bool = False) -> tuple[Placed, ...] | Unplaced:
    pods = {each.name: members(each) for each in pod_sets}
    return choose_places(snapshot, pods, Asked(), together=together)


def nodes(placed: tuple[Placed, ...] | Unplaced) -> list[str]:
    assert not isinstance(placed, Unplaced)
    return sorted(each.node for each in placed)


def test_each_pod_of_a_set_has_a_name_that_no_pod_has() -> None:
    first, second = members(pod_set(2, 3))
    assert (first.name, second.name) == ("train/main/0", "train/main/1") == (first.pod.name, second.pod.name)
    assert first.pod.uid != second.pod.uid


def test_all_pods_of_all_sets_fit_together_or_none_does() -> None:
    leader, workers = pod_set(1, 4, "leader"), pod_set(3, 3, "workers")
    assert nodes(chosen(TWO, leader, workers)) == ["a", "a", "b", "b"]
    unplaced = chosen(TWO, leader, replace(workers, count=4))
    assert isinstance(unplaced, Unplaced)
    assert len(unplaced.beside) == 4


def test_a_set_goes_to_one_node_where_one_has_room_for_all_of_it() -> None:
    busy = snapshot_of(running(node_state(name="a"), guaranteed_pod("other", 3)), node_state(name="b"))
    assert nodes(chosen(busy, pod_set(2, 3))) == ["a", "b"]
    assert nodes(chosen(busy, pod_set(2, 3), together=True)) == ["b", "b"]


def test_a_set_is_spread_where_no_node_has_room_for_all_of_it() -> None:
    assert nodes(chosen(TWO, pod_set(3, 3), together=True)) == ["a", "a", "b"]


def test_sets_that_fit_only_apart_are_not_kept_together() -> None:
    """Of seven CPUs a node, the small pods together would leave one, and the large ones need a node each."""
    large, small = pod_set(2, 4, "large"), pod_set(2, 3, "small")
    assert nodes(chosen(TWO, large, small, together=True)) == ["a", "a", "b", "b"]


def test_a_set_on_one_node_is_pinned_and_another_is_not() -> None:
    one, spread = pod_set(1, 4, "one"), pod_set(3, 3, "spread")
    placed = chosen(TWO, one, spread, together=True)
    assert not isinstance(placed, Unplaced)
    assert set(pins(TWO, [one, spread], placed)) == {"one"}


def test_a_set_that_names_a_host_itself_is_not_pinned_by_us() -> None:
    own = pod_set(1, 3, placement=Placement(node_selector={HOSTNAME_LABEL: "b"}))
    placed = chosen(TWO, own, together=True)
    assert not isinstance(placed, Unplaced)
    assert nodes(placed) == ["b"]
    assert pins(TWO, [own], placed) == {}
    kueues = replace(pod_set(1, 3), spread_by_kueue=True)
    placed = chosen(TWO, kueues)
    assert not isinstance(placed, Unplaced)
    assert pins(TWO, [kueues], placed) == {}


def test_nodes_without_an_agent_are_said_to_be_unknown() -> None:
    snapshot = apply(TWO, changes.NodeUpdated(replace(TWO.nodes["a"], name="new", labels={HOSTNAME_LABEL: "new"})))
    placed = chosen(snapshot, pod_set(3, 4))
    assert not isinstance(placed, Unplaced)
    words = "3 pods fit by replay: 1 on a, 1 on b, 1 on nodes without an agent, of which nothing is known"
    assert fit_words(placed) == words
    assert pins(snapshot, [pod_set(3, 4)], placed) == {}


def test_the_words_name_nodes_and_what_lacks_beside_the_others() -> None:
    unplaced = chosen(TWO, pod_set(5, 3))
    assert isinstance(unplaced, Unplaced)
    words = unfit_words(TWO, unplaced)
    assert words.startswith("4 of the 5 pods that wait together fit; train/main/4: no node admits it now: ")
    assert "closest: a lacks 2 of 3 cpu" in words or "closest: b lacks 2 of 3 cpu" in words


def test_an_answer_names_few_nodes() -> None:
    many: tuple[WatchedPod, ...] = members(pod_set(20, 1))
    placed = [Placed(pod, f"node-{number}", None, "") for number, pod in enumerate(many)]  # type: ignore[arg-type]
    assert fit_words(placed).endswith("1 on node-7, the others on 12 more nodes")
    assert fit_words(placed[:1]) == "1 pod fits by replay: 1 on node-0"
