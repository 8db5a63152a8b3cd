"""The protocol's requests on a real API server: what is on it after an attempt, and after one that was cut short."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from tests.clusters import NODE_A, NODE_B, Cluster
from tests.refused_pods import refused, watched
from tests.unbound_pods import bind, unbound

from topomend.kube.client import Client
from topomend.kube.errors import Conflict, NotFound, NotPermitted, Refused
from topomend.kube.pool import Answer
from topomend.kube.resources import PODS, RELAUNCHES
from topomend.model.narrowing import Narrowing
from topomend.model.pods.scheduling import WatchedPod
from topomend.model.relaunch_record import Relaunch, Step
from topomend.relaunch import messages, protocol
from topomend.relaunch.driver import Chosen, Driver, Outcome
from topomend.relaunch.narrowed_affinity import narrowing_of
from topomend.wire.document import MalformedObject
from topomend.wire.group import RELAUNCH_GATE
from topomend.wire.relaunch_record import read_relaunch, record_name

pytestmark = pytest.mark.cluster

NOW = "2026-01-01T00:00:00Z"
ON_B = Chosen((NODE_B,), Narrowing((NODE_B,)), counts=(("Admits", 1),), reason="numa-b admits it")
NOWHERE = Chosen()

GHOST = "ghost"
"""A node without a kubelet: the kubelet of another would refuse a pod that was narrowed to nodes that do not exist."""

MAIN_LINE = 10
"""The writes of one relaunch that nothing disturbs."""


@pytest.fixture
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    yield two_nodes
    for content in two_nodes.records():  # a relaunch that is blocked keeps its finalizer
        metadata = content["metadata"]
        patch = {"metadata": {"finalizers": None}}
        two_nodes.client.merge(RELAUNCHES, metadata["name"], patch, metadata["namespace"])
    two_nodes.remove_all()


class Contradicted(Client):
    """The same cluster. ``contradicted`` are the requests that were refused because an object had changed."""

    def __init__(self, client: Client) -> None:
        super().__init__(client.access)
        self.contradicted: list[str] = []

    def _refusal(self, response: Answer, request: str) -> Refused:
        refusal = super()._refusal(response, request)
        if isinstance(refusal, Conflict):
            self.contradicted.append(request)
        return refusal


@dataclass
class Attempts:
    """Attempts at relaunching one refused pod."""

    cluster: Cluster
    pod: WatchedPod

    @property
    def record_name(self) -> str:
        return record_name(self.pod.name, self.pod.uid)

    def run(
        self,
        chosen: Chosen = ON_B,
        *,
        may_start: bool = True,
        renames: bool = False,
        draining: bool = False,
        client: Client | None = None,
        now: Callable[[], str] = lambda: NOW,
    ) -> Outcome:
        driver = Driver(
            client or self.cluster.client,
            lambda _pod, _record: chosen,
            now,
            renames=renames,
            draining=draining,
        )
        return driver.run(self.pod.namespace, self.pod.name, self.pod.uid, self.record_name, may_start=may_start)

    def run_until_write(self, number: int, *, renames: bool = False) -> None:
        """An attempt of an operator that dies before this write, counted from 1.

        A write in vain is none: the kubelet writes the status of a refused pod once more after its first change.
        """
        client, asked = Contradicted(self.cluster.client), count()
        limited = client.writing_while(lambda: next(asked) - len(client.contradicted) < number - 1)
        with pytest.raises(NotPermitted):
            self.run(client=limited, renames=renames)

    def record(self) -> Relaunch:
        return read_relaunch(self.cluster.client.get(RELAUNCHES, self.record_name, self.pod.namespace))

    def mark(self, status: dict[str, Any]) -> None:
        """Somebody writes this into the record's status."""
        patch = {"status": status}
        self.cluster.client.merge(RELAUNCHES, self.record_name, patch, self.pod.namespace, subresource="status")

    def exists(self, name: str) -> bool:
        try:
            self.cluster.get(name)
        except NotFound:
            return False
        return True


MOST_WRITES = 20
"""More than a relaunch takes."""


