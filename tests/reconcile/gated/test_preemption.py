"""Pods of lower priority are evicted for a pod that waits, through the Eviction API of a real API server."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import guaranteed_pod, pod_manifest, running, snapshot_of
from tests.clusters import NODE_A, NODE_B, Cluster, pod, priority_class
from tests.reconcile.gated.preempting import Waiting, budget, filling_pod, leaves
from tests.reconcile.parts import EMPTY_A, EMPTY_B
from tests.refused_pods import gated, watched
from tests.waiting import eventually

from topomend.cache import changes
from topomend.kube.client import Client
from topomend.kube.errors import DeniedForNow, Forbidden, TooManyRequests
from topomend.kube.resources import DAEMON_SETS, PODS, Resource
from topomend.model.pods.scheduling import Placement, PodGroup
from topomend.reconcile.gated.evictions import KEPT_SECONDS
from topomend.reconcile.gated.preemption import NEXT_SECONDS, RESTS, SOON_SECONDS
from topomend.reconcile.gated.running_pods import STUCK_SECONDS, RunningPods
from topomend.reconcile.optional_right import OptionalRight
from topomend.relaunch import pod_requests
from topomend.wire.group import RELAUNCH_ANNOTATION
from topomend.wire.pods.pod import read_pod

pytestmark = pytest.mark.cluster

POLICIES = Resource("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False)
BINDINGS = Resource("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False)


@pytest.fixture
def waiting(two_nodes: Cluster) -> Iterator[Waiting]:
    yield Waiting(two_nodes)
    two_nodes.remove_all()


@pytest.mark.parametrize("value", ["false", "off"])
def test_a_pod_that_opted_out_is_no_victim_and_none_gets_its_place(waiting: Waiting, value: str) -> None:
    waiting.cluster.client.merge(PODS, "fill-1", {"metadata": {"annotations": {RELAUNCH_ANNOTATION: value}}}, "default")
    waiting.wait()
    waiting.preemptor.check()
    assert waiting.left() == ["fill-1"]


def test_for_a_pod_that_opted_out_nobody_is_evicted(waiting: Waiting) -> None:
    waiting.wait(relaunch="false")
    waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]


def test_one_pod_of_lower_priority_is_evicted(waiting: Waiting) -> None:
    urgent = waiting.wait()
    waiting.preemptor.check()
    (left,) = waiting.left()
    assert waiting.emitted.reasons() == ["Preempted", "Preempting"]
    note = waiting.emitted.notes("Preempted")[0]
    assert f"evicted from {NODE_B}: preempted by a pod of priority 10 (uid {urgent.uid})" in note
    assert "urgent" not in note, "users of another namespace do not learn its pods' names"
    victim = "fill-0" if left == "fill-1" else "fill-1"
    (note,) = waiting.emitted.notes("Preempting")
    assert note.startswith(f"evicted from {NODE_B} for it: {victim} (priority 0); ")
    assert note.endswith("if it still waits in 60 s, others may be evicted")
    assert waiting.let_go == []


def test_the_place_is_held_in_the_scheduler_and_against_gated_pods_before_anything_is_evicted(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    urgent = waiting.wait()
    held: list[tuple[str, int]] = []
    evict = Client.evict

    def evicting(client: Client, name: str, *args: Any, dry_run: bool = False, **options: Any) -> None:
        if not dry_run:
            nominated = waiting.cluster.get("urgent")["status"].get("nominatedNodeName", "")
            held.append((nominated, len(waiting.preemptor.reservations())))
        evict(client, name, *args, dry_run=dry_run, **options)

    monkeypatch.setattr(Client, "evict", evicting)
    waiting.preemptor.check()
    assert held == [(NODE_B, 1)]
    (reservation,) = waiting.preemptor.reservations()
    assert (reservation.pod.uid, reservation.node) == (urgent.uid, NODE_B)


@pytest.mark.parametrize("is_found", [True, False])
def test_nobody_is_evicted_for_a_pod_that_a_node_has_come_free_for_meanwhile(
    waiting: Waiting, is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not a worker has found it. Kept: seed 311127, cluster 411."""
    urgent = waiting.wait()
    nominate = pod_requests.nominate

    def nominating(*arguments: Any) -> bool:
        if is_found:
            waiting.apply(changes.PodAssumed(urgent.pod, (NODE_B,), waiting.clock.now))
        else:
            waiting.apply(changes.Published(EMPTY_B, "9"))
        return nominate(*arguments)

    monkeypatch.setattr(pod_requests, "nominate", nominating)
    waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]
    assert waiting.emitted.reasons() == []
    assert waiting.preemptor.reservations() == (), "another pod may use the node"


