"""The cluster of the tests that reconcile single pods."""

from collections.abc import Iterator

import pytest
from tests.clusters import Cluster


@pytest.fixture
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    """Two nodes; the test's pods and records are removed."""
    yield two_nodes
    two_nodes.remove_all()