def allowing(writes: int) -> Callable[[], bool]:
    remaining = iter(range(writes))
    return lambda: next(remaining, None) is not None


@pytest.fixture
def attempts(cluster: Cluster) -> Attempts:
    return Attempts(cluster, refused(cluster, "train"))


def check_launched(attempts: Attempts, name: str = "train") -> None:
    """One pod of this name in the place of the refused one, ungated for numa-b, and a record that says so."""
    replacement, record = watched(attempts.cluster, name), attempts.record()
    assert replacement.uid != attempts.pod.uid
    assert replacement.replaces == attempts.pod.uid
    assert RELAUNCH_GATE not in replacement.gates
    assert narrowing_of(replacement.node_affinity).hosts == (NODE_B,)
    assert (record.step, record.new_uid) == (Step.LAUNCHED, replacement.uid)
    assert (record.refused_by, record.attempt, record.protected) == (NODE_A, 1, False)
    assert (record.start_time, record.launched_time) == (NOW, NOW)
    assert len(attempts.cluster.pods()) == 1


def test_a_refused_pod_is_replaced_by_one_that_is_ungated_for_the_chosen_node(attempts: Attempts) -> None:
    outcome = attempts.run()
    assert isinstance(outcome.last, messages.Stop)
    assert outcome.launched is not None
    assert outcome.record is not None
    assert (outcome.record.step, outcome.chosen) == (Step.LAUNCHED, ON_B)
    check_launched(attempts)
    assert attempts.record().candidates == (NODE_B,)


def test_an_attempt_that_may_not_start_writes_nothing(attempts: Attempts) -> None:
    outcome = attempts.run(may_start=False, client=attempts.cluster.client.writing_while(lambda: False))
    assert isinstance(outcome.last, messages.Stop)
    assert (outcome.record, outcome.launched) == (None, None)


@pytest.mark.parametrize("write", range(1, MAIN_LINE + 1))
def test_whichever_write_an_operator_dies_before_the_next_one_completes_the_relaunch(
    write: int, attempts: Attempts
) -> None:
    """The nodes are not recorded where it dies after it has ungated the replacement and before it marks that."""
    attempts.run_until_write(write)
    attempts.run()
    check_launched(attempts)
    assert attempts.record().candidates in ((NODE_B,), ())


def test_a_replacement_that_no_node_admits_waits_behind_its_gate_for_a_later_attempt(attempts: Attempts) -> None:
    outcome = attempts.run(NOWHERE)
    assert isinstance(outcome.last, messages.Pause)
    assert outcome.launched is None
    assert watched(attempts.cluster, "train").gates == (RELAUNCH_GATE,)
    assert attempts.record().step is Step.CREATED
    attempts.run(may_start=False)
    check_launched(attempts)


def test_a_record_that_was_deleted_is_restored_from_the_replacement_that_waits(attempts: Attempts) -> None:
    attempts.run(NOWHERE)
    waiting, deleted = watched(attempts.cluster, "train"), attempts.record()
    attempts.cluster.client.delete(RELAUNCHES, deleted.name, deleted.namespace, uid=deleted.uid)
    attempts.run(may_start=False)
    restored = attempts.record()
    assert (restored.reason, restored.refused_by) == ("RecordDeleted", "unknown")
    assert (restored.pod_name, restored.pod_uid) == ("train", attempts.pod.uid)
    assert (restored.step, restored.new_uid) == (Step.LAUNCHED, waiting.uid)
    assert watched(attempts.cluster, "train").uid == waiting.uid


def test_a_replacement_with_a_name_of_its_own_is_there_before_the_refused_pod_goes(attempts: Attempts) -> None:
    for _ in range(MOST_WRITES):
        if attempts.exists("train-r1"):
            break
        assert attempts.exists("train")
        with_one_write_more = attempts.cluster.client.writing_while(allowing(1))
        with pytest.raises(NotPermitted):
            attempts.run(renames=True, client=with_one_write_more)
    assert attempts.exists("train")
    assert attempts.exists("train-r1")
    attempts.run(renames=True)
    check_launched(attempts, "train-r1")