def test_nobody_waits_for_a_pod_any_more_once_it_was_tried(waiting: Waiting) -> None:
    waiting.wait()
    waiting.preemptor.check()  # which evicts a pod
    elsewhere = waiting.wait(name="elsewhere", placement=Placement(node_selector={"kind": "another"}))
    younger = replace(elsewhere, name="younger", uid="y")
    waiting.untried.add(elsewhere)
    assert [pod.name for pod in waiting.untried.before(younger)] == ["elsewhere"]
    waiting.preemptor.check()  # which finds nothing
    assert waiting.untried.before(younger) == []


def test_nobody_waits_for_pods_where_none_may_be_evicted(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    urgent = waiting.wait()
    waiting.untried.lowest = 0
    waiting.untried.add(urgent)
    younger = replace(urgent, name="younger", uid="y")
    assert waiting.untried.before(younger) == [urgent]
    monkeypatch.setattr(OptionalRight, "is_missing", True)
    waiting.preemptor.check()
    assert waiting.untried.before(younger) == []


def test_a_pod_that_has_changed_meanwhile_has_nobody_evicted(waiting: Waiting) -> None:
    waiting.wait(version="1")
    waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]


def test_the_place_is_given_up_once_the_pod_is_not_gated_any_more_or_is_not_tried_again(waiting: Waiting) -> None:
    urgent = waiting.wait()
    waiting.preemptor.check()
    assert waiting.preemptor.reservations()
    waiting.apply(changes.PodRemoved(urgent.namespace, urgent.name, urgent.uid, waiting.clock.now))
    waiting.preemptor.check()
    assert waiting.preemptor.reservations() == ()


def test_a_pod_that_finds_no_place_because_others_are_on_their_way_is_tried_again_soon(waiting: Waiting) -> None:
    coming = [guaranteed_pod("coming-3", 3), guaranteed_pod("coming-4", 4)]
    for other in coming:
        waiting.apply(changes.PodAssumed(other, (NODE_B,), waiting.clock.now))
    waiting.wait()
    waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]
    for other in coming:
        waiting.apply(changes.PodForgotten(other.namespace, other.name))
    waiting.clock.now += NEXT_SECONDS
    waiting.preemptor.check()
    assert len(waiting.left()) == 1


def test_a_nomination_of_an_earlier_leader_is_taken_back(waiting: Waiting) -> None:
    pod_requests.nominate(waiting.cluster.client, gated(waiting.cluster, "urgent", 3), NODE_B)
    waiting.watch(replace(watched(waiting.cluster, "urgent"), preempts=False))
    waiting.preemptor.check()
    assert not waiting.cluster.get("urgent")["status"].get("nominatedNodeName")


def test_where_totals_are_short_too_the_scheduler_preempts(waiting: Waiting) -> None:
    """It knows every rule, and so this is done for pods whose rules replay does not judge, too."""
    waiting.fill(3, 3)
    for rules in ((), ("volumes",)):
        waiting.wait(scheduler_rules=rules)
        waiting.preemptor.check()
        waiting.clock.now += RESTS.first
        waiting.cluster.remove(waiting.cluster.get("urgent"))
    assert waiting.let_go == [("urgent", (NODE_B,))] * 2
    assert waiting.left() == ["fill-0", "fill-1"]
    assert waiting.preemptor.reservations() == ()


