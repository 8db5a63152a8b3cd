"""When a refusal is explained: at once, after the node's next publication, or never, where replay disagrees."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from tests.builders import gated_pod, guaranteed_pod, node_state, refused_pod, snapshot_of
from tests.clock import Clock
from tests.reconcile.emitted import Emitted

from topomend.cache import changes
from topomend.cache.entries import Refusal
from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.decide.plan import PUBLICATION_SECONDS
from topomend.kube.errors import APIError, Unanswered
from topomend.model.pods.pod import Pod
from topomend.reconcile import explainer
from topomend.reconcile.explainer import CLOSEST_SECONDS, Explainer
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import RETRY_SECONDS, Result
from topomend.reconcile.store import Store

EMPTY = snapshot_of(node_state())
"""Published before the refusal: replay admits the pod."""

FRAGMENTED = snapshot_of(node_state(pods=[guaranteed_pod("low", 2), guaranteed_pod("high", 2)]))
"""Replay refuses the pod as the kubelet did."""

POD_ID = PodID("ns", "p", "p")


class Operator:
    """An explainer, the snapshot that it reads, and what it reports."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.store, self.clock, self.emitted = Store(), Clock(), Emitted()
        self.store.snapshot = snapshot
        self.reported: list[changes.Change] = []
        metrics = Metrics(lambda: self.store.snapshot, lambda: 0, lambda: True)
        self.counted: list[str] = []
        self.counts: Callable[[], None] = partial(self.know_totals, 2000)
        self.explainer = Explainer(
            self.store, self.emitted.announcer, metrics, self.reported.append, self.clock, count=self._count
        )
        self.refusal = Refusal(refused_pod(), "5", self.clock.now)

    def know_totals(self, left: int) -> None:
        """The pods of the node leave so many thousandths of a CPU."""
        before = self.store.snapshot
        used = {"cpu": before.nodes["a"].allocatable["cpu"] - left}
        self.store.snapshot = replace(before, nodes={"a": replace(before.nodes["a"], used=used)})

    def _count(self, node: str) -> None:
        self.counted.append(node)
        self.counts()

    def report_gated(self, because: str = "") -> str:
        """What the Event says of a pod of 3 CPUs."""
        pod = gated_pod(cpus=3)
        diagnosis = diagnose(FRAGMENTED, pod.pod, pod.placement)
        self.explainer.report_gated(pod, diagnosis.summary(""), diagnosis, because)
        [(_, kind, reason, _, text)] = self.emitted.events
        assert (kind, reason) == ("Warning", "UngateDeferred")
        return text

    def explain(self) -> Result | None:
        return self.explainer.explain(POD_ID, self.refusal, None, None)


def test_a_refusal_that_replay_understands_is_explained_at_once() -> None:
    operator = Operator(FRAGMENTED)
    assert operator.explain() is None
    assert operator.emitted.reasons() == ["TopologyRefusalExplained"]
    assert operator.explainer.explain_late(POD_ID) is None
    assert len(operator.emitted.events) == 1


def test_a_refusal_that_the_published_state_does_not_show_is_explained_after_the_next_publication_and_once() -> None:
    operator = Operator(EMPTY)
    assert operator.explain() == Result(PUBLICATION_SECONDS, on_any_change=True)
    assert operator.emitted.events == []
    operator.store.snapshot = FRAGMENTED
    assert operator.explainer.explain_late(POD_ID) is None
    assert operator.explainer.explain_late(POD_ID) is None
    assert operator.emitted.reasons() == ["TopologyRefusalExplained"]


def test_a_refusal_that_is_still_not_shown_is_remembered_with_the_time_that_remains() -> None:
    operator = Operator(EMPTY)
    operator.explain()
    operator.clock.now += 1
    for _ in range(2):
        assert operator.explainer.explain_late(POD_ID) == Result(PUBLICATION_SECONDS - 1, on_any_change=True)


def test_a_refusal_that_no_publication_explains_in_time_is_a_mismatch() -> None:
    operator = Operator(EMPTY)
    operator.explain()
    operator.clock.now += PUBLICATION_SECONDS
    assert operator.explainer.explain_late(POD_ID) is None
    assert operator.emitted.reasons() == ["ReplayMismatch"]
    assert operator.reported == [changes.MismatchDetected("a", "p", operator.clock.now)]


def test_who_asks_for_an_explanation_now_remembers_for_himself() -> None:
    operator = Operator(EMPTY)
    assert operator.explainer.explain_now(operator.refusal) == Result(PUBLICATION_SECONDS, on_any_change=True)
    operator.store.snapshot = FRAGMENTED
    assert operator.explainer.explain_late(POD_ID) is None
    assert operator.emitted.events == []


def test_who_leads_again_does_not_explain_what_another_has_explained_meanwhile() -> None:
    operator = Operator(EMPTY)
    operator.explain()
    operator.explainer.take_over()
    operator.store.snapshot = FRAGMENTED
    assert operator.explainer.explain_late(POD_ID) is None
    assert operator.emitted.events == []


