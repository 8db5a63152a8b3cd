"""Groups of pods on a real API server: all of a group are ungated, or none."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import guaranteed_pod, running
from tests.clusters import CRDS, NODE_B, Cluster, pod
from tests.intercepted import Intercepted
from tests.reconcile.parts import EMPTY_B, Parts
from tests.refused_pods import gated, gates, watched
from tests.waiting import eventually

from topomend.cache import changes
from topomend.kube.errors import NotFound
from topomend.kube.pod_groups import GROUP_RESOURCES
from topomend.kube.resources import PODS
from topomend.model.pods.scheduling import Owner, WatchedPod
from topomend.reconcile.autoscaling.scale_up import PATIENCE_SECONDS
from topomend.reconcile.gated.gangs import (
    BUSY_SECONDS,
    COUNTED_SECONDS,
    COUNTING_SHARE,
    INCOMPLETE_SECONDS,
    MAX_SIZE,
    SETTLE_SECONDS,
    Gangs,
)
from topomend.reconcile.gated.gated_pods import (
    ALONE_SECONDS,
    GROUP_BUSY_SECONDS,
    GROUP_SECONDS,
    MAX_OVERRUNS,
    GatedPods,
)
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import DONE, RETRY_SECONDS, Result
from topomend.replay.effort import Effort, TurnOver
from topomend.runtime.backoff import Backoff, Exponential
from topomend.wire.group import FIT_GATE
from topomend.wire.pods.pod_group import KUBERNETES, KUEUE_SIZE, LABELS, SCHEDULER_PLUGINS, VOLCANO
from topomend.wire.pods.scheduling import read_watched_pod

pytestmark = pytest.mark.cluster

QUOTA_GATE = "kueue.x-k8s.io/admission"

TWO_HOLES = running(EMPTY_B, guaranteed_pod("low", 1), guaranteed_pod("high", 2))
"""Two CPUs are free on each NUMA node."""


class Groups(Parts):
    """Gated pods of groups beside these parts."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, TWO_HOLES)
        self.cluster = cluster
        self.backoff = Backoff(self.clock, Exponential(8.0, 8.0))
        self.gated_pods = GatedPods(self.collaborators, self.backoff, lambda pod: pod, self.reported.append)

    def reconcile(self, pod: WatchedPod) -> Result:
        return self.gated_pods.reconcile(PodID.of(pod))

    def members(
        self, *cpus: int, size: int = 0, first: int = 0, foreign_gates: tuple[str, ...] = ()
    ) -> list[WatchedPod]:
        """Gated pods of one group that Kueue admits, of ``size`` pods or as many as these."""
        labels = {LABELS["kueue.x-k8s.io"]: "train"}
        annotations = {KUEUE_SIZE: str(size or len(cpus))}
        pods = [
            gated(self.cluster, f"train-{number}", count, *foreign_gates, labels=labels, annotations=annotations)
            for number, count in enumerate(cpus, first)
        ]
        self.watch(*pods)
        return pods

    def gates(self, pods: list[WatchedPod]) -> list[tuple[str, ...]]:
        return [gates(self.cluster, pod.name) for pod in pods]


@pytest.fixture
def groups(two_nodes: Cluster) -> Iterator[Groups]:
    yield Groups(two_nodes)
    two_nodes.remove_all()


def test_all_pods_of_a_complete_group_are_ungated_together(groups: Groups) -> None:
    pods = groups.members(2, 2)
    assert groups.reconcile(pods[1]) == DONE
    assert groups.gates(pods) == [(), ()]
    assert [groups.assumed(pod.name) for pod in pods] == [(NODE_B,), (NODE_B,)]
    assert groups.emitted.reasons() == ["Ungated", "Ungated"]


def test_a_group_that_does_not_fit_as_a_whole_keeps_all_its_gates_and_holds_no_node(groups: Groups) -> None:
    pods = groups.members(2, 2, 2)
    result = groups.reconcile(pods[0])
    assert result.on_capacity
    assert groups.gates(pods) == [(FIT_GATE,)] * 3
    assert [groups.assumed(pod.name) for pod in pods] == [()] * 3
    assert groups.emitted.reasons() == ["UngateDeferred"]
    assert "2 of the 3 pods that wait together fit; train-2: no node admits it now" in groups.emitted.events[0][4]


