"""Who gets the events about a controller: the Deployment above a ReplicaSet, a Job and the CronJob above it."""

from dataclasses import replace
from typing import Any, cast

import pytest

from topomend.kube.client import Client
from topomend.kube.errors import Forbidden, NotFound
from topomend.kube.resources import Resource
from topomend.reconcile.described_owners import DescribedOwners
from topomend.runtime.event_recorder import Regarding

REPLICA_SET = Regarding("apps/v1", "ReplicaSet", "ns", "web-1", "rs")
JOB = Regarding("batch/v1", "Job", "ns", "nightly-1", "job")


class Read:
    """A client that answers GETs, and counts them."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer, self.asked = answer, 0

    def get(self, _: Resource, *__: str) -> dict[str, Any]:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def owned_by(uid: str, kind: str, name: str, api_version: str) -> dict[str, Any]:
    reference = {"kind": kind, "name": name, "uid": "above", "apiVersion": api_version, "controller": True}
    return {"metadata": {"uid": uid, "ownerReferences": [reference]}}


def test_a_deployment_has_the_events_of_its_replica_set_and_is_looked_up_once() -> None:
    client = Read(owned_by("rs", "Deployment", "web", "apps/v1"))
    described = DescribedOwners(cast("Client", client))
    for _ in range(2):
        assert described(REPLICA_SET) == (Regarding("apps/v1", "Deployment", "ns", "web", "above"),)
    assert client.asked == 1


def test_what_another_namespace_calls_by_the_same_uid_changes_nothing() -> None:
    client = Read(NotFound(404, "NotFound", "none"))
    described = DescribedOwners(cast("Client", client))
    stranger = replace(REPLICA_SET, namespace="theirs")
    assert described(stranger) == (stranger,)
    client.answer = owned_by("rs", "Deployment", "web", "apps/v1")
    assert described(REPLICA_SET) == (Regarding("apps/v1", "Deployment", "ns", "web", "above"),)
    assert described(stranger) == (stranger,)


def test_a_job_has_its_events_and_its_cron_job_too() -> None:
    client = Read(owned_by("job", "CronJob", "nightly", "batch/v1"))
    above = Regarding("batch/v1", "CronJob", "ns", "nightly", "above")
    assert DescribedOwners(cast("Client", client))(JOB) == (JOB, above)


@pytest.mark.parametrize(
    "answer",
    [
        {"metadata": {"uid": "rs"}},
        owned_by("another", "Deployment", "web", "apps/v1"),
        {"metadata": {"uid": "rs", "ownerReferences": "none"}},
        Forbidden(403, "Forbidden", "no"),
        NotFound(404, "NotFound", "gone"),
    ],
    ids=["nobody above it", "another of its name", "malformed", "may not be read", "gone"],
)
def test_a_controller_that_cannot_be_read_or_that_nobody_owns_has_its_events_itself(answer: Any) -> None:
    assert DescribedOwners(cast("Client", Read(answer)))(REPLICA_SET) == (REPLICA_SET,)


def test_nothing_is_read_about_other_objects() -> None:
    pod, client = Regarding("v1", "Pod", "ns", "p", "p"), Read({})
    assert DescribedOwners(cast("Client", client))(pod) == (pod,)
    assert client.asked == 0
