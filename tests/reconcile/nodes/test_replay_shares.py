"""A node for which replay takes too long is set aside, and everybody else is served."""

import time

import pytest
from tests.builders import gated_pod, node, node_state, pod, refused_pod, snapshot_of
from tests.clock import Clock
from tests.hostile import costly_state
from tests.reconcile.emitted import Emitted

from topomend.cache import changes
from topomend.cache.entries import Refusal
from topomend.cache.snapshot import Snapshot
from topomend.decide import plan as plans
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Placement
from topomend.reconcile.explainer import Explainer
from topomend.reconcile.gated import unschedulable_pods
from topomend.reconcile.gated.reservation_turns import ReservationTurns
from topomend.reconcile.gated.unschedulable_pods import UnschedulablePods
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.nodes.replay_shares import within_shares
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import Result
from topomend.reconcile.store import Store
from topomend.replay.effort import ADMISSION_SECONDS, Effort, Overspent

ASKED = pod("p", "cpu=2 memory=2Gi")
WATCHED = gated_pod(pod=ASKED)
ASIDE = "a: it is set aside for a while: replay of what its agent publishes takes too long"


@pytest.fixture
def store() -> Store:
    """A cluster of the hostile node a and the honest node b."""
    store = Store()
    honest = node_state(name="b", memory_manager="Static", reserved_memory="512Mi,512Mi")
    store.snapshot = snapshot_of(costly_state(), honest)
    return store


def test_a_pod_goes_to_another_node_and_the_costly_one_says_why_it_was_not_asked(store: Store) -> None:
    chosen = within_shares(store, lambda effort: plans.choose(store.snapshot, WATCHED, None, effort=effort))
    assert isinstance(chosen, plans.RelaunchOn)
    assert chosen.nodes == ("b",)
    assert [status.why for status in chosen.diagnosis.rejected] == [ASIDE]


def test_later_pods_do_not_wait_for_the_costly_node_whatever_it_publishes(store: Store) -> None:
    within_shares(store, lambda effort: plans.choose(store.snapshot, WATCHED, None, effort=effort))
    published = [changes.Published(costly_state(seed=seed), str(seed + 10)) for seed in range(2, 30)]
    began = time.thread_time()
    for change in published:
        store.apply(change)
        within_shares(store, lambda effort: plans.choose(store.snapshot, WATCHED, None, effort=effort))
    assert time.thread_time() - began < len(published) * ADMISSION_SECONDS, "not each of them costs a share"


def test_a_change_of_the_costly_node_alone_requeues_no_pod_and_sets_it_aside(store: Store) -> None:
    requeued: list[str] = []
    store.apply(changes.PodUpdated(WATCHED, 1.0))
    waiting = UnschedulablePods(store, lambda pod_id: requeued.append(pod_id.name))
    waiting.add(PodID("ns", "p", "p"), Result(on_capacity=True), store.snapshot)
    store.apply(changes.Published(costly_state(seed=2), "9"))
    waiting.requeue_affected()
    assert requeued == []
    assert store.snapshot.set_aside["a"].active


def test_waiting_pods_of_one_kind_are_asked_about_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def admits(_snapshot: Snapshot, _names: object, asked_pod: Pod, *_: object) -> bool:
        asked.append(asked_pod.name)
        return True

    monkeypatch.setattr(unschedulable_pods, "any_node_admits", admits)
    requeued: list[str] = []
    waiting = UnschedulablePods(store, lambda pod_id: requeued.append(pod_id.name))
    elsewhere = Placement(node_selector={"zone": "x"})
    for name, placement in (("p0", Placement()), ("p1", Placement()), ("p2", elsewhere)):
        store.apply(changes.PodUpdated(gated_pod(name, placement=placement), 1.0))
        waiting.add(PodID("ns", name, name), Result(on_capacity=True), store.snapshot)
    waiting.requeue_affected()
    asked.clear()
    requeued.clear()
    store.apply(changes.NodeUpdated(node("b", unschedulable=True)))
    waiting.requeue_affected()
    assert asked == ["p0", "p2"]
    assert sorted(requeued) == ["p0", "p1", "p2"]


def test_no_numa_node_is_reserved_on_the_costly_node_and_trying_takes_its_share(store: Store) -> None:
    store.snapshot = snapshot_of(costly_state(), pods=[WATCHED])
    turns = ReservationTurns(None, store, lambda _: True, Clock())  # type: ignore[arg-type]  # no pod is listed
    turns.refresh()
    assert turns.reservations() == ()
    assert store.snapshot.set_aside["a"].active


def test_a_refusal_by_the_costly_node_is_explained_as_far_as_it_is_known(store: Store) -> None:
    emitted, clock = Emitted(), Clock()
    metrics = Metrics(lambda: store.snapshot, lambda: 0, lambda: True)
    explainer = Explainer(store, emitted.announcer, metrics, lambda _: None, clock)
    refusal = Refusal(refused_pod(pod=ASKED), "5", clock.now)
    assert within_shares(store, lambda _: explainer.explain_now(refusal)) is None
    (note,) = emitted.notes("TopologyRefusalExplained")
    assert note == f"a refused p (TopologyAffinityError); the cause is unknown: {ASIDE.removeprefix('a: ')}"
    assert store.snapshot.set_aside["a"].active


def test_work_that_goes_on_asking_a_node_set_aside_is_not_repeated_for_ever(store: Store) -> None:
    def ask(effort: Effort) -> None:
        with effort.working_on("a", 1, -1.0):
            effort.check()

    with pytest.raises(Overspent):
        within_shares(store, ask)