def test_autoscalers_count_all_pods_of_a_group_that_does_not_fit(groups: Groups) -> None:
    pods = groups.members(2, 2, 2)
    groups.reconcile(pods[0])
    groups.clock.now += PATIENCE_SECONDS
    groups.scale_up.check()
    assert [watched(groups.cluster, pod.name).asks_for_node for pod in pods] == [True] * 3
    assert groups.gates(pods) == [(FIT_GATE,)] * 3


def test_only_the_first_pod_of_a_group_is_woken_by_changes(groups: Groups) -> None:
    pods = groups.members(2, 2, 2)
    assert groups.reconcile(pods[2]) == Result(RETRY_SECONDS)
    assert groups.reconcile(pods[0]).on_capacity
    groups.apply(changes.Published(EMPTY_B, "9"))
    assert groups.reconcile(pods[2]) == Result(RETRY_SECONDS)
    assert groups.reconcile(pods[0]) == DONE
    assert groups.gates(pods) == [()] * 3


def test_a_group_waits_for_its_missing_pods(groups: Groups) -> None:
    pods = groups.members(2, size=2)
    for waited, delay in ((0.0, COUNTED_SECONDS), (16.0, 16.0), (70.0, RETRY_SECONDS)):
        groups.clock.now = waited + groups.store.snapshot.gated_since["default", "train-0"]
        assert groups.reconcile(pods[0]) == Result(delay)
    assert groups.gates(pods) == [(FIT_GATE,)]
    pods += groups.members(2, size=2, first=1)
    assert groups.reconcile(pods[1]) == DONE
    assert groups.gates(pods) == [(), ()]


def test_a_pod_of_the_group_that_nothing_gates_and_that_comes_last_is_counted_seconds_later(groups: Groups) -> None:
    pods = groups.members(2, size=2)
    assert groups.reconcile(pods[0]) == Result(COUNTED_SECONDS)
    labels, annotations = {LABELS["kueue.x-k8s.io"]: "train"}, {KUEUE_SIZE: "2"}
    groups.cluster.create(pod("launcher", 1, labels=labels, annotations=annotations))
    eventually("the API server's cache to have it bound", lambda: _is_bound_by_cache(groups.cluster, "launcher"))
    groups.clock.now += COUNTED_SECONDS
    assert groups.reconcile(pods[0]) == DONE
    assert groups.gates(pods) == [()]


def _is_bound_by_cache(cluster: Cluster, name: str) -> bool:
    """What is counted is a list of the API server's cache, which may be behind."""
    pods = cluster.client.list(PODS, namespace="default", cached=True).items
    return any(content["metadata"]["name"] == name and content["spec"].get("nodeName") for content in pods)


def test_the_first_pod_of_an_incomplete_group_says_how_many_have_come_and_when_they_go_without_the_rest(
    groups: Groups,
) -> None:
    pods = groups.members(2, size=12)
    groups.reconcile(pods[0])
    groups.reconcile(pods[0])  # the recorder does not repeat what is the same
    pods += groups.members(2, size=12, first=1)
    groups.members(2, size=12, first=2, foreign_gates=(QUOTA_GATE,))
    groups.reconcile(pods[1])
    assert groups.emitted.reasons() == ["WaitingForGroup"] * 2
    groups.clock.now += COUNTED_SECONDS
    groups.reconcile(pods[0])
    first, second, third = [event[4] for event in groups.emitted.events]
    assert first == second
    assert first.startswith(
        "1 of the 12 pods of its group have come; they are ungated together once all have come, and without the"
    )
    assert third.startswith("2 of the 12 pods of its group have come; 1 more have the gate of another owner; they")
    assert {note.rpartition(" at ")[2] for note in (first, second, third)} == {first.rpartition(" at ")[2]}
    assert first.endswith(" UTC")