def test_nobody_leaves_a_node_that_counts_as_full_and_is_not(waiting: Waiting) -> None:
    """No watch shows a running pod that is deleted without a grace period. Kept: seed 311127, cluster 27."""
    waiting.free("fill-1")
    too_much = changes.NodePodsListed(NODE_B, 99, "1", {"cpu": 8_000}, {})
    waiting.apply(changes.ListBegun(NODE_B, 99), too_much)
    waiting.wait(cpus=3)
    waiting.preemptor.check()
    assert (waiting.let_go, waiting.left()) == ([], ["fill-0"])
    used = waiting.store.snapshot.nodes[NODE_B].used
    assert used is not None
    assert used["cpu"] == 2_000


def test_a_node_that_stays_full_when_it_is_counted_keeps_nobody_from_leaving(waiting: Waiting) -> None:
    """Whom nobody can read takes some of its totals, too: one pod of a tenant would keep all others waiting."""
    much = changes.NodePodsListed(NODE_B, 99, str(1 << 60), {"cpu": 8_000}, {})  # newer than whatever is counted
    waiting.apply(changes.ListBegun(NODE_B, 99), much)
    waiting.wait()
    waiting.preemptor.check()
    assert len(waiting.left()) == 1


def test_of_two_pods_the_second_is_let_go_once_the_first_is_there_or_has_no_node(waiting: Waiting) -> None:
    """Whom kube-scheduler evicts for the first decides whom it would evict for the second."""
    waiting.fill(3, 3)
    waiting.assumes = True
    second = waiting.wait(name="second")
    first = waiting.wait(creation_time="2020-01-01T00:00:00Z")
    waiting.preemptor.check()
    assert waiting.let_go == [("urgent", (NODE_B,))]
    let_go = replace(first, gates=(), version="9")
    for stage in (let_go, replace(let_go, nominated=NODE_B), replace(let_go, node=NODE_B)):
        waiting.watch(stage)
        waiting.clock.now += RESTS.longest
        waiting.preemptor.check()
        assert waiting.let_go == [("urgent", (NODE_B,))], stage
    waiting.apply(changes.PodForgotten(first.namespace, first.name))
    waiting.clock.now += SOON_SECONDS
    waiting.preemptor.check()
    assert waiting.let_go[1:] == [(second.name, (NODE_B,))]


def test_of_pods_of_one_priority_that_came_shortly_after_each_other_the_older_is_tried_first(waiting: Waiting) -> None:
    """kube-scheduler would evict others for them in another order, and often more. Kept: seed 1129, cluster 20."""
    waiting.fill(3, 3)
    waiting.assumes = True
    waiting.wait(name="small", cpus=2, creation_time="2020-01-01T00:00:00Z")
    waiting.clock.now -= 1.5
    waiting.watch(replace(gated(waiting.cluster, "large", 3), priority=10))
    waiting.clock.now += 1.4
    waiting.preemptor.check()
    assert waiting.let_go == [], "none has waited for two seconds"
    waiting.clock.now += 0.1
    waiting.preemptor.check()
    assert waiting.let_go == [("small", (NODE_B,))]


def test_a_pod_that_kube_scheduler_passed_over_at_first_is_tried_after_those_that_came_meanwhile(
    waiting: Waiting,
) -> None:
    """Its claim was not bound yet. Kept: seed 20261127, cluster 702."""
    waiting.fill(3, 3)
    waiting.assumes, waiting.late = True, {"late"}
    waiting.wait(name="late", creation_time="2020-01-01T00:00:00Z")
    waiting.wait(name="younger")
    waiting.preemptor.check()
    assert waiting.let_go == [("younger", (NODE_B,))]


