"""Whichever request fails while a pod is reconciled, no node stays taken for a pod that does not go there."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from tests.builders import guaranteed_pod, running
from tests.clusters import Cluster
from tests.intercepted import Intercepted
from tests.reconcile.parts import EMPTY_B, Parts
from tests.reconcile.test_reconciler import LARGE_B, Operator
from tests.refused_pods import gated, gates, refused

from topomend.kube.errors import APIError, NotPermitted, ServerFailed, TooManyRequests, Unanswered
from topomend.kube.errors import refused as answer
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.gated.gated_pods import GatedPods
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import DONE
from topomend.runtime.backoff import Backoff, Exponential
from topomend.wire.pods.pod_group import KUEUE_SIZE, LABELS

pytestmark = pytest.mark.cluster

MAY_HAVE_TAKEN_EFFECT = (Unanswered, ServerFailed)

ERRORS: dict[str, Callable[[], APIError]] = {
    "forbidden": lambda: answer(403, b""),
    "too many requests": lambda: TooManyRequests(429, "TooManyRequests", "later", 1.0),
    "failed": lambda: ServerFailed(500, "InternalError", "no"),
    "unanswered": lambda: Unanswered("no answer within 15 s"),
    "does not lead": lambda: NotPermitted("another operator leads"),
}

MOST_REQUESTS = 40
"""More than any of these takes."""


class FailsOnce:
    """Lets the requests of number ``number`` and later fail or pass: that one fails once."""

    def __init__(self, number: int, error: Callable[[], APIError]) -> None:
        self.number, self.seen, self.failed, self._error = number, 0, False, error

    def __call__(self, _: str, __: str) -> None:
        self.seen += 1
        if self.seen == self.number and not self.failed:
            self.failed = True
            raise self._error()


@pytest.fixture
def client(cluster: Cluster) -> Intercepted:
    return Intercepted(cluster.client)


@pytest.fixture
def behind(cluster: Cluster, client: Intercepted) -> Cluster:
    """The cluster by way of the client whose requests fail."""
    return replace(cluster, client=client)


def _group(cluster: Cluster, name: str, pods: int) -> list[WatchedPod]:
    labels, annotations = {LABELS["kueue.x-k8s.io"]: name}, {KUEUE_SIZE: str(pods)}
    return [gated(cluster, f"{name}-{number}", 1, labels=labels, annotations=annotations) for number in range(pods)]


def _error_of(action: Callable[[], object]) -> APIError | None:
    try:
        action()
    except APIError as error:
        return error
    return None


@pytest.mark.parametrize("error", ERRORS.values(), ids=list(ERRORS))
@pytest.mark.parametrize("size", [1, 3], ids=["alone", "in a group"])
def test_a_gated_pod_holds_no_node_after_a_request_that_fails(
    cluster: Cluster, client: Intercepted, behind: Cluster, error: Callable[[], APIError], size: int
) -> None:
    for number in range(1, MOST_REQUESTS):
        name = f"p{number}"
        pods = _group(cluster, name, size) if size > 1 else [gated(cluster, f"{name}-0", 1)]
        parts = Parts(behind, running(EMPTY_B, guaranteed_pod("low", 1)))
        gated_pods = GatedPods(
            parts.collaborators, Backoff(parts.clock, Exponential(8.0, 8.0)), lambda pod: pod, parts.reported.append
        )
        parts.watch(*pods)
        first = PodID(pods[0].namespace, pods[0].name, pods[0].uid)
        client.intercept = fails = FailsOnce(number, error)
        raised = _error_of(partial(gated_pods.reconcile, first))
        if raised:
            held = [pod.name for pod in pods if parts.assumed(pod.name) and gates(cluster, pod.name)]
            assert len(held) <= isinstance(raised, MAY_HAVE_TAKEN_EFFECT), f"request {number}: {raised}: {held}"
        client.intercept = lambda _, __: None
        if not fails.failed:
            return
        for pod in pods:
            assert gated_pods.reconcile(PodID.of(pod)) == DONE
        assert [gates(cluster, pod.name) for pod in pods] == [()] * size
        cluster.remove_all()
    pytest.fail(f"more than {MOST_REQUESTS} requests")


@pytest.mark.parametrize("error", ERRORS.values(), ids=list(ERRORS))
def test_a_refused_pod_holds_no_node_after_a_request_that_fails(
    cluster: Cluster, client: Intercepted, behind: Cluster, error: Callable[[], APIError]
) -> None:
    operator = Operator(behind, refused(cluster, "train"), LARGE_B)
    for number in range(1, MOST_REQUESTS):
        client.intercept = fails = FailsOnce(number, error)
        raised = _error_of(operator.reconcile)
        if raised:
            assert not operator.assumed(), f"request {number}: {raised}"
        if not fails.failed:
            return
    pytest.fail(f"more than {MOST_REQUESTS} requests")