@pytest.mark.parametrize(
    ("cpus", "reason", "never", "result"),
    [
        (3, "NoNodeAdmitsNow", False, Result(RETRY_SECONDS, on_capacity=True)),
        (5, "NoNodeCanEverAdmit", True, Result(on_topology_change=True)),
    ],
    ids=["until pods end", "not even when empty"],
)
def test_a_pod_waits_for_capacity_or_where_not_even_an_empty_node_admits_it_for_another_node(
    cpus: int, reason: str, never: bool, result: Result
) -> None:
    operator = Operator(FRAGMENTED)
    note, requeued = operator.explainer.report_unschedulable(gated_pod(cpus=cpus), "numa-a lacks 1 CPU")
    assert (note.reason, note.never, requeued) == (reason, never, result)
    [(_, _, event, _, text)] = operator.emitted.events
    assert event == ("NoNodeCanEverAdmit" if never else "UngateDeferred")
    assert note.message in text


def test_a_gated_pods_event_names_the_closest_node_and_why_it_is_gated_where_one_is_posted() -> None:
    text = Operator(FRAGMENTED).report_gated("gated because web-1 was refused")
    assert "; closest: a lacks 1 of 3 cpu (free 1 on NUMA 0, 2 on NUMA 1)" in text
    assert "would be admitted with 2 CPUs" in text
    assert "; gated because web-1 was refused; retried" in text


@pytest.mark.parametrize(("left", "amount"), [(2000, "2 CPUs"), (1000, "1 CPU;")], ids=["NUMA", "totals"])
def test_the_totals_of_the_closest_node_are_counted_before_an_amount_is_named(left: int, amount: str) -> None:
    operator = Operator(FRAGMENTED)
    operator.counts = partial(operator.know_totals, left)
    assert f"; would be admitted with {amount}" in operator.report_gated()
    assert operator.counted == ["a"]


def test_known_totals_are_not_counted_again() -> None:
    operator = Operator(FRAGMENTED)
    operator.know_totals(1000)
    assert "; would be admitted with 1 CPU;" in operator.report_gated()
    assert operator.counted == []


@pytest.mark.parametrize("error", [None, Unanswered("no answer")], ids=["not now", "in vain"])
def test_no_amount_is_named_where_the_totals_cannot_be_counted(error: APIError | None) -> None:
    operator = Operator(FRAGMENTED)

    def counts() -> None:
        if error:
            raise error

    operator.counts = counts
    text = operator.report_gated()
    assert operator.counted == ["a"]
    assert "; closest: a lacks 1 of 3 cpu (free 1 on NUMA 0, 2 on NUMA 1); retried" in text


def test_the_closest_node_is_sought_once_in_a_while_for_all_pods_of_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Operator(FRAGMENTED)
    sought: list[str] = []

    def words(_: Snapshot, pod: Pod, *__: object) -> str:
        sought.append(pod.name)
        return f"for {pod.name}"

    monkeypatch.setattr(explainer, "closest_words", words)

    def report(name: str, cpus: int) -> str:
        pod = gated_pod(name, cpus)
        diagnosis = diagnose(FRAGMENTED, pod.pod, pod.placement)
        operator.explainer.report_gated(pod, "no node admits it now", diagnosis)
        return operator.emitted.events[-1][-1]

    assert "; for p;" in report("p", 3)
    assert "; for p;" in report("q", 3)
    assert "; for wide;" in report("wide", 4)
    operator.clock.now += CLOSEST_SECONDS
    assert "; for q;" in report("q", 3)
    assert sought == ["p", "wide", "q"]


def test_nothing_more_is_found_out_where_no_event_would_be_posted(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Operator(FRAGMENTED)
    operator.emitted.budget = False
    monkeypatch.setattr(explainer, "closest", lambda *_: pytest.fail("asked"))
    pod = gated_pod(cpus=3)
    operator.explainer.report_unschedulable(pod, "why", diagnosis=diagnose(FRAGMENTED, pod.pod, pod.placement))
    assert len(operator.emitted.events) == 1, "the recorder drops it"


def test_a_pod_that_a_node_admits_waits_for_its_turn() -> None:
    operator = Operator(FRAGMENTED)
    pod = gated_pod(cpus=2)
    diagnosis = diagnose(FRAGMENTED, pod.pod, pod.placement)
    assert diagnosis.candidates
    assert operator.explainer.report_gated(pod, "reserved", diagnosis) == (
        False,
        Result(RETRY_SECONDS, on_capacity=True),
    )
    assert operator.emitted.reasons() == ["WaitingForTurn"]


def test_why_a_gated_pod_is_infeasible_is_not_found_out_where_nobody_could_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = Operator(FRAGMENTED)
    assert operator.explainer.report_gated(gated_pod(cpus=5), "") == (True, Result(on_topology_change=True))
    assert operator.emitted.reasons() == ["NoNodeCanEverAdmit"]
    operator.emitted.budget = False
    monkeypatch.setattr(explainer, "misses", lambda *_: pytest.fail("asked"))
    assert operator.explainer.report_gated(gated_pod(cpus=5), "") == (True, Result(on_topology_change=True))
    assert operator.emitted.reasons() == ["NoNodeCanEverAdmit"]
