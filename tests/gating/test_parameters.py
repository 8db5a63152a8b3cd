"""The objects that the gating policies read: there as long as an operator's pod is, on a real API server."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest
from deploy.manifests import crd
from tests.clusters import CRDS, Cluster
from tests.refused_pods import gated
from tests.waiting import eventually

from topomend.gating import parameters as parameters_module
from topomend.gating.parameters import RENEW_SECONDS, VALID_SECONDS, Parameters
from topomend.kube.client import Client
from topomend.kube.errors import AlreadyExists, NotFound, NotPermitted
from topomend.kube.resources import BRAKES, STEERINGS, Resource
from topomend.model.pods.scheduling import WatchedPod
from topomend.runtime.timestamp import timestamp
from topomend.wire.group import BRAKE, BRAKE_NAME, STEERING, STEERING_NAME

pytestmark = pytest.mark.cluster

NAMESPACE = "default"
BOTH = ((BRAKES, BRAKE_NAME), (STEERINGS, STEERING_NAME))


@pytest.fixture
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    """With the kind of the brake, whose policy other tests install."""
    with suppress(AlreadyExists):
        two_nodes.client.create(CRDS, crd("brakes"))
    eventually("brakes to be served", lambda: [two_nodes.client.list(BRAKES)])
    yield two_nodes
    for resource, name in BOTH:
        delete(two_nodes, resource, name)
    two_nodes.remove_all()


def delete(cluster: Cluster, resource: Resource, name: str) -> None:
    with suppress(NotFound):
        uid = cluster.client.get(resource, name, NAMESPACE)["metadata"]["uid"]
        cluster.client.delete(resource, name, NAMESPACE, uid=uid)


def parameters_of(client: Client, pod_name: str = "", pod_uid: str = "", namespace: str = NAMESPACE) -> Parameters:
    return Parameters(client, namespace, pod_name, pod_uid, found=lambda *_: None)


def of_pod(cluster: Cluster, pod: WatchedPod) -> Parameters:
    return parameters_of(cluster.client, pod.name, pod.uid)


def metadata(cluster: Cluster) -> list[dict[str, Any]]:
    return [cluster.client.get(resource, name, NAMESPACE)["metadata"] for resource, name in BOTH]


def owners(cluster: Cluster) -> list[list[str]]:
    return [[owner["uid"] for owner in content.get("ownerReferences", [])] for content in metadata(cluster)]


def test_every_operators_pod_owns_both_objects_and_nothing_is_written_again(cluster: Cluster) -> None:
    one, other = gated(cluster, "one"), gated(cluster, "other")
    first, second = of_pod(cluster, one), of_pod(cluster, other)
    assert not first.ensured
    first.ensure()
    assert first.ensured
    second.ensure()
    assert owners(cluster) == [[one.uid, other.uid]] * 2
    named = {"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": one.uid}
    assert [content["ownerReferences"][0] for content in metadata(cluster)] == [named, named]
    written = metadata(cluster)
    first.ensure()
    second.ensure()
    assert metadata(cluster) == written


def test_an_object_that_somebody_deletes_is_created_again(cluster: Cluster) -> None:
    pod = gated(cluster, "one")
    parameters = of_pod(cluster, pod)
    parameters.ensure()
    delete(cluster, BRAKES, BRAKE_NAME)
    parameters.ensure()
    assert owners(cluster) == [[pod.uid]] * 2


def test_objects_of_an_operator_outside_of_a_pod_have_no_owner(cluster: Cluster) -> None:
    parameters_of(cluster.client).ensure()
    assert owners(cluster) == [[], []]


def test_what_the_api_server_does_not_allow_is_logged_once_and_stops_nobody(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    parameters = parameters_of(cluster.client, namespace="nowhere")
    parameters.ensure()
    parameters.ensure()
    assert parameters.ensured
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == len(BOTH)
    assert all("cannot be created or updated, so its policy gates no pods: " in warning for warning in warnings)


def test_without_an_answer_nothing_is_ensured(cluster: Cluster) -> None:
    pod = gated(cluster, "one")
    parameters = parameters_of(cluster.client.writing_while(lambda: False), pod.name, pod.uid)
    with pytest.raises(NotPermitted):
        parameters.ensure()
    assert not parameters.ensured


def in_seconds(seconds: float) -> str:
    return timestamp(datetime.now(UTC) + timedelta(seconds=seconds))


def valid_until(cluster: Cluster) -> list[str]:
    return [cluster.client.get(resource, name, NAMESPACE)["validUntil"] for resource, name in BOTH]


def test_only_an_operator_that_acts_renews_both_objects_and_not_at_every_check(cluster: Cluster) -> None:
    parameters = parameters_of(cluster.client)
    parameters.ensure()
    assert all(until > in_seconds(VALID_SECONDS - RENEW_SECONDS) for until in valid_until(cluster))
    written = metadata(cluster)
    parameters.ensure()
    assert metadata(cluster) == written
    for resource, name in BOTH:
        cluster.client.merge(resource, name, {"validUntil": "2026-01-01T00:00:00Z"}, NAMESPACE)
    parameters.ensure(renews=False)
    assert valid_until(cluster) == ["2026-01-01T00:00:00Z"] * 2
    parameters.ensure()
    assert all(until > in_seconds(VALID_SECONDS - RENEW_SECONDS) for until in valid_until(cluster))


def clock_that_is_wrong_by(seconds: float) -> type[datetime]:
    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(seconds=seconds)

    return Wrong


def test_objects_whose_writes_the_api_server_does_not_note_are_renewed_as_long_as_they_exist(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It notes none of an object that a user created empty: the time of its creation is not that of a later write."""
    for resource, name in BOTH:
        kind = {"apiVersion": resource.api_version, "kind": BRAKE if resource is BRAKES else STEERING}
        made = cluster.client.create(resource, kind | {"metadata": {"name": name}}, NAMESPACE)
        assert "managedFields" not in made["metadata"]
    monkeypatch.setattr(parameters_module, "datetime", clock_that_is_wrong_by(3600))  # as if an hour had passed
    parameters = parameters_of(cluster.client)
    for _ in range(3):
        parameters.ensure()
        assert all(until > in_seconds(3600 + VALID_SECONDS - RENEW_SECONDS) for until in valid_until(cluster))


@pytest.mark.parametrize("wrong", [-600.0, 3600.0], ids=["ten minutes slow", "an hour fast"])
def test_a_wrong_clock_is_put_right_by_the_api_server_s(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wrong: float
) -> None:
    parameters = parameters_of(cluster.client)
    with monkeypatch.context() as patched:
        patched.setattr(parameters_module, "datetime", clock_that_is_wrong_by(wrong))
        for _ in range(3):
            parameters.ensure()
        low, high = in_seconds(VALID_SECONDS - RENEW_SECONDS), in_seconds(VALID_SECONDS + RENEW_SECONDS)
        assert all(low < until < high for until in valid_until(cluster))
    for _ in range(3):  # the clock jumps: it is right again
        parameters.ensure()
    low, high = in_seconds(VALID_SECONDS - RENEW_SECONDS), in_seconds(VALID_SECONDS + RENEW_SECONDS)
    assert all(low < until < high for until in valid_until(cluster))
    (line,) = [record.getMessage() for record in caplog.records if "the clock of this machine" in record.getMessage()]
    assert "put it right" in line