def _asking(groups: Groups) -> tuple[Gangs, list[str]]:
    """Gangs of the same cluster, and the requests that they make."""
    asked: list[str] = []
    client = Intercepted(groups.cluster.client, lambda method, target: asked.append(f"{method} {target}"))
    return Gangs(client, groups.store, groups.emitted.announcer, groups.clock, lambda: 0.0), asked


def test_all_groups_of_a_namespace_are_counted_by_one_list(groups: Groups) -> None:
    gangs, asked = _asking(groups)
    pods = [_member_of(groups, f"group-{number}", 2) for number in range(10)]
    for _ in range(3):
        for member in pods:
            assert member.group
            assert gangs.gather(member, member.group) == Result(COUNTED_SECONDS)
    assert len(asked) == 1
    groups.clock.now += COUNTED_SECONDS
    for member in pods:
        assert member.group
        gangs.gather(member, member.group)
    assert len(asked) == 2


def test_a_namespace_that_takes_long_to_count_is_counted_less_often(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    gangs, asked = _asking(groups)
    ticks = iter(range(100))
    monkeypatch.setattr(gangs, "_cpu_clock", lambda: next(ticks) * 0.5)  # half a second for each list
    (member,) = groups.members(1, size=2)
    assert member.group
    begun = groups.clock.now
    while groups.clock.now < begun + 0.5 / COUNTING_SHARE:
        gangs.gather(member, member.group)
        groups.clock.now += 1
    assert len(asked) == 1
    gangs.gather(member, member.group)
    assert len(asked) == 2


def test_gated_pods_are_not_listed_however_large(groups: Groups) -> None:
    """They have no node, and are known already."""
    gangs, _ = _asking(groups)
    waiting = _member_of(groups, "train", 3)
    running = pod("runs", 1, labels={LABELS["kueue.x-k8s.io"]: "train"})
    made = groups.cluster.create(running)
    eventually("the API server's cache to have it bound", lambda: _is_bound_by_cache(groups.cluster, "runs"))
    assert waiting.group
    for api_group in (waiting.group.api_group, KUBERNETES, VOLCANO):
        assert gangs._bound_pods("default", api_group) == {waiting.group: {made["metadata"]["uid"]}}


def test_of_threads_that_need_the_same_number_one_asks(groups: Groups) -> None:
    gangs, asked = _asking(groups)
    (member,) = groups.members(1, size=2)
    assert member.group
    group, meanwhile = member.group, list[object]()
    client: Any = gangs._client

    def ask_meanwhile(method: str, target: str) -> None:
        asked.append(f"{method} {target}")
        meanwhile.append(gangs.gather(member, group))

    client.intercept = ask_meanwhile
    assert gangs.gather(member, group) == Result(COUNTED_SECONDS)
    assert meanwhile == [Result(BUSY_SECONDS)]
    assert len(asked) == 1


def _member_of(groups: Groups, name: str, size: int) -> WatchedPod:
    labels, annotations = {LABELS["kueue.x-k8s.io"]: name}, {KUEUE_SIZE: str(size)}
    member = gated(groups.cluster, f"{name}-0", 1, labels=labels, annotations=annotations)
    groups.watch(member)
    return member


def test_a_group_that_stays_incomplete_is_let_go_in_the_end(groups: Groups) -> None:
    pods = groups.members(2, size=2)
    groups.reconcile(pods[0])
    groups.clock.now += INCOMPLETE_SECONDS
    assert groups.reconcile(pods[0]) == DONE
    assert groups.gates(pods) == [()]


def test_a_new_pod_of_a_group_that_runs_already_does_not_wait_for_the_others(groups: Groups) -> None:
    pods = groups.members(2, 2)
    groups.reconcile(pods[0])
    for member in pods:
        groups.apply(changes.PodUpdated(watched(groups.cluster, member.name), groups.clock.now))
    groups.cluster.remove(groups.cluster.get("train-1"))
    groups.apply(changes.PodRemoved("default", "train-1", pods[1].uid, groups.clock.now))
    (again,) = groups.members(1, size=2, first=1)
    assert groups.reconcile(again) == DONE
    assert gates(groups.cluster, "train-1") == ()


def test_a_group_is_left_alone_until_other_owners_have_removed_their_gates(groups: Groups) -> None:
    (free,) = groups.members(2, size=2)
    (gated,) = groups.members(2, size=2, first=1, foreign_gates=(QUOTA_GATE,))
    assert groups.reconcile(free).after == COUNTED_SECONDS
    assert groups.reconcile(gated) == DONE
    assert groups.gates([free, gated]) == [(FIT_GATE,), (FIT_GATE, QUOTA_GATE)]
    groups.cluster.client.merge(PODS, gated.name, {"spec": {"schedulingGates": [{"name": FIT_GATE}]}}, "default")
    gated = watched(groups.cluster, gated.name)
    groups.watch(gated)
    assert groups.reconcile(gated) == DONE
    assert groups.gates([free, gated]) == [(), ()]


def test_a_pod_that_is_deleted_while_its_group_is_gathered_is_done(groups: Groups) -> None:
    pods = groups.members(1, 1)
    groups.reconcile(pods[0])
    (late,) = groups.members(1, size=2, first=2)
    late = replace(late, owner=Owner("Job", "train", "9", "batch/v1"))
    groups.watch(late)

    def deleted_meanwhile(_: str) -> float:  # asked between look-up and gathering
        groups.apply(changes.PodRemoved("default", late.name, late.uid, groups.clock.now))
        return 0.0

    groups.backoff.remaining = deleted_meanwhile  # type: ignore[method-assign, assignment]
    assert groups.reconcile(late) == DONE
    assert groups.emitted.reasons() == ["Ungated", "Ungated"]


def test_totals_count_the_pods_of_the_group_that_go_to_the_same_node(groups: Groups) -> None:
    """Four of the node's seven CPUs are requested by a pod that no kubelet pins, so that replay does not know of it."""
    other = pod("other", 4, node=NODE_B)
    other["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4"}}
    groups.cluster.create(other)
    pods = groups.members(2, 2)
    groups.reconcile(pods[0])
    assert groups.gates(pods) == [(FIT_GATE,), (FIT_GATE,)]