def test_a_manifest_that_was_not_recorded_by_us_creates_nothing(attempts: Attempts) -> None:
    """Whoever may create records must not have the operator create pods for them."""
    forged: dict[str, Any] = {
        "apiVersion": RELAUNCHES.api_version,
        "kind": "Relaunch",
        "metadata": {"name": attempts.record_name},
        "spec": {
            "pod": {"name": "train", "uid": attempts.pod.uid},
            "refusedBy": NODE_A,
            "reason": "TopologyAffinityError",
            "attempt": 1,
            "manifestHash": "0" * 64,
        },
    }
    evil = {"metadata": {"name": "train"}, "spec": {"hostNetwork": True, "containers": []}}
    attempts.cluster.client.create(RELAUNCHES, forged, "default")
    attempts.mark({"step": "Committed", "manifest": evil})
    attempts.cluster.remove(attempts.cluster.get("train"))
    outcome = attempts.run()
    assert isinstance(outcome.last, messages.Pause)
    assert outcome.last.waiting_for == "the record's manifest is not the one that was recorded"
    assert attempts.cluster.pods() == ()


@pytest.mark.parametrize("renames", [False, True], ids=["the same name", "a name of its own"])
@pytest.mark.parametrize("manifest", [None, {}, {"metadata": {"labels": {"a": "b"}}, "spec": {"hostNetwork": True}}])
def test_a_record_that_somebody_commits_gets_the_pods_own_manifest_before_the_pod_goes(
    manifest: dict[str, Any] | None, renames: bool, attempts: Attempts
) -> None:
    attempts.run_until_write(3, renames=renames)
    attempts.mark({"step": "Committed", "manifest": manifest})
    attempts.run()
    check_launched(attempts, "train-r1" if renames else "train")
    running = attempts.cluster.get("train-r1" if renames else "train")
    assert "hostNetwork" not in running["spec"]
    assert "a" not in running["metadata"].get("labels", {})


def test_a_record_without_a_manifest_whose_pod_is_gone_creates_nothing_and_stays(attempts: Attempts) -> None:
    attempts.run_until_write(6)
    attempts.mark({"manifest": None})
    outcome = attempts.run()
    assert isinstance(outcome.last, messages.Pause)
    assert attempts.record().step is Step.BLOCKED


def test_a_replacement_that_waits_is_launched_although_somebody_marked_its_record_so(attempts: Attempts) -> None:
    attempts.run(NOWHERE)
    attempts.mark({"step": "Launched"})
    attempts.run(may_start=False)
    check_launched(attempts)


def test_a_drain_gives_a_recorded_pod_back_as_it_was(attempts: Attempts) -> None:
    attempts.run_until_write(3)
    attempts.run(draining=True)
    pod = watched(attempts.cluster, "train")
    assert (pod.uid, pod.finalizers) == (attempts.pod.uid, ())
    succeeded = attempts.record().condition("Succeeded")
    assert succeeded is not None
    assert (succeeded.status, succeeded.message) == ("False", protocol.DRAINED)


def test_a_pod_that_its_user_deleted_first_is_not_replaced(attempts: Attempts) -> None:
    attempts.run_until_write(2)
    attempts.cluster.client.delete(PODS, "train", "default", uid=attempts.pod.uid)
    attempts.run()
    assert attempts.cluster.pods() == ()


@pytest.mark.parametrize("renames", [False, True], ids=["the same name", "a name of its own"])
def test_a_pod_that_is_changed_after_the_commit_is_given_back(attempts: Attempts, renames: bool) -> None:
    attempts.run_until_write(4, renames=renames)
    attempts.cluster.client.merge(PODS, "train", {"metadata": {"labels": {"role": "other"}}}, "default")
    outcome = attempts.run(renames=renames)
    assert outcome.last == messages.Stop("Cancelled")
    (content,) = attempts.cluster.pods()
    assert (content["metadata"]["uid"], content["metadata"].get("finalizers")) == (attempts.pod.uid, None)
    record = attempts.record()
    succeeded = record.condition("Succeeded")
    assert succeeded
    assert (record.step, record.manifest, record.protected) == (Step.CANCELLED, {}, False)
    assert succeeded.message == protocol.CHANGED