def test_pods_that_nothing_can_help_cost_at_most_one_list_a_second_whatever_changes(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty nodes, on one of which a pod comes or goes every two seconds. Real requests are counted."""
    names = [f"made-up-{number}" for number in range(20)]
    full = [running(replace(EMPTY_B, name=name), guaranteed_pod("x", 4)) for name in names]
    fuller = [running(state, guaranteed_pod("y", 3)) for state in full]
    waiting.store.snapshot = snapshot_of(*full)
    for number in range(3):
        waiting.wait(name=f"urgent-{number}", cpus=4)
    lists: list[float] = []
    read = Client.read

    def reading(client: Client, *args: Any, **options: Any) -> Any:
        lists.append(waiting.clock.now)
        return read(client, *args, **options)

    monkeypatch.setattr(Client, "read", reading)
    for tick in range(2 * 600):
        if tick % 4 == 0:
            changed = (full, fuller)[tick // 80 % 2][tick // 4 % 20]
            waiting.apply(changes.Published(changed, str(1_000 + tick)))
        waiting.preemptor.check()
        waiting.clock.now += 0.5
    began = waiting.clock.now - 300
    steady = [moment for moment in lists if moment >= began]
    assert len(lists) > 60, "each of the nodes is looked at once for each pod"
    assert 0 < len(steady) <= 300


def test_where_budgets_have_the_scheduler_evict_the_wrong_pods_it_does_not_get_the_pod(waiting: Waiting) -> None:
    """Without them it evicts one of the pods that fill the node; with them the shared one, which fills no NUMA node."""
    shared = pod_manifest("shared", "request:cpu=1", node=NODE_B)
    with priority_class(waiting.cluster, "rather-important", 5):
        shared["spec"]["priorityClassName"] = "rather-important"
        waiting.cluster.create(shared)
        eventually("it to run", lambda: waiting.cluster.running("shared"))
        with budget(waiting.cluster, {"n": "0"}), budget(waiting.cluster, {"n": "1"}):
            waiting.wait()
            waiting.preemptor.check()
        assert waiting.let_go == []
        assert waiting.left() == ["fill-0", "fill-1"]
        waiting.clock.now += RESTS.first
        waiting.preemptor.check()
        assert waiting.let_go == [("urgent", (NODE_B,))]


def test_where_budgets_alone_have_the_scheduler_evict_the_right_pods_it_gets_the_pod(waiting: Waiting) -> None:
    """Without them it spares the important pods, each on a NUMA node of its own. Kept: seed 311127, cluster 633.

    The operator itself evicts nobody: replay does not judge the rules of the waiting pod.
    """
    priorities, cpus = {"first": 6, "low": -10, "kept": 0, "important": 5}, (2, 2, 1, 2)
    with ExitStack() as stack:
        for name, priority in priorities.items():
            stack.enter_context(priority_class(waiting.cluster, name, priority))
        waiting.fill()
        for name, count in zip(priorities, cpus, strict=True):
            content = pod(name, count, node=NODE_B, labels={"n": name})
            content["spec"]["priorityClassName"] = name
            waiting.filling.append(waiting.cluster.create(content))
            eventually("it to run", lambda: waiting.cluster.running(name))  # noqa: B023
        waiting.store.snapshot = snapshot_of(running(EMPTY_B, *map(read_pod, waiting.filling)))
        waiting.wait(scheduler_rules=("volumes",))
        waiting.preemptor.check()
        assert waiting.let_go == []
        stack.enter_context(budget(waiting.cluster, {"n": "kept"}))
        waiting.clock.now += RESTS.first
        waiting.preemptor.check()
        assert waiting.let_go == [("urgent", (NODE_B,))]


@contextmanager
def both_full(waiting: Waiting, pods: dict[str, dict[str, tuple[str, int]]]) -> Iterator[None]:
    """Have pods of these containers and priorities fill both nodes, one after the other."""
    waiting.fill()
    with ExitStack() as stack:
        for priority in {priority for each in pods.values() for _, priority in each.values()}:
            stack.enter_context(priority_class(waiting.cluster, f"of{priority}", priority))
        states = []
        for node, empty in ((NODE_A, EMPTY_A), (NODE_B, EMPTY_B)):
            here = []
            for name, (container, priority) in pods[node].items():
                content = pod_manifest(name, container, node=node, labels={"n": name})
                content["spec"]["priorityClassName"] = f"of{priority}"
                here.append(waiting.cluster.create(content))
                eventually("it to run", lambda: waiting.cluster.running(name))  # noqa: B023
            waiting.filling += here
            states.append(running(empty, *map(read_pod, here)))
        waiting.store.snapshot = snapshot_of(*states)
        yield


BEYOND_BUDGET_ON_A = {
    NODE_A: {
        "protected": ("cpu=3 memory=64Mi", 3),
        "stays": ("cpu=3 memory=64Mi", 20),
        "small": ("request:cpu=500m", 3),
    },
    NODE_B: {"first": ("cpu=2 memory=64Mi", 4), "second": ("cpu=2 memory=64Mi", 4), "shared": ("request:cpu=2", 3)},
}
"""kube-scheduler makes room on node A alone: on B it would evict the least important pod, which fills no NUMA node."""


def test_nobody_leaves_beyond_a_budget_where_a_pod_of_another_node_may(waiting: Waiting) -> None:
    """Kept: seed 1129, cluster 183."""
    with both_full(waiting, BEYOND_BUDGET_ON_A):
        with budget(waiting.cluster, {"n": "protected"}):
            waiting.wait()
            waiting.preemptor.check()
        assert waiting.let_go == []
        assert len({"first", "second"} - {*waiting.left()}) == 1
        assert {"protected", "stays", "small", "shared"} <= {*waiting.left()}
        assert [reservation.node for reservation in waiting.preemptor.reservations()] == [NODE_B]


def test_where_the_api_server_keeps_a_victim_after_all_the_scheduler_gets_the_pod(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget was used up meanwhile, or a webhook answers a dry run otherwise."""
    evict = Client.evict

    def refusing(client: Client, name: str, namespace: str, *, uid: str, dry_run: bool = False) -> None:
        if not dry_run:
            raise DeniedForNow(429, "TooManyRequests", "the budget", 1.0)
        evict(client, name, namespace, uid=uid, dry_run=True)

    with both_full(waiting, BEYOND_BUDGET_ON_A), budget(waiting.cluster, {"n": "protected"}):
        waiting.wait()
        monkeypatch.setattr(Client, "evict", refusing)
        waiting.preemptor.check()
        assert waiting.let_go == []
        waiting.again()
        waiting.clock.now += NEXT_SECONDS
        waiting.preemptor.check()
    assert waiting.let_go == [("urgent", (NODE_A,))]


def test_the_scheduler_gets_the_pod_on_a_node_too_where_only_a_budget_has_it_evict_the_right_pods(
    waiting: Waiting,
) -> None:
    """There a less important pod leaves than on node A. Kept: seed 311127, cluster 449."""
    three = "cpu=3 memory=64Mi"
    pods = {
        NODE_A: {"high": (three, 20), "important": (three, 5)},
        NODE_B: {"two": ("cpu=2 memory=64Mi", 5), "low": (three, 1), "protected": ("request:cpu=500m", 1)},
    }
    with both_full(waiting, pods), budget(waiting.cluster, {"n": "protected"}):
        waiting.wait(cpus=2)
        waiting.preemptor.check()
    assert waiting.let_go == [("urgent", (NODE_A, NODE_B))]


def test_for_a_pod_with_a_scheduler_of_its_own_nothing_is_done(waiting: Waiting) -> None:
    waiting.fill(3, 3)
    waiting.wait(scheduler_rules=("schedulerName",))
    waiting.preemptor.check()
    assert waiting.let_go == []
    assert waiting.left() == ["fill-0", "fill-1"]


def test_nobody_is_evicted_whose_controller_would_take_the_place_back(waiting: Waiting) -> None:
    waiting.is_gated_by_us = False
    _control(waiting.cluster, waiting.filling)
    waiting.wait()
    waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]
    waiting.is_gated_by_us = True
    waiting.clock.now += RESTS.first
    waiting.preemptor.check()
    assert len(waiting.left()) == 1


