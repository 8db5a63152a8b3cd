"""One transaction decides and assumes. Changes by other threads come before or after it, never between."""

import threading

import pytest
from tests.builders import guaranteed_pod, node_state

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.reconcile.store import Store
from topomend.replay.admission import admit


@pytest.fixture
def store() -> Store:
    store = Store()
    store.apply(changes.Published(node_state(), "1"))
    return store


def assumed(snapshot: Snapshot) -> list[str]:
    return [pod.name for pod in snapshot.publications["a"].assumed_pods]


def test_a_pod_is_assumed_for_everybody_once_the_transaction_ends(store: Store) -> None:
    with store.transaction() as transaction:
        transaction.assume(guaranteed_pod("p", 2), ("a",), 1.0)
        assert assumed(transaction.snapshot) == ["p"]
        assert assumed(store.snapshot) == []
    assert assumed(store.snapshot) == ["p"]


def test_a_decision_does_not_see_what_it_has_forgotten(store: Store) -> None:
    store.apply(changes.PodAssumed(guaranteed_pod("p", 3), ("a",), 1.0))
    with store.transaction() as transaction:
        transaction.forget("ns", "p")
        assert assumed(transaction.snapshot) == []


def test_a_transaction_that_fails_changes_nothing_and_does_not_block_the_next(store: Store) -> None:
    before = store.snapshot

    def fail() -> None:
        with store.transaction() as transaction:
            transaction.assume(guaranteed_pod("p", 2), ("a",), 1.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert store.snapshot is before
    store.apply(changes.PodAssumed(guaranteed_pod("q", 2), ("a",), 1.0))
    assert assumed(store.snapshot) == ["q"]


def test_a_change_of_another_thread_waits_for_the_transaction_and_is_not_lost(store: Store) -> None:
    other = threading.Thread(target=store.apply, args=(changes.PodAssumed(guaranteed_pod("other", 1), ("a",), 1.0),))
    with store.transaction() as transaction:
        other.start()
        other.join(0.2)
        assert other.is_alive()
        transaction.assume(guaranteed_pod("p", 2), ("a",), 1.0)
    other.join(10)
    assert assumed(store.snapshot) == ["p", "other"]


def test_pods_are_never_assumed_beyond_what_a_node_admits(store: Store) -> None:
    """Eight threads want 2 CPUs each of a NUMA node; one has room for one of them, the other for two."""
    placed: list[str] = []

    def place(name: str) -> None:
        with store.transaction() as transaction:
            verdict, _ = admit(transaction.snapshot.publications["a"].state_with_assumed, guaranteed_pod(name, 2))
            if verdict.admitted:
                transaction.assume(guaranteed_pod(name, 2), ("a",), 1.0)
                placed.append(name)

    threads = [threading.Thread(target=place, args=(f"p{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(placed) == sorted(assumed(store.snapshot))
    assert len(placed) == 3