def test_a_replacement_that_no_record_stands_for_is_deleted(attempts: Attempts) -> None:
    attempts.run_until_write(7)
    attempts.mark({"step": "Cancelled", "manifest": None})
    assert watched(attempts.cluster, "train").gates == (RELAUNCH_GATE,)
    assert attempts.run().last == messages.Stop("Cancelled")
    assert attempts.cluster.pods() == ()


def test_a_replacement_is_not_deleted_that_another_operator_marks_before_the_record_is_confirmed(
    attempts: Attempts,
) -> None:
    """Confirming the record writes nothing, and still fails where the record is no longer the one that was read."""
    attempts.run_until_write(7)
    attempts.mark({"step": "Cancelled", "manifest": None})
    uid = watched(attempts.cluster, "train").uid
    writes = 0

    def another_marks() -> bool:
        nonlocal writes
        writes += 1
        if writes == 1:
            attempts.mark({"step": "Created", "newPod": {"name": "train", "uid": uid}})
        return True

    attempts.run(client=attempts.cluster.client.writing_while(another_marks))
    check_launched(attempts)
    assert watched(attempts.cluster, "train").uid == uid


def test_an_unbound_pod_that_a_scheduler_binds_while_it_is_committed_stays(cluster: Cluster) -> None:
    """The driver asks for the time right before it commits the record: the pod was claimed, and is not deleted yet."""
    attempts = Attempts(cluster, unbound(cluster, "train"))
    times: list[str] = []

    def now() -> str:
        if not times:
            bind(cluster, attempts.pod, GHOST)
        times.append(NOW)
        return NOW

    outcome = attempts.run(now=now, renames=True)
    assert outcome.last == messages.Stop("Cancelled")
    pod = watched(cluster, "train")
    assert (pod.uid, pod.node, pod.deleting, pod.finalizers, pod.record) == (attempts.pod.uid, GHOST, False, (), "")
    record = attempts.record()
    succeeded = record.condition("Succeeded")
    assert succeeded
    assert (record.step, succeeded.message, record.is_open) == (Step.CANCELLED, protocol.BOUND, False)


@pytest.mark.parametrize("write", range(1, MAIN_LINE + 1))
def test_an_unbound_pod_is_relaunched_once_wherever_an_operator_dies_and_keeps_its_name(
    write: int, cluster: Cluster
) -> None:
    attempts = Attempts(cluster, unbound(cluster, "train"))
    attempts.run_until_write(write, renames=True)
    attempts.run()
    replacement = watched(cluster, "train")
    assert (replacement.replaces, replacement.gates, replacement.attempt) == (attempts.pod.uid, (), 0)
    record = attempts.record()
    assert (record.step, record.new_uid, record.is_open) == (Step.LAUNCHED, replacement.uid, False)


@pytest.mark.parametrize("writes", [2, 3], ids=["recorded", "committed"])
def test_a_claimed_pod_that_its_user_made_unreadable_can_still_be_deleted(attempts: Attempts, writes: int) -> None:
    """Else the finalizer would keep it, its record and their namespace for ever."""
    attempts.run_until_write(writes + 1)
    many = [{"key": f"k{number}", "operator": "Exists"} for number in range(1_001)]
    client, uid = attempts.cluster.client, attempts.pod.uid
    client.merge(PODS, "train", {"spec": {"tolerations": many}}, "default")
    with pytest.raises(MalformedObject):
        attempts.run(may_start=False)
    assert attempts.cluster.get("train")["metadata"]["uid"] == uid
    client.delete(PODS, "train", "default", uid=uid)
    attempts.run(NOWHERE, may_start=False)
    left = [content["metadata"]["uid"] for content in attempts.cluster.pods() if content["metadata"]["name"] == "train"]
    assert uid not in left
    assert bool(left) == (writes == 3)  # a committed relaunch has its replacement, as for any pod
