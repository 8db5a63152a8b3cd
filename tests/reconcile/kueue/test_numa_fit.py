"""Kueue's question is answered once, held to, and asked again when a change makes the workload fit.

Kueue's kinds are served by a real API server; the test does what Kueue's controllers would do.
"""

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
from tests.clusters import NODE_B
from tests.intercepted import Intercepted
from tests.reconcile.kueue.scene import Kueue, condition, container, pending

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.decide.queue.order import Reservation
from topomend.kube.kueue import ADMISSION_CHECKS, RESOURCE_FLAVORS, WORKLOADS
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.reconcile.kueue.numa_fit import ANSWERING_SECONDS, HELD_SECONDS, LIST_SECONDS, WAKING_SECONDS
from topomend.reconcile.metrics.pods import DECISIONS
from topomend.wire.queued_workload import API_VERSION

pytestmark = pytest.mark.cluster


def test_our_checks_alone_are_made_active_once(kueue: Kueue) -> None:
    kueue.check()
    client = kueue.cluster.client
    conditions = client.get(ADMISSION_CHECKS, "numa")["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in conditions] == [("Active", "True")]
    assert "status" not in client.get(ADMISSION_CHECKS, "other")
    version = client.get(ADMISSION_CHECKS, "numa")["metadata"]["resourceVersion"]
    kueue.check()
    assert client.get(ADMISSION_CHECKS, "numa")["metadata"]["resourceVersion"] == version


def test_a_workload_that_fits_is_ready_and_its_places_are_held(kueue: Kueue) -> None:
    kueue.create("train", (1, 4), (2, 3))
    kueue.check()
    state = kueue.state("train")
    assert state["state"] == "Ready"
    assert state["message"].startswith("3 pods fit by replay: ")
    assert len(kueue.held()) == 3
    assert {name.partition("/")[0] for name in kueue.held()} == {"train"}


def test_pods_that_go_to_one_node_are_narrowed_to_it(kueue: Kueue) -> None:
    kueue.create("train", (1, 3))
    kueue.check()
    (update,) = kueue.state("train")["podSetUpdates"]
    (nodes,) = set(kueue.held().values())
    assert update == {"name": "set-0", "nodeSelector": {HOSTNAME_LABEL: nodes[0]}}


def test_pods_of_a_steered_namespace_are_narrowed_when_they_come(kueue: Kueue) -> None:
    kueue.create("train", (1, 3), namespace=kueue.steered())
    kueue.check()
    state = kueue.state("train", "steered-queue")
    assert state["state"] == "Ready"
    assert "podSetUpdates" not in state


def test_a_workload_that_does_not_fit_is_told_what_lacks_and_gives_its_quota_back(kueue: Kueue) -> None:
    kueue.create("train", (5, 3))
    kueue.check()
    state = kueue.state("train")
    assert state["state"] == "Retry"
    assert "requeueAfterSeconds" not in state, "Kueue would keep the quota so long"
    assert "of the 5 pods that wait together fit; train/set-0/" in state["message"]
    assert "closest: " in state["message"]
    assert kueue.held() == {}


def test_two_workloads_are_not_admitted_for_one_place(kueue: Kueue) -> None:
    kueue.create("first", (3, 3))
    kueue.check()
    kueue.create("second", (2, 3))
    kueue.check()
    assert (kueue.state("first")["state"], kueue.state("second")["state"]) == ("Ready", "Retry")


def test_the_workload_of_higher_priority_is_asked_about_first(kueue: Kueue) -> None:
    kueue.create("low", (3, 3), priority=1)
    kueue.create("urgent", (3, 3), priority=2)
    kueue.check()
    assert (kueue.state("low")["state"], kueue.state("urgent")["state"]) == ("Retry", "Ready")


def test_slow_decisions_leave_other_workloads_to_the_next_turn(kueue: Kueue) -> None:
    def slowly() -> Sequence[Reservation]:
        kueue.parts.clock.now += ANSWERING_SECONDS
        return ()

    kueue.answering(kueue.cluster.client, slowly)
    for name in ("first", "second"):
        kueue.create(name, (1, 3))
    kueue.check()
    assert sorted(kueue.state(name)["state"] for name in ("first", "second")) == ["Pending", "Ready"]
    kueue.check()
    assert [kueue.state(name)["state"] for name in ("first", "second")] == ["Ready", "Ready"]


def test_nodes_of_other_flavors_do_not_count(kueue: Kueue) -> None:
    flavor = {"apiVersion": API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": "any"}}
    spec = {"nodeLabels": {HOSTNAME_LABEL: NODE_B}}
    kueue.cluster.client.create(RESOURCE_FLAVORS, flavor | {"spec": spec})
    kueue.create("fits", (1, 3))
    kueue.create("too-many", (2, 3), priority=-1)
    kueue.check()
    assert set(kueue.held().values()) == {(NODE_B,)}
    assert (kueue.state("fits")["state"], kueue.state("too-many")["state"]) == ("Ready", "Retry")


def test_a_workload_is_requeued_by_the_change_that_makes_it_fit(kueue: Kueue) -> None:
    kueue.publish("other-0", "other-1")
    kueue.create("train", (3, 3))
    kueue.check()
    kueue.evict("train")
    kueue.check()
    assert kueue.waits("train")
    kueue.pass_time(WAKING_SECONDS)
    kueue.publish()
    kueue.check()
    assert not kueue.waits("train")
    kueue.reserve("train")
    kueue.check()
    assert kueue.state("train")["state"] == "Ready"


def test_decisions_and_workloads_that_wait_are_counted(kueue: Kueue) -> None:
    kueue.create("fits", (1, 3), priority=1)
    kueue.create("waits", (9, 3))
    kueue.create("many", (501, 1))
    kueue.check()
    counts = {result: kueue.metric("decisions_total", result=result) for result in DECISIONS}
    assert counts == {"fits": 1, "unfit": 1, "unchecked": 1, "undecided": 0}
    assert kueue.metric("decision_seconds_count") == 2
    assert kueue.metric("workloads_waiting") == 0
    kueue.evict("waits")
    kueue.check()
    kueue.check()
    assert kueue.metric("workloads_waiting") == 1


def test_a_workload_that_waits_keeps_no_snapshot(kueue: Kueue) -> None:
    """Else as many clusters are in memory as workloads wait, each with all its pods."""
    asked_on: list[weakref.ref[Snapshot]] = []
    for number in range(3):
        kueue.publish(f"other-{number}")
        asked_on.append(weakref.ref(kueue.parts.store.snapshot))
        kueue.create(f"waits-{number}", (9, 3))
        kueue.check()
        kueue.evict(f"waits-{number}")
        kueue.check()
    kueue.publish()
    kueue.check()
    gc.collect()
    assert [each() for each in asked_on] == [None] * 3
    assert all(kueue.waits(f"waits-{number}") for number in range(3))


def test_a_change_before_kueue_took_the_quota_back_is_not_missed(kueue: Kueue) -> None:
    kueue.publish("other-0", "other-1")
    kueue.create("train", (3, 3))
    kueue.check()
    kueue.publish()
    kueue.check()
    kueue.evict("train")
    kueue.check()
    kueue.check()
    assert not kueue.waits("train")


def test_a_workload_whose_quota_is_reserved_while_it_waits_is_answered(kueue: Kueue) -> None:
    """Kueue was faster than the operator, and takes no answer before the time to which a workload waits."""
    kueue.create("train", (1, 3))
    kueue.write("train", {"requeueState": {"requeueAt": "2126-01-01T00:00:00Z"}})
    kueue.check()
    assert not kueue.waits("train")
    kueue.check()
    assert kueue.state("train")["state"] == "Ready"


def test_a_workload_is_kept_out_at_the_first_word_of_its_eviction_whatever_comes_after(kueue: Kueue) -> None:
    kueue.create("train", (9, 3))
    kueue.check()
    kueue.evict("train")
    kueue.queued.see(WORKLOADS.plural, kueue.get("train"), gone=False)
    kueue.write("train", {"schedulingStats": {"evictions": []}})
    kueue.numa_fit.keep_out(("default", "train"))
    assert kueue.waits("train")


def test_a_workload_that_was_requeued_is_not_kept_out_again(kueue: Kueue) -> None:
    kueue.publish("other-0", "other-1")
    kueue.create("train", (3, 3))
    kueue.check()
    kueue.evict("train")
    kueue.check()
    kueue.publish()
    kueue.pass_time(WAKING_SECONDS)
    kueue.check()
    for _ in range(2):
        kueue.check()
        assert not kueue.waits("train")


def test_no_more_workloads_are_requeued_than_fit_together(kueue: Kueue) -> None:
    kueue.publish("other-0", "other-1")
    for name in ("first", "second"):
        kueue.create(name, (3, 3))
        kueue.check()
        kueue.evict(name)
        kueue.check()
    kueue.pass_time(WAKING_SECONDS)
    kueue.publish()
    kueue.check()
    assert sorted(kueue.waits(name) for name in ("first", "second")) == [False, True]
    kueue.pass_time(WAKING_SECONDS)
    kueue.check()  # Kueue has not taken the first one's place
    assert not any(kueue.waits(name) for name in ("first", "second"))


def test_a_wait_that_another_check_has_caused_is_left_alone(kueue: Kueue) -> None:
    kueue.create("train", (1, 3))
    checks = [pending("numa"), pending("other", retryCount=1)]
    conditions = [condition("Evicted", "AdmissionCheck"), condition("QuotaReserved", status="False")]
    waiting = {"requeueAt": "2126-01-01T00:00:00Z"}
    kueue.write("train", {"conditions": conditions, "admissionChecks": checks, "requeueState": waiting})
    kueue.check()
    assert kueue.waits("train")


def test_places_are_held_as_long_as_the_quota_and_then_for_the_pods_to_come(kueue: Kueue) -> None:
    kueue.create("train", (2, 3))
    kueue.check()
    held = kueue.held()
    for _ in range(4):  # another check takes its time
        kueue.pass_time(HELD_SECONDS * 0.6)
        kueue.check()
    assert kueue.held() == held
    kueue.write("train", {"conditions": [condition("QuotaReserved"), condition("Admitted")]})
    kueue.check()
    kueue.pass_time(HELD_SECONDS * 0.9)
    kueue.check()
    assert kueue.held() == held
    kueue.pass_time(HELD_SECONDS * 0.2)
    kueue.check()
    assert kueue.held() == {}


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [condition("QuotaReserved"), condition("Evicted", "Preempted")]},
        {"conditions": [condition("QuotaReserved", status="False")]},
        {"conditions": [condition("QuotaReserved"), condition("Finished")]},
    ],
    ids=["evicted", "without quota", "finished"],
)
def test_places_are_given_back_with_the_quota(kueue: Kueue, status: dict[str, Any]) -> None:
    kueue.create("train", (2, 3))
    kueue.check()
    assert kueue.held()
    kueue.write("train", status)
    kueue.check()
    assert kueue.held() == {}