def test_no_two_pods_of_a_controller_are_evicted_for_one_pod(waiting: Waiting) -> None:
    _control(waiting.cluster, waiting.filling)
    waiting.wait()
    waiting.preemptor.check()
    (left,) = waiting.left()
    number = 0 if left == "fill-1" else 1
    waiting.cluster.remove(waiting.filling[number])
    waiting.filling[number] = eventually("it to be taken", lambda: waiting.cluster.create(filling_pod(number)))
    eventually("it to run", lambda: waiting.cluster.running(f"fill-{number}"))
    _control(waiting.cluster, [waiting.filling[number]])
    waiting.again()
    waiting.clock.now += RESTS.longest
    waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]


def test_a_victim_that_does_not_leave_makes_the_pod_wait_no_longer_than_its_grace_period(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (watched(waiting.cluster, name) for name in ("fill-0", "fill-1"))
    listed = [replace(first, deleting=True, grace_seconds=60), second]
    monkeypatch.setattr(RunningPods, "_on", lambda _, node: listed if node == NODE_B else [])
    waiting.wait()
    waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"], "the first one is about to leave"
    waiting.clock.now += STUCK_SECONDS + 60
    for _ in range(2):  # the first time an earlier nomination is taken back
        waiting.again()
        waiting.preemptor.check()
        waiting.clock.now += NEXT_SECONDS
    assert waiting.left() == ["fill-0"]


def test_budgets_count_for_all_victims_of_an_attempt(waiting: Waiting) -> None:
    """Each of the two may be evicted, and not both."""
    waiting.fill(3, 2, 1)
    waiting.free("fill-0")
    with budget(waiting.cluster, {}, name="one-of-all", minAvailable=1):
        waiting.wait(cpus=4)
        waiting.preemptor.check()
        assert waiting.left() == ["fill-1", "fill-2"]
    waiting.clock.now += max(RESTS.first, KEPT_SECONDS)
    waiting.preemptor.check()
    assert waiting.left() == []


def test_a_budget_of_other_pods_keeps_no_victim_of_its_namespace(waiting: Waiting) -> None:
    """Kept: seed 311127, cluster 3."""
    waiting.fill(3, 2, 1)
    waiting.free("fill-0")
    with budget(waiting.cluster, {"n": "other"}):
        waiting.wait(cpus=4)
        waiting.preemptor.check()
    assert waiting.left() == []


def test_no_second_pod_is_evicted_while_the_first_oneleaves(waiting: Waiting) -> None:
    waiting.wait()
    waiting.preemptor.check()
    waiting.clock.now += RESTS.longest
    waiting.preemptor.check()
    assert len(waiting.left()) == 1


def test_a_pod_is_given_time_to_find_a_node_first(waiting: Waiting) -> None:
    waiting.wait()
    waiting.clock.now -= 0.1
    waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]


