"""What is listed of the pods on a node, by a clock that the test moves, from pods that the test makes up."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.builders import node_state, pod_manifest, snapshot_of
from tests.clock import Clock

from topomend.cache.changes import Published, TotalsUnknown
from topomend.kube.client import Reading
from topomend.kube.errors import Unanswered
from topomend.kube.resources import Resource
from topomend.reconcile.placement.node_pods import DOUBT_SECONDS, FRESH_SECONDS, LIST_BURST, NodePods
from topomend.reconcile.store import Store


class Pods:
    """The pods on any node. ``before_answer`` is called by each list."""

    def __init__(self, *contents: dict[str, Any]) -> None:
        self.contents, self.error = list(contents), False
        self.before_answer: Callable[[], object] = lambda: None
        self.asked: list[tuple[str, str]] = []
        self.cached: list[bool] = []

    def read(
        self,
        _: Resource,
        reader: Callable[[dict[str, Any]], Iterable[Any]],
        *,
        fields: str,
        cached: bool,
        not_older_than: str,
    ) -> Reading[Any]:
        self.cached.append(cached)
        self.asked.append((fields.removeprefix("spec.nodeName=").partition(",")[0], not_older_than))
        if self.error:
            raise Unanswered("away")
        self.before_answer()
        return Reading(tuple(value for content in self.contents for value in reader(content)), "7")


@pytest.fixture
def store() -> Store:
    store = Store()
    store.snapshot = snapshot_of(*(node_state(name=name) for name in ("a", "b", "c")))
    return store


def on_node(uid: str, *containers: str, phase: str = "Running") -> dict[str, Any]:
    return pod_manifest(uid, *containers, namespace="ns", uid=uid, status={"phase": phase})


def test_the_snapshot_knows_what_the_pods_of_a_listed_node_take(store: Store) -> None:
    waiting = on_node("p", "request:cpu=1", phase="Pending")
    api = Pods(on_node("a", "request:cpu=2"), on_node("b", *["request:cpu=1m"] * 500), waiting)
    NodePods(api, store, lambda: "5").list("a")  # type: ignore[arg-type]
    assert store.snapshot.nodes["a"].used == {"cpu": 3500, "pods": 3000}
    assert store.snapshot.totals["a"].pending == {"p": {"cpu": 1000, "pods": 1000}}
    assert store.snapshot.nodes["b"].used is None
    assert api.asked == [("a", "5")]


def test_a_list_is_of_the_api_servers_cache_only_where_it_is_known_how_old_it_may_be(store: Store) -> None:
    """A cache that lags may lack what happened before the watch began, of which the watch shows nothing either."""
    api, newest = Pods(), ["", "5", ""]
    pods = NodePods(api, store, iter(newest).__next__)  # type: ignore[arg-type]
    for _ in newest:
        pods.list("a")
    assert list(zip(api.cached, api.asked, strict=True)) == [
        (False, ("a", "")),
        (True, ("a", "5")),
        (False, ("a", "")),
    ]


def test_a_pod_that_cannot_be_read_hides_no_other_of_its_node(store: Store) -> None:
    odd = on_node("odd", "request:cpu=2")
    odd["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
    NodePods(Pods(odd, on_node("a", "request:cpu=2")), store).list("a")  # type: ignore[arg-type]
    assert store.snapshot.nodes["a"].used == {"cpu": 2000, "pods": 2000}


def test_a_list_that_fails_leaves_what_was_known(store: Store) -> None:
    api = Pods(on_node("a", "request:cpu=2"))
    pods = NodePods(api, store)  # type: ignore[arg-type]
    pods.list("a")
    api.error = True
    with pytest.raises(Unanswered):
        pods.list("a")
    assert store.snapshot.nodes["a"].used == {"cpu": 2000, "pods": 1000}
    assert not store.snapshot.totals["a"].lists


def test_a_list_that_began_before_a_gap_counts_no_more_while_the_next_one_is_read(store: Store) -> None:
    api = Pods(on_node("a", "request:cpu=2"))
    pods = NodePods(api, store)  # type: ignore[arg-type]
    is_read, go_on = threading.Event(), threading.Event()
    following = threading.Thread(target=pods.list, args=("a",), daemon=True)

    def be_read() -> None:
        is_read.set()
        go_on.wait()

    def have_a_gap() -> None:
        store.apply(TotalsUnknown())
        api.before_answer = be_read
        following.start()
        is_read.wait()

    api.before_answer = have_a_gap
    pods.list("a")
    assert store.snapshot.nodes["a"].used is None
    go_on.set()
    following.join()
    assert store.snapshot.nodes["a"].used == {"cpu": 2000, "pods": 1000}


def test_doubtful_nodes_are_listed_again_the_oldest_first_and_one_a_second(store: Store) -> None:
    clock, api = Clock(), Pods()
    pods = NodePods(api, store, clock=clock)  # type: ignore[arg-type]
    for name in ("b", "a", "c"):
        pods.list(name)
        clock.now += 1
    assert [pods.may_list() for _ in range(LIST_BURST + 1)][-1] is False
    api.asked.clear()
    pods.doubt(["a", "b", "gone"])
    pods.list_doubtful()
    assert api.asked == [], "there is no token"
    clock.now += FRESH_SECONDS
    for _ in range(20):
        pods.list_doubtful()
        clock.now += 0.5
    assert [name for name, _ in api.asked[:2]] == ["b", "a"]
    assert len(api.asked) <= 20 * 0.5 + FRESH_SECONDS + 1
    api.asked.clear()
    clock.now += DOUBT_SECONDS
    pods.list_doubtful()
    assert api.asked == []


def test_a_doubtful_node_whose_agent_has_published_since_is_listed_first_and_at_once(store: Store) -> None:
    clock, api = Clock(), Pods()
    pods = NodePods(api, store, clock=clock)  # type: ignore[arg-type]
    for name in ("b", "a", "c"):
        pods.list(name)
    pods.doubt(["a", "b", "c"])
    pods.list_doubtful()
    store.apply(Published(node_state("numa:2 cores:2", name="a"), "9"))
    for _ in range(2):
        pods.list_doubtful()
    assert [name for name, _ in api.asked] == ["b", "a", "c", "a"]
