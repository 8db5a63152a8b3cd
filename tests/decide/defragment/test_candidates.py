"""Whom budgets let go, and who waits for whom."""

from dataclasses import replace

import pytest
from tests.builders import gated_pod, watched_pod

from topomend.decide.budgets import NamespacesBudget
from topomend.decide.defragment.candidates import ending_of, queue_of, waits_for_us, within_budgets
from topomend.model.pods.evictable_pod import EvictablePod
from topomend.model.pods.scheduling import NodeSelectorTerm, Owner, Placement, PodGroup, Requirement
from topomend.wire.disruption_budget import DisruptionBudget

APP = Placement(terms=(NodeSelectorTerm((Requirement("app", "In", ("half",)),)),))


def budget(
    allowed: int, selects: Placement | None = APP, namespace: str = "ns", *, empty: bool = False
) -> NamespacesBudget:
    return NamespacesBudget(namespace, DisruptionBudget(selects, allowed, frozenset(), empty))


CHOSEN = [EvictablePod(watched_pod(name), labels={"app": app}) for name, app in (("one", "half"), ("other", "whole"))]


@pytest.mark.parametrize(
    ("names", "budgets"),
    [
        ({"one", "other"}, []),
        ({"one", "other"}, [budget(1)]),
        ({"other"}, [budget(0)]),
        ({"one", "other"}, [budget(0, namespace="elsewhere")]),
        ({"one", "other"}, [budget(0, Placement(terms=()))]),
        (set(), [budget(0, Placement(terms=()), empty=True)]),
        (set(), [budget(0, None)]),
        ({"other"}, [budget(5), budget(5)]),
    ],
    ids=["none", "one left", "none left", "elsewhere", "selects nobody", "empty", "too large", "two"],
)
def test_budgets_keep_the_pods_that_they_select(names: set[str], budgets: list[NamespacesBudget]) -> None:
    movable, _ = within_budgets(CHOSEN, budgets)
    assert {each.pod.name for each in movable} == names


def test_a_budget_counts_for_all_its_pods_together() -> None:
    both = [replace(each, labels={"app": "half"}) for each in CHOSEN]
    _, limits = within_budgets(both, [budget(1)])
    assert [(limit.pods, limit.allowed) for limit in limits] == [(frozenset({"one", "other"}), 1)]


def test_those_wait_for_topomend_for_which_it_chooses_alone() -> None:
    waits = gated_pod("waits")
    assert waits_for_us(waits)
    assert not waits_for_us(replace(waits, gates=(*waits.gates, "example.com/other")))
    assert not waits_for_us(replace(waits, gates=()))
    assert not waits_for_us(replace(waits, deleting=True))
    assert not waits_for_us(replace(waits, group=PodGroup("scheduling.x-k8s.io", "g")))


def test_they_wait_in_the_order_of_their_turns_and_some_for_more_than_replay_knows() -> None:
    pods = [
        gated_pod("late", created=2),
        gated_pod("early", created=1, scheduler_rules=("topologySpreadConstraints",)),
        gated_pod("urgent", created=3, priority=1, claims=("data",)),
    ]
    assert [(each.pod.name, each.certain) for each in queue_of(pods)] == [
        ("urgent", False),
        ("early", False),
        ("late", True),
    ]


def test_a_jobs_pod_is_expected_to_end_and_a_replica_is_not() -> None:
    job = watched_pod("job-1", owner=Owner("Job", "job", "uid-of-job", "batch/v1"))
    assert ending_of(job) == ("ns", "job-1")
    assert ending_of(replace(job, owner=Owner("ReplicaSet", "half", "uid-of-half", "apps/v1"))) is None
