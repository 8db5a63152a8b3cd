"""Places are held for the pods of a workload until these come, and then for no longer."""

from tests.builders import NAMESPACE, applied, gated_pod, guaranteed_pod, node_state, snapshot_of, watched_pod

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.model.pods.scheduling import Owner

KEY = (NAMESPACE, "train")
EMPTY = snapshot_of(node_state(name="a"), node_state(name="b"))
JOB = Owner("Job", "train", "job-uid", "batch/v1")


def place(number: int, node: str, pod_set: str = "main") -> tuple[object, str]:
    return guaranteed_pod(f"train/{pod_set}/{number}", 3), node


def promised(*nodes: str, until: float = 60.0, to: Snapshot = EMPTY) -> Snapshot:
    """Two pod sets: a leader on the first of these nodes, and workers on the others."""
    leader, *workers = nodes
    places = {
        "leader": (place(0, leader, "leader"),),
        "main": tuple(place(number, name) for number, name in enumerate(workers)),
    }
    return applied(changes.PlacesPromised(*KEY, "job-uid", places, until), to=to)  # type: ignore[arg-type]


def held(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """The nodes of every pod that counts against some."""
    return {name: assumed.nodes for (_, name), assumed in snapshot.assumed.items()}


def free_cpus(snapshot: Snapshot, node: str) -> int:
    return 8 - sum(len(pod.containers) * 3 for pod in snapshot.publications[node].assumed_pods)


def test_a_promised_place_counts_against_its_node() -> None:
    snapshot = promised("a", "a", "b")
    assert held(snapshot) == {"train/leader/0": ("a",), "train/main/0": ("a",), "train/main/1": ("b",)}
    assert (free_cpus(snapshot, "a"), free_cpus(snapshot, "b")) == (2, 5)


def test_a_pod_that_comes_takes_a_place_of_its_pod_set_once() -> None:
    comes = gated_pod("train-x", workload="train", pod_set="main")
    snapshot = applied(changes.PodUpdated(comes, 1.0), changes.PodUpdated(comes, 2.0), to=promised("a", "b", "b"))
    assert held(snapshot) == {"train/leader/0": ("a",), "train-x": ("b",), "train/main/1": ("b",)}


def test_a_pod_that_names_no_workload_takes_the_place_that_its_owner_has() -> None:
    comes = gated_pod("train-x", owner=JOB)
    assert held(applied(changes.PodUpdated(comes, 1.0), to=promised("a"))) == {"train-x": ("a",)}


def test_a_bound_pod_counts_on_its_own_node_and_its_place_is_free() -> None:
    comes = watched_pod("train-x", 3, node="b", workload="train", pod_set="leader")
    assert held(applied(changes.PodUpdated(comes, 1.0), to=promised("a"))) == {"train-x": ("b",)}


def test_pods_of_other_workloads_take_no_place() -> None:
    others = [
        gated_pod("x", workload="other", pod_set="main"),
        gated_pod("y", workload="train", pod_set="main", namespace="elsewhere"),
        gated_pod("z", owner=Owner("Job", "other", "other-uid")),
    ]
    before = promised("a", "b")
    assert held(applied(*(changes.PodUpdated(other, 1.0) for other in others), to=before)) == held(before)


def test_the_last_pod_ends_the_promise() -> None:
    snapshot = promised("a")
    assert applied(changes.PodUpdated(gated_pod("x", workload="train"), 1.0), to=snapshot).promises == {}


def test_a_further_pod_of_a_workload_takes_nothing() -> None:
    pods = [gated_pod(name, workload="train", pod_set="leader") for name in ("x", "y", "z")]
    snapshot = applied(*(changes.PodUpdated(pod, 1.0) for pod in pods), to=promised("a", "b"))
    assert held(snapshot) == {"x": ("a",), "y": ("b",)}


def test_a_promise_ends_by_time_unless_it_is_prolonged() -> None:
    snapshot = promised("a", "b", until=60.0)
    assert applied(changes.TimePassed(59.0), to=snapshot) == snapshot
    assert applied(changes.TimePassed(60.0), to=snapshot) == EMPTY
    longer = applied(changes.PromiseProlonged(*KEY, 90.0), changes.TimePassed(60.0), to=snapshot)
    assert held(longer) == held(snapshot)
    assert applied(changes.TimePassed(90.0), to=longer) == EMPTY


def test_an_ended_promise_gives_every_place_back_that_no_pod_has_taken() -> None:
    snapshot = applied(changes.PodUpdated(gated_pod("x", workload="train"), 1.0), to=promised("a", "b"))
    assert held(applied(changes.PromiseEnded(*KEY), to=snapshot)) == {"x": ("a",)}


def test_a_second_promise_replaces_the_first() -> None:
    assert held(promised("b", to=promised("a", "a", "a"))) == {"train/leader/0": ("b",)}


def test_changes_of_a_promise_that_is_not_there_change_nothing() -> None:
    for change in (changes.PromiseEnded(*KEY), changes.PromiseProlonged(*KEY, 9.0)):
        assert applied(change, to=EMPTY) is EMPTY


def test_a_list_of_pods_keeps_promises() -> None:
    snapshot = promised("a", "b")
    assert held(applied(changes.PodsListed((), "9", 1.0), to=snapshot)) == held(snapshot)