@pytest.mark.parametrize(
    "fields",
    [
        {"preempts": False},
        {"priority": 0},
        {"group": PodGroup("kueue.x-k8s.io", "train")},
        {"deleting": True},
        {"gates": ("example.com/other",)},
        {"scheduler_rules": ("volumes",)},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_nothing_is_evicted_for_a_pod_that(waiting: Waiting, fields: dict[str, Any]) -> None:
    waiting.wait(**fields)
    waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]


def test_pods_of_the_same_priority_stay_also_where_a_class_is_below_both(waiting: Waiting) -> None:
    with priority_class(waiting.cluster, "batch", -10):
        waiting.wait(priority=0)
        waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]


def test_a_disruption_budget_keeps_its_pods(waiting: Waiting) -> None:
    with budget(waiting.cluster, {"n": "0"}):
        waiting.wait()
        waiting.preemptor.check()
    assert waiting.left() == ["fill-0"]


def test_where_budgets_keep_all_pods_none_is_evicted(waiting: Waiting) -> None:
    with budget(waiting.cluster, {"n": "0"}), budget(waiting.cluster, {"n": "1"}):
        waiting.wait()
        waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]
    assert waiting.emitted.events == []


def test_two_budgets_on_one_pod_keep_that_pod_alone(waiting: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    """The Eviction API answers 500 then (pkg/registry/core/pod/storage/eviction.go:Create)."""
    caplog.set_level("INFO")
    first, second = waiting.filling
    waiting.cluster.remove(first)
    eventually("it to be gone", lambda: len(waiting.cluster.pods()) == 1)
    first = waiting.cluster.create(filling_pod(0))  # who started last is the first to leave
    eventually("it to run", lambda: waiting.cluster.running("fill-0"))
    waiting.filling = [first, second]
    waiting.store.snapshot = snapshot_of(running(EMPTY_B, *map(read_pod, waiting.filling)))
    with budget(waiting.cluster, {"n": "0"}), budget(waiting.cluster, {"n": "0"}, name="another"):
        waiting.wait()
        waiting.preemptor.check()
    assert waiting.left() == ["fill-0"]
    assert [line for line in caplog.messages if "default/fill-0 is not evicted: 500" in line]


def test_a_pod_whose_eviction_an_admission_policy_denies_keeps_no_other(waiting: Waiting) -> None:
    with _protected(waiting.cluster, "fill-0"):
        waiting.wait()
        waiting.preemptor.check()
    assert waiting.left() == ["fill-0"]


def test_a_pod_that_was_kept_is_asked_about_again_later(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(_: Client, name: str, *_args: Any, **_options: Any) -> None:
        asked.append(name)
        raise DeniedForNow(429, "TooManyRequests", "not now")

    monkeypatch.setattr(Client, "evict", refuse)
    waiting.wait()
    waiting.preemptor.check()
    assert sorted(asked) == ["fill-0", "fill-1"]
    waiting.clock.now += max(RESTS.first, KEPT_SECONDS)
    waiting.preemptor.check()
    assert sorted(asked) == sorted(["fill-0", "fill-1"] * 2)


def test_an_overloaded_api_server_keeps_no_pod(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_options: Any) -> None:
        raise TooManyRequests(429, "TooManyRequests", "too many requests")

    waiting.wait()
    with monkeypatch.context() as patch:
        patch.setattr(Client, "evict", refuse)
        with pytest.raises(TooManyRequests):
            waiting.preemptor.check()
    waiting.clock.now += RESTS.first
    waiting.preemptor.check()
    assert len(waiting.left()) == 1


def test_a_daemon_sets_pod_is_not_evicted_for_its_controller_would_take_the_place_again(waiting: Waiting) -> None:
    waiting.cluster.remove(waiting.filling[0])
    with _daemon_set(waiting.cluster) as of_it:
        waiting.store.snapshot = snapshot_of(running(EMPTY_B, read_pod(of_it), read_pod(waiting.filling[1])))
        waiting.wait()
        waiting.preemptor.check()
        assert not leaves(waiting.cluster.get(of_it["metadata"]["name"]))
    assert waiting.left() == []


def test_a_pod_that_still_waits_after_an_eviction_is_tried_again_after_ever_longer_rests(waiting: Waiting) -> None:
    """Another pod has taken the place that was freed: evicting for ever helps nobody."""
    waiting.wait()
    waiting.preemptor.check()
    (left,) = waiting.left()
    number = 0 if left == "fill-1" else 1
    waiting.cluster.remove(waiting.filling[number])
    waiting.filling[number] = eventually("it to be taken", lambda: waiting.cluster.create(filling_pod(number)))
    eventually("it to run", lambda: waiting.cluster.running(f"fill-{number}"))
    waiting.again()
    waiting.clock.now += RESTS.first
    waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]
    waiting.clock.now += RESTS.first
    waiting.preemptor.check()
    assert len(waiting.left()) == 1


def test_without_the_right_nothing_is_evicted_and_the_log_says_so_once(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise Forbidden(403, "Forbidden", "may not evict")

    monkeypatch.setattr(Client, "evict", forbidden)
    monkeypatch.setattr(OptionalRight, "_is_granted", lambda _: False)
    waiting.wait()
    for _ in range(3):
        waiting.preemptor.check()
        waiting.clock.now += 1000
    assert [record.getMessage() for record in caplog.records if record.name.endswith("preemption")] == [
        "no pod is evicted for pods of higher priority: 403 Forbidden: may not evict"
    ]


def _control(cluster: Cluster, pods: Sequence[dict[str, Any]]) -> None:
    """Give the pods a controller, one that creates no others while the test looks."""
    owner = cluster.client.get(Resource("v1", "configmaps"), "kube-root-ca.crt", "default")["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]}
    for content in pods:
        patch = {"metadata": {"ownerReferences": [reference | {"controller": True}]}}
        cluster.client.merge(PODS, content["metadata"]["name"], patch, "default")


@contextmanager
def _daemon_set(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """The pod of a DaemonSet on node b: of the pods there, it would be the first victim by its name."""
    template = {"metadata": {"labels": {"n": "daemon"}}, "spec": pod("", 2, node=NODE_B)["spec"]}
    del template["spec"]["nodeName"]
    template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE_B}
    spec = {"selector": {"matchLabels": {"n": "daemon"}}, "template": template}
    head = {"apiVersion": DAEMON_SETS.api_version, "kind": "DaemonSet", "metadata": {"name": "daemon"}}
    made = cluster.client.create(DAEMON_SETS, head | {"spec": spec}, "default")

    def runs() -> dict[str, Any] | None:
        mine = [content for content in cluster.pods() if content["metadata"].get("labels") and _is_running(content)]
        return next((content for content in mine if content["metadata"]["labels"].get("n") == "daemon"), None)

    try:
        yield eventually("its pod to run", runs)
    finally:
        cluster.client.delete(DAEMON_SETS, "daemon", "default", uid=made["metadata"]["uid"])


def _is_running(content: dict[str, Any]) -> bool:
    return bool(content["status"].get("phase") == "Running")


@contextmanager
def _protected(cluster: Cluster, name: str) -> Iterator[None]:
    """A stranger's admission policy that denies the eviction of the pod of this name."""
    head = {"apiVersion": POLICIES.api_version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "protects"}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"request.name != '{name}'", "reason": "Forbidden"}],
    }
    binding = {"policyName": "protects", "validationActions": ["Deny"]}
    made = [
        (POLICIES, cluster.client.create(POLICIES, head | {"spec": spec})),
        (BINDINGS, cluster.client.create(BINDINGS, head | {"kind": f"{head['kind']}Binding", "spec": binding})),
    ]
    victim = cluster.get(name)["metadata"]

    def is_in_force() -> bool:
        try:
            cluster.client.evict(name, "default", uid=victim["uid"], dry_run=True)
        except Forbidden:
            return True
        return False

    try:
        eventually("the policy to be in force", is_in_force)
        yield
    finally:
        for resource, content in made:
            cluster.client.delete(resource, "protects", uid=content["metadata"]["uid"])
        # The API server acts by it for a while, and other tests evict pods of this name.
        eventually("the policy to be out of force", lambda: not is_in_force())