def test_a_group_larger_than_the_limit_is_let_go_pod_by_pod(groups: Groups) -> None:
    pods = groups.members(2, size=MAX_SIZE + 1)
    assert groups.reconcile(pods[0]) == DONE
    assert groups.gates(pods) == [()]


def test_a_group_for_which_choosing_nodes_takes_too_long_is_let_go_pod_by_pod(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = groups.members(2, 2)
    with monkeypatch.context() as patched:
        patched.setattr("topomend.reconcile.gated.gated_pods.GROUP_SECONDS", 0.0)
        for _ in range(MAX_OVERRUNS):
            assert groups.reconcile(pods[0]) == Result(GROUP_BUSY_SECONDS)
        assert groups.emitted.reasons() == ["GroupGoesAlone"]
        assert groups.reconcile(pods[0]) == DONE
    assert groups.gates(pods) == [(), (FIT_GATE,)]
    assert groups.reconcile(pods[1]) == DONE
    assert groups.gates(pods) == [(), ()]


def test_a_group_for_which_choosing_nodes_takes_too_long_once_has_more_time_the_next_time(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = groups.members(2, 2)
    given: list[float] = []

    def choose(_: WatchedPod, __: object, seconds: float, effort: Effort) -> Result:
        del effort
        given.append(seconds)
        if seconds < 4 * GROUP_SECONDS:
            raise TurnOver
        return DONE

    monkeypatch.setattr(groups.gated_pods, "_choose_for_all", choose)
    for result in (Result(GROUP_BUSY_SECONDS), Result(GROUP_BUSY_SECONDS), DONE):
        assert groups.reconcile(pods[0]) == result
    assert given == [GROUP_SECONDS, 2 * GROUP_SECONDS, 4 * GROUP_SECONDS]
    assert groups.emitted.reasons() == []


def test_a_group_for_which_choosing_nodes_took_too_long_goes_together_again_after_a_while(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = groups.members(2, 2)
    with monkeypatch.context() as patched:
        patched.setattr("topomend.reconcile.gated.gated_pods.GROUP_SECONDS", 0.0)
        for _ in range(MAX_OVERRUNS):
            assert groups.reconcile(pods[0]) == Result(GROUP_BUSY_SECONDS)
    groups.clock.now += ALONE_SECONDS
    assert groups.reconcile(pods[0]) == DONE
    assert groups.gates(pods) == [(), ()]


def test_a_namespace_waits_for_its_own_group_and_not_for_that_of_another(groups: Groups) -> None:
    ours = groups.members(1, 1)
    content = pod("theirs", 1, labels={LABELS["kueue.x-k8s.io"]: "train"}, annotations={KUEUE_SIZE: "1"})
    content["spec"]["schedulingGates"] = [{"name": FIT_GATE}]
    theirs = read_watched_pod(groups.cluster.create(content, "kube-public"))
    groups.watch(theirs)
    meanwhile: list[Result] = []

    def reserved() -> tuple[()]:
        """Asked while nodes are chosen for our group."""
        groups.gated_pods._reserved = tuple
        meanwhile.extend(groups.reconcile(other) for other in (ours[1], theirs))
        return ()

    groups.gated_pods._reserved = reserved
    assert groups.reconcile(ours[0]) == DONE
    assert meanwhile == [Result(GROUP_BUSY_SECONDS), DONE]
    assert groups.cluster.get("theirs", "kube-public")["spec"].get("schedulingGates") is None


def test_the_group_s_object_says_how_many_pods_are_needed(groups: Groups) -> None:
    with _pod_groups(groups.cluster, "train", 2):
        pods = [_of_pod_group(groups, f"train-{number}") for number in range(2)]
        groups.watch(pods[0])
        assert groups.reconcile(pods[0]).after == COUNTED_SECONDS
        groups.watch(pods[1])
        assert groups.reconcile(pods[1]) == DONE
        assert groups.gates(pods) == [(), ()]


def test_pods_of_a_group_without_an_object_go_together_once_no_more_arrive(groups: Groups) -> None:
    pods = [_of_pod_group(groups, f"train-{number}") for number in range(2)]
    groups.watch(*pods)
    assert groups.reconcile(pods[0]) == Result(SETTLE_SECONDS)
    groups.clock.now += SETTLE_SECONDS
    assert groups.reconcile(pods[0]) == DONE
    assert groups.gates(pods) == [(), ()]


def _of_pod_group(groups: Groups, name: str) -> WatchedPod:
    return gated(groups.cluster, name, labels={LABELS[SCHEDULER_PLUGINS]: "train"})


@contextmanager
def _pod_groups(cluster: Cluster, name: str, least: int) -> Iterator[None]:
    """A PodGroup, of the kind that the scheduler plugins install."""
    (resource,) = GROUP_RESOURCES[SCHEDULER_PLUGINS]
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    content: dict[str, Any] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"podgroups.{SCHEDULER_PLUGINS}",
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
            },
        },
        "spec": {
            "group": SCHEDULER_PLUGINS,
            "names": {"kind": "PodGroup", "plural": "podgroups"},
            "scope": "Namespaced",
            "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": schema}],
        },
    }
    made = cluster.client.create(CRDS, content)
    group = {"apiVersion": resource.api_version, "kind": "PodGroup", "metadata": {"name": name}}

    def created() -> bool:
        try:
            cluster.client.create(resource, group | {"spec": {"minMember": least}}, "default")
        except NotFound:
            return False
        return True

    def gone() -> bool:
        try:
            cluster.client.get(resource, name, "default")
        except NotFound:
            return True
        return False

    try:
        eventually("the PodGroup", created)
        yield
    finally:
        cluster.client.delete(CRDS, made["metadata"]["name"], uid=made["metadata"]["uid"])
        eventually("the PodGroup to be gone", gone)  # the next test has a group of that name and no object of it
