"""The cluster of the tests that reconcile single pods. No request of any of them may go out under a lock."""

from collections.abc import Iterator

import pytest
from tests.clusters import Cluster
from tests.held_locks import no_request_under_a_lock


@pytest.fixture
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    """Two nodes; the test's pods and records are removed."""
    yield two_nodes
    two_nodes.remove_all()


@pytest.fixture(autouse=True)
def _no_request_under_a_lock() -> Iterator[None]:
    with no_request_under_a_lock():
        yield
