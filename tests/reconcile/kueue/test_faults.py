"""What fails once, is huge or takes too long keeps no workload of Kueue from its answer, and no other from theirs."""

from collections.abc import Callable

import pytest
from tests.intercepted import Intercepted
from tests.reconcile.kueue.scene import Kueue, condition, pending

from topomend.cache.pod_reader import kept_bytes
from topomend.decide import workload_fit
from topomend.decide.workload_fit import MAX_PODS
from topomend.kube.errors import Forbidden, Refused, ServerFailed
from topomend.kube.kueue import WORKLOADS
from topomend.reconcile.kueue import numa_fit, queued
from topomend.reconcile.kueue.numa_fit import FAULTS, UNDECIDED_SECONDS
from topomend.replay.effort import TurnOver

pytestmark = pytest.mark.cluster

KEY = ("default", "train")
LATER = {"requeueState": {"requeueAt": "2126-01-01T00:00:00Z"}}
EVICTED = {
    "admission": None,
    "conditions": [condition("Evicted", "AdmissionCheck"), condition("QuotaReserved", status="False")],
    "admissionChecks": [pending("numa", retryCount=1)],
}


def failing_once(method: str, part: str, error: Exception) -> Callable[[str, str], None]:
    """The first such request fails."""
    errors = [error]

    def intercept(asked: str, target: str) -> None:
        if errors and asked == method and part in target:
            raise errors.pop()

    return intercept


@pytest.mark.parametrize("error", [ServerFailed(503, "", "leader changed"), Forbidden(403, "", "denied by a webhook")])
@pytest.mark.parametrize(("method", "part"), [("PATCH", "/workloads/"), ("GET", "/resourceflavors/")])
def test_a_workload_about_which_a_request_failed_is_answered_after_a_rest(
    kueue: Kueue, method: str, part: str, error: Refused
) -> None:
    kueue.create("train", (1, 3))
    kueue.answering(Intercepted(kueue.cluster.client, failing_once(method, part, error)))
    kueue.check()
    kueue.check()
    assert kueue.state("train")["state"] == "Pending"
    kueue.pass_time(FAULTS.first)
    kueue.numa_fit.check()
    assert kueue.state("train")["state"] == "Ready"


def test_a_workload_that_could_not_be_requeued_or_kept_out_is_later(kueue: Kueue) -> None:
    failed = ServerFailed(503, "", "leader changed")
    kueue.create("train", (1, 3))
    kueue.write("train", LATER)
    kueue.answering(Intercepted(kueue.cluster.client, failing_once("PATCH", "/workloads/", failed)))
    kueue.check()
    assert kueue.waits("train")
    kueue.pass_time(FAULTS.first)
    kueue.numa_fit.check()
    assert not kueue.waits("train")
    kueue.create("wide", (9, 3))
    client = Intercepted(kueue.cluster.client)
    kueue.answering(client)
    kueue.check()
    kueue.evict("wide")
    client.intercept = failing_once("PATCH", "/workloads/wide", failed)
    kueue.check()
    assert not kueue.waits("wide")
    kueue.pass_time(FAULTS.first)
    kueue.numa_fit.check()
    assert kueue.waits("wide")


def test_a_list_takes_nothing_back_that_a_watch_brought_meanwhile(kueue: Kueue) -> None:
    kueue.create("train", (1, 3))
    kueue.create("other", (1, 3))
    train = kueue.get("train")

    def gone_meanwhile(method: str, target: str) -> None:
        if method == "GET" and "/workloads?" in target:
            kueue.queued.see(WORKLOADS.plural, train, gone=True)

    kueue.answering(Intercepted(kueue.cluster.client, gone_meanwhile))
    kueue.check()
    assert kueue.queued.get(KEY) is None, "its deletion came after the list had been read"
    assert kueue.queued.get(("default", "other"))


def test_a_list_reads_no_version_again_so_that_large_workloads_keep_their_room(
    kueue: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"train-{number}" for number in range(3)]
    for name in names:
        kueue.create(name, (1, 1))
    size = kept_bytes(kueue.get(names[0])["spec"]["podSets"][0]["template"])
    monkeypatch.setattr(queued, "ORDINARY_BYTES", 0)
    monkeypatch.setattr(queued, "ROOM_BYTES", 2 * (len(names) * size + 1))  # half of it is a namespace's
    kueue.answering(kueue.cluster.client)
    for _ in range(3):
        kueue.check()
        assert all(kueue.queued.get(("default", name)) for name in names)


def test_a_version_that_cannot_be_read_leaves_no_older_one_in_force(kueue: Kueue) -> None:
    kueue.create("train", (1, 3))
    kueue.check()
    content = kueue.get("train")
    content["spec"]["podSets"] = "none"
    content["metadata"]["resourceVersion"] = "9999999"
    kueue.queued.see(WORKLOADS.plural, content, gone=False)
    assert kueue.queued.get(KEY) is None


def test_a_workload_of_very_many_pods_that_waits_is_requeued_without_a_pod_made_for_each(
    kueue: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a new operator finds it: it does not know of how few pods Kueue has asked before."""
    kueue.create("train", (1_000_000, 1))
    kueue.write("train", EVICTED | LATER)
    made = workload_fit.members
    monkeypatch.setattr(numa_fit, "members", lambda pod_set: made(pod_set) if pod_set.count <= MAX_PODS else 1 / 0)
    kueue.check()
    assert not kueue.waits("train")


def test_a_workload_is_let_through_about_which_decisions_take_too_long(
    kueue: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def too_long(*_: object, **__: object) -> None:
        asked.append(1)
        raise TurnOver

    monkeypatch.setattr(numa_fit, "choose_places", too_long)
    kueue.create("train", (1, 3))
    for _ in range(2):
        kueue.check()
        assert kueue.state("train")["message"].startswith("not decided, because that takes too long: ")
        kueue.evict("train")
        kueue.check()
        assert kueue.waits("train")
        tried = len(asked)
        kueue.publish("other")
        kueue.check()
        assert (len(asked), kueue.waits("train")) == (tried, True), "it rests"
        kueue.pass_time(UNDECIDED_SECONDS)
        kueue.check()
        assert not kueue.waits("train")
        kueue.reserve("train")
        kueue.publish()
    kueue.check()
    assert kueue.state("train")["state"] == "Ready"
    assert kueue.state("train")["message"] == "not checked, because a decision takes too long"
    kueue.check()
    assert kueue.state("train")["state"] == "Ready", "the next version of the workload is answered alike"


def test_a_workload_about_which_a_later_decision_is_in_time_waits_for_a_change_again(
    kueue: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would reserve quota and give it back each second."""

    def too_long(*_: object, **__: object) -> None:
        raise TurnOver

    kueue.create("train", (9, 3))
    with monkeypatch.context() as patched:
        patched.setattr(numa_fit, "choose_places", too_long)
        kueue.check()
    kueue.evict("train")
    kueue.check()
    kueue.pass_time(UNDECIDED_SECONDS)
    kueue.check()
    assert not kueue.waits("train")
    kueue.reserve("train")
    kueue.check()
    assert "of the 9 pods that wait together fit" in kueue.state("train")["message"]
    kueue.evict("train")
    kueue.check()
    kueue.pass_time(UNDECIDED_SECONDS)
    kueue.check()
    assert kueue.waits("train")


def test_a_workload_without_pods_is_ready_in_a_steered_namespace_too(kueue: Kueue) -> None:
    kueue.create("train", (0, 3), namespace=kueue.steered())
    kueue.check()
    state = kueue.state("train", "steered-queue")
    assert (state["state"], state["message"]) == ("Ready", "it has no pods")
