"""Kueue's checks that a drain ends on a real API server: ours are inactive, and the queues that ask them are named."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.clusters import Cluster, served
from tests.intercepted import Intercepted
from tests.waiting import eventually
from verify.kueue.kueue import create_queue, kinds

from topomend.drain.admission_checks import AdmissionChecks
from topomend.drain.journal import Journal
from topomend.kube.client import Client
from topomend.kube.errors import NotPermitted, ServerFailed
from topomend.kube.kueue import ADMISSION_CHECKS, CLUSTER_QUEUES, FIELD_MANAGER, RESOURCE_FLAVORS
from topomend.runtime.timestamp import timestamp
from topomend.wire.queued_workload import API_VERSION, CONTROLLER, active_status, counts_as_active

pytestmark = pytest.mark.cluster

USED = ("admissionchecks", "clusterqueues", "resourceflavors")


def check_of(name: str, controller: str) -> dict[str, Any]:
    head = {"apiVersion": API_VERSION, "kind": "AdmissionCheck", "metadata": {"name": name}}
    return head | {"spec": {"controllerName": controller}}


@pytest.fixture
def kueue(two_nodes: Cluster) -> Iterator[Client]:
    """Kueue's kinds, a check of ours that is active, and one of another controller that is active too."""
    client = two_nodes.client
    definitions = [kind for kind in kinds() if kind["spec"]["names"]["plural"] in USED]
    with served(client, definitions, ADMISSION_CHECKS):
        eventually("all kinds", lambda: [client.list(CLUSTER_QUEUES), client.list(RESOURCE_FLAVORS)])
        for name, controller in (("numa", CONTROLLER), ("other", "example.com/other")):
            made = client.create(ADMISSION_CHECKS, check_of(name, controller))
            status = active_status(made, timestamp())
            client.apply(ADMISSION_CHECKS, name, status, subresource="status", manager=FIELD_MANAGER)
        yield client


def drained(client: Client, *, dry: bool = False) -> tuple[Sequence[str], dict[str, str]]:
    """The lines of a drain, and what it could not drain, with the reason."""
    lines = list[str]()
    journal = Journal(lines.append, dry=dry)
    AdmissionChecks(client, journal).retire()
    return lines, dict(journal.remaining)


def is_active(client: Client, name: str) -> bool:
    return counts_as_active(client.get(ADMISSION_CHECKS, name))


def test_our_check_is_inactive_afterwards_and_that_of_another_controller_is_as_it_was(kueue: Client) -> None:
    lines, left = drained(kueue)
    assert lines == ["AdmissionCheck numa: not active, so that Kueue gives no quota"]
    assert left == {}
    assert (is_active(kueue, "numa"), is_active(kueue, "other")) == (False, True)
    assert drained(kueue) == ([], {})


def test_a_queue_that_asks_it_is_named_until_it_asks_no_more(kueue: Client) -> None:
    create_queue(kueue, 8, (), ["other", "numa"])
    _, left = drained(kueue)
    assert left.keys() == {"ClusterQueue pool"}
    assert "it asks admission check numa, which nobody answers" in left["ClusterQueue pool"]
    asked: dict[str, Any] = {"admissionChecks": [{"name": "other"}]}
    kueue.merge(CLUSTER_QUEUES, "pool", {"spec": {"admissionChecksStrategy": asked}})
    assert drained(kueue) == ([], {})


def test_a_dry_run_names_both_and_changes_nothing(kueue: Client) -> None:
    create_queue(kueue, 8, (), ["numa"])
    lines, left = drained(kueue, dry=True)
    assert lines == ["AdmissionCheck numa: not active, so that Kueue gives no quota (dry run)"]
    assert left.keys() == {"ClusterQueue pool"}
    assert is_active(kueue, "numa")


def test_without_kueue_there_is_nothing_to_do(two_nodes: Cluster) -> None:
    assert drained(two_nodes.client) == ([], {})


def test_kueue_that_does_not_answer_keeps_no_pod_from_being_drained(kueue: Client) -> None:
    def fail(_: str, target: str) -> None:
        if target.startswith(CLUSTER_QUEUES.path()):
            raise ServerFailed(500, "InternalError", "conversion webhook failed")

    _, left = drained(Intercepted(kueue, fail))
    assert "conversion webhook failed" in left["Kueue's admission checks"]
    assert left["Kueue's admission checks"].endswith("; drain again")


def test_a_check_that_cannot_be_written_stops_no_other(kueue: Client) -> None:
    def fail(method: str, target: str) -> None:
        if method == "PATCH" and target.startswith(ADMISSION_CHECKS.path("", "broken")):
            raise ServerFailed(500, "InternalError", "its validation does not answer")

    made = kueue.create(ADMISSION_CHECKS, check_of("broken", CONTROLLER))
    status = active_status(made, timestamp())
    kueue.apply(ADMISSION_CHECKS, "broken", status, subresource="status", manager=FIELD_MANAGER)
    lines, left = drained(Intercepted(kueue, fail))
    assert lines == ["AdmissionCheck numa: not active, so that Kueue gives no quota"]
    assert left.keys() == {"AdmissionCheck broken"}
    assert "its validation does not answer" in left["AdmissionCheck broken"]


def test_a_drain_that_may_write_no_more_ends(kueue: Client) -> None:
    with pytest.raises(NotPermitted):
        drained(kueue.writing_while(lambda: False))
