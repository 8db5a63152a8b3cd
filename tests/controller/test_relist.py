"""Which records a relist removes, from a list that the test makes up; the cluster's lists are in test_recovery."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.builders import node_state, node_topology_object

from topomend.controller import relist
from topomend.controller.ingest import AT_ONCE, Ingest
from topomend.controller.relist import EMPTY_SECONDS, MAX_ENDED, Relister
from topomend.kube.client import Reading
from topomend.kube.errors import APIError, Conflict, NotFound, Unanswered, refused
from topomend.kube.resources import NODE_TOPOLOGIES, RELAUNCHES, Resource
from topomend.model.condition import Condition
from topomend.model.relaunch_record import Relaunch, Step
from topomend.reconcile.gated.unschedulable_pods import UnschedulablePods
from topomend.reconcile.store import Store
from topomend.wire.relaunch_record import relaunch_object, relaunch_status

DAY = 86_400.0
RECORD = Relaunch("ns", "p-1", "p", "1", "a", "TopologyAffinityError", "", 1, uid="u", version="7")


class Records:
    """A cluster that has nothing but these records."""

    def __init__(self, records: Iterable[Relaunch], error: APIError) -> None:
        self._records, self._error = list(records), error
        self.removed: list[tuple[str, str]] = []
        self.changed: set[str] = set()

    def read(self, resource: Resource, reader: Callable[[dict[str, Any]], Iterable[Any]], **_: object) -> Reading[Any]:
        records = self._records if resource is RELAUNCHES else []
        return Reading(tuple(value for record in records for value in reader(content_of(record))), "9")

    def delete(self, _: Resource, name: str, namespace: str, *, uid: str, version: str) -> None:
        assert (uid, version) == ("u", "7")
        if name in self.changed:
            raise self._error
        self.removed.append((namespace, name))


class Topologies:
    """A cluster that has nothing but these nodes' objects, by name. Counts what is asked of it."""

    def __init__(self, *nodes: str) -> None:
        self.versions = dict.fromkeys(nodes, 5)
        self.metadata_lists = self.lists = 0
        self.got: list[str] = []
        self.gone: set[str] = set()

    def content(self, node: str) -> dict[str, Any]:
        return node_topology_object(node_state(name=node), version=str(self.versions[node]))

    def read(
        self,
        resource: Resource,
        reader: Callable[[dict[str, Any]], Iterable[Any]],
        *,
        metadata_only: bool = False,
        **_: object,
    ) -> Reading[Any]:
        contents = [self.content(node) for node in self.versions] if resource is NODE_TOPOLOGIES else []
        if resource is NODE_TOPOLOGIES:
            self.metadata_lists += metadata_only
            self.lists += not metadata_only
        if metadata_only:
            contents = [{"metadata": content["metadata"]} for content in contents]
        return Reading(tuple(value for content in contents for value in reader(content)), "9")

    def get(self, resource: Resource, name: str) -> dict[str, Any]:
        assert resource is NODE_TOPOLOGIES
        self.got.append(name)
        if name in self.gone:
            raise NotFound(404, "NotFound", name)
        return self.content(name)


def ingest_into(store: Store) -> Ingest:
    """An ingest for which nobody waits."""
    return Ingest(
        store,
        UnschedulablePods(store, lambda _: None),
        lambda _pod, _after: None,
        lambda _: None,
        bound=lambda _: None,
        dropped=lambda: None,
        clock=lambda: 0.0,
    )


class Relisted:
    """A store that relists of a cluster fill."""

    def __init__(self, cluster: Topologies) -> None:
        self.store = Store()
        self.ingest = ingest_into(self.store)
        self._relister = Relister(cluster, self.ingest, DAY)  # type: ignore[arg-type]

    def relist(self) -> dict[str, str]:
        """The last version of each node's publication that is known afterwards."""
        self._relister.relist(0.0, tidy=False)
        while items := self.ingest._inbox.take(AT_ONCE, 0.0):
            self.ingest._apply_items(items)
        return {name: publication.confirmed for name, publication in self.store.snapshot.publications.items()}


def content_of(record: Relaunch) -> dict[str, Any]:
    content = relaunch_object(record) | {"status": relaunch_status(record)}
    content["metadata"] |= {"uid": record.uid, "resourceVersion": record.version}
    return content


