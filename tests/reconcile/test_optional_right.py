"""Work that needs a right which may be missing rests, and the log says so once; a denial of one object is no loss."""

import logging
from typing import Any

import pytest
from tests.clock import Clock
from tests.clusters import Cluster

from topomend.kube.errors import Forbidden, NotFound
from topomend.kube.resources import Resource
from topomend.reconcile.optional_right import OFF_SECONDS, OptionalRight

EVICTION = {"verb": "create", "version": "v1", "resource": "pods", "subresource": "eviction"}


class Server:
    """An API server that grants the right or not, or lets nobody ask."""

    def __init__(self, *, allowed: bool | None) -> None:
        self.allowed = allowed

    def create(self, _: Resource, content: dict[str, Any]) -> dict[str, Any]:
        assert content["spec"] == {"resourceAttributes": EVICTION}
        if self.allowed is None:
            raise Forbidden(403, "Forbidden", "nobody may ask")
        return {"status": {"allowed": self.allowed}}


def right(*, allowed: bool | None, clock: Clock) -> OptionalRight:
    server: Any = Server(allowed=allowed)
    return OptionalRight(server, EVICTION, log=logging.getLogger("work"), without="nothing is done", clock=clock)


@pytest.mark.parametrize("allowed", [False, None], ids=["missing", "not to be asked about"])
def test_work_without_its_right_rests_and_is_tried_again_and_the_log_says_so_once(
    allowed: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    needed = right(allowed=allowed, clock=clock)
    assert not needed.is_missing
    for _ in range(2):
        with needed.used():
            raise Forbidden(403, "Forbidden", "no")
        assert needed.is_missing
        clock.now += OFF_SECONDS
        assert not needed.is_missing
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("nothing is done: ")


@pytest.mark.parametrize("error", [NotFound(404, "NotFound", "gone"), Forbidden(403, "Forbidden", "denied")], ids=repr)
def test_another_error_is_its_callers_and_so_is_a_denial_by_admission(error: Exception) -> None:
    needed = right(allowed=True, clock=Clock())
    with pytest.raises(type(error)), needed.used():
        raise error
    assert not needed.is_missing


@pytest.mark.cluster
def test_the_api_server_says_whether_this_account_has_the_right(cluster: Cluster) -> None:
    log = logging.getLogger("work")
    needed = OptionalRight(cluster.client, EVICTION, log=log, without="nothing is done", clock=Clock())
    assert not needed.is_denied_by(Forbidden(403, "Forbidden", "denied by a policy"))
    assert not needed.is_missing