def test_a_workload_is_not_answered_while_kueue_takes_its_quota_back(kueue: Kueue) -> None:
    kueue.create("train", (2, 3))
    kueue.write("train", {"conditions": [condition("QuotaReserved"), condition("Evicted", "AdmissionCheck")]})
    kueue.check()
    assert kueue.state("train")["state"] == "Pending"


def test_a_later_operator_holds_the_places_that_an_earlier_one_has_promised(kueue: Kueue) -> None:
    kueue.create("train", (2, 3))
    kueue.check()
    kueue.parts.apply(changes.PromiseEnded("default", "train"))
    kueue.answering(kueue.cluster.client)
    kueue.check()
    assert len(kueue.held()) == 2
    assert kueue.state("train")["state"] == "Ready"


def test_a_malformed_workload_stops_no_other(kueue: Kueue, caplog: pytest.LogCaptureFixture) -> None:
    kueue.create("fits", (1, 3))
    many = [{**container(1), "name": f"c{number}"} for number in range(201)]
    template = {"spec": {"containers": many}}
    head = {"apiVersion": API_VERSION, "kind": "Workload", "metadata": {"name": "huge"}}
    sets = [{"name": "main", "count": 1, "template": template}]
    kueue.cluster.client.create(WORKLOADS, head | {"spec": {"podSets": sets}}, "default")
    kueue.write("huge", {"admissionChecks": [pending("numa")], "conditions": [condition("QuotaReserved")]})
    kueue.check()
    assert kueue.state("fits")["state"] == "Ready"
    assert kueue.state("huge")["state"] == "Pending"
    assert "default/huge: its workload is left alone: " in caplog.text


