"""The nodes that have changed since a number, and that no snapshot but the newest is kept for it."""

import gc
import weakref
from dataclasses import replace

from tests.builders import guaranteed_pod, node, node_state, running

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.reconcile.kueue.changed_since import ChangedSince
from topomend.reconcile.store import Store


def cluster() -> Store:
    """Two nodes with an agent each."""
    store = Store()
    for name in "ab":
        store.apply(changes.NodeUpdated(node(name)))
        store.apply(changes.Published(node_state(name=name), "1"))
    return store


def publish(store: Store, name: str, version: str, *pods: str) -> None:
    state = running(node_state(name=name), *(guaranteed_pod(each, 2) for each in pods))
    store.apply(changes.Published(state, version))


def with_used(snapshot: Snapshot, cpus: int) -> Snapshot:
    """The cluster in which the pods of ``a`` take so much of its totals."""
    return replace(snapshot, nodes={**snapshot.nodes, "a": replace(snapshot.nodes["a"], used={"cpu": cpus})})


def test_a_number_tells_the_nodes_that_have_changed_after_it() -> None:
    store, changed = cluster(), ChangedSince()
    first = changed.number_of(store.snapshot)
    assert changed.number_of(store.snapshot) == first
    assert changed.since(first) == set()
    assert changed.since(0) == {"a", "b"}
    publish(store, "a", "2", "p")
    second = changed.number_of(store.snapshot)
    publish(store, "b", "2", "q")
    changed.number_of(store.snapshot)
    assert (changed.since(first), changed.since(second)) == ({"a", "b"}, {"b"})
    publish(store, "a", "3")
    third = changed.number_of(store.snapshot)
    assert (changed.since(second), changed.since(third)) == ({"a", "b"}, set())


def test_a_change_to_and_fro_counts() -> None:
    """A pod came and went meanwhile: the workload is asked about once more, and none that fits is missed."""
    store, changed = cluster(), ChangedSince()
    first = changed.number_of(store.snapshot)
    publish(store, "a", "2", "p")
    changed.number_of(store.snapshot)
    publish(store, "a", "3")
    changed.number_of(store.snapshot)
    assert changed.since(first) == {"a"}


def test_what_admits_no_pod_more_does_not_count() -> None:
    store, changed = cluster(), ChangedSince()
    first = changed.number_of(with_used(store.snapshot, 1000))
    second = changed.number_of(with_used(store.snapshot, 2000))
    assert changed.since(first) == set()
    changed.number_of(with_used(store.snapshot, 1000))
    assert changed.since(second) == {"a"}


def test_a_node_that_is_gone_is_forgotten() -> None:
    store, changed = cluster(), ChangedSince()
    changed.number_of(store.snapshot)
    store.apply(changes.NodeRemoved("a"))
    changed.number_of(store.snapshot)
    assert changed.since(0) == {"b"}


def test_no_snapshot_but_the_newest_is_kept() -> None:
    store, changed, numbers = cluster(), ChangedSince(), list[int]()
    kept: list[weakref.ref[Snapshot]] = []
    for version in range(2, 22):
        publish(store, "a", str(version), f"p{version}")
        numbers.append(changed.number_of(store.snapshot))
        kept.append(weakref.ref(store.snapshot))
    gc.collect()
    assert [snapshot() is not None for snapshot in kept] == [False] * 19 + [True]
    assert [changed.since(number) for number in numbers] == [{"a"}] * 19 + [set()]