def ended(name: str, step: Step, seconds_ago: float, namespace: str = "ns") -> Relaunch:
    since = (datetime.now(UTC) - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = Condition("Succeeded", "True" if step is Step.LAUNCHED else "False", step.value, "", since)
    return replace(RECORD, name=name, namespace=namespace, step=step, conditions=(condition,))


CHANGED = Conflict(409, "Conflict", "it has changed")


def removed(*records: Relaunch, changed: str = "", tidy: bool = True, error: APIError = CHANGED) -> list[str]:
    """The names of the records that a relist removes; those that are ``changed`` are answered with ``error``."""
    cluster, store = Records(records, error), Store()
    cluster.changed.add(changed)
    Relister(cluster, ingest_into(store), DAY).relist(0.0, tidy=tidy)  # type: ignore[arg-type]
    return [name for _, name in cluster.removed]


def test_of_publications_that_are_known_only_the_metadata_is_listed() -> None:
    cluster = Topologies("a", "b", "c", "d")
    relisted = Relisted(cluster)
    assert relisted.relist() == dict.fromkeys("abcd", "5")
    states = {name: publication.state for name, publication in relisted.store.snapshot.publications.items()}
    cluster.got.clear()
    cluster.versions["b"] = 6
    del cluster.versions["c"]
    cluster.gone.add("d")
    cluster.versions["d"] = 7
    assert relisted.relist() == {"a": "5", "b": "6"}
    assert cluster.got == ["b", "d"]
    assert relisted.store.snapshot.publications["a"].state is states["a"]


def test_where_many_publications_are_not_known_all_are_listed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relist, "MAX_MISSED", 2)
    cluster = Topologies("a", "b", "c")
    relisted = Relisted(cluster)
    assert relisted.relist() == dict.fromkeys("abc", "5")
    assert (cluster.lists, cluster.got) == (1, [])
    cluster.versions |= {"a": 6, "b": 6}
    assert relisted.relist() == {"a": "6", "b": "6", "c": "5"}
    assert (cluster.metadata_lists, cluster.lists, cluster.got) == (2, 1, ["a", "b"])


def test_a_record_of_a_launch_is_kept_for_a_day_and_one_of_nothing_for_minutes() -> None:
    nothing = [
        ended("cancelled", Step.CANCELLED, EMPTY_SECONDS + 5),
        ended("superseded", Step.SUPERSEDED, EMPTY_SECONDS + 5),
    ]
    recent = [
        ended("just-cancelled", Step.CANCELLED, EMPTY_SECONDS / 2),
        ended("launched", Step.LAUNCHED, DAY / 2),
        replace(ended("open", Step.CREATED, 2 * DAY)),
        replace(ended("held", Step.CANCELLED, 2 * DAY), protected=True),
    ]
    old = ended("old", Step.LAUNCHED, DAY + 5)
    assert sorted(removed(*nothing, *recent, old)) == ["cancelled", "old", "superseded"]
    assert removed(*nothing, old, tidy=False) == []


def test_a_record_that_has_changed_stays_and_the_others_go() -> None:
    records = [ended(f"p-{index}", Step.LAUNCHED, DAY + 5) for index in range(3)]
    assert sorted(removed(*records, changed="p-1")) == ["p-0", "p-2"]


@pytest.mark.parametrize("error", [refused(status, b"{}") for status in (403, 429, 500)], ids=repr)
def test_a_record_that_cannot_be_removed_keeps_neither_another_nor_the_list_from_its_end(error: APIError) -> None:
    records = [ended(f"p-{index}", Step.LAUNCHED, DAY + 5) for index in range(3)]
    assert sorted(removed(*records, changed="p-1", error=error)) == ["p-0", "p-2"]


def test_where_nothing_can_be_removed_everything_is_listed_all_the_same() -> None:
    assert removed(ended("p", Step.LAUNCHED, DAY + 5), changed="p", error=Unanswered("away")) == []


def test_of_one_namespace_the_newest_records_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [ended(f"p-{age}", Step.LAUNCHED, 60.0 * age) for age in range(MAX_ENDED + 3)]
    other = ended("other", Step.LAUNCHED, DAY / 2, namespace="other")
    assert sorted(removed(*many, other)) == [f"p-{MAX_ENDED + age}" for age in range(3)]
    monkeypatch.setattr(relist, "MAX_REMOVED", 2)
    assert removed(*many, other) == [f"p-{MAX_ENDED + 1}", f"p-{MAX_ENDED + 2}"]