def test_an_answer_for_an_older_version_is_not_written_and_holds_nothing(kueue: Kueue) -> None:
    kueue.create("train", (2, 3))

    def evicted_meanwhile(method: str, target: str) -> None:
        if method == "PATCH" and "/workloads/" in target:
            kueue.write("train", {"conditions": [condition("QuotaReserved", status="False")]})

    kueue.answering(Intercepted(kueue.cluster.client, evicted_meanwhile))
    kueue.check()
    assert kueue.state("train")["state"] == "Pending"
    assert kueue.held() == {}


def test_everything_is_listed_again_from_time_to_time(kueue: Kueue) -> None:
    kueue.check()
    kueue.create("train", (1, 3))
    kueue.numa_fit.check()
    assert kueue.state("train")["state"] == "Pending"
    kueue.parts.clock.now += LIST_SECONDS + 1
    kueue.numa_fit.check()
    assert kueue.state("train")["state"] == "Ready"


def test_a_watch_brings_what_is_new_and_what_is_gone(kueue: Kueue) -> None:
    kueue.check()
    kueue.create("train", (1, 3))
    kueue.queued.see(WORKLOADS.plural, kueue.get("train"), gone=False)
    kueue.numa_fit.check()
    assert kueue.state("train")["state"] == "Ready"
    kueue.queued.see(WORKLOADS.plural, kueue.get("train"), gone=True)
    assert kueue.queued.get(("default", "train")) is None
