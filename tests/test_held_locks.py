"""The check that no request goes out under a lock finds one that does."""

import threading

import pytest
from tests.clusters import Cluster
from tests.held_locks import no_request_under_a_lock

pytestmark = pytest.mark.cluster


def test_a_request_under_a_lock_is_found(two_nodes: Cluster) -> None:
    with pytest.raises(AssertionError, match=r"GET /version under the lock of .*test_held_locks\.py"):
        _ask_under_a_lock(two_nodes)


def _ask_under_a_lock(cluster: Cluster) -> None:
    with no_request_under_a_lock():
        lock = threading.Lock()
        cluster.client.version()
        with lock:
            cluster.client.version()


def test_a_request_after_a_lock_or_under_that_of_another_thread_is_fine(two_nodes: Cluster) -> None:
    with no_request_under_a_lock() as found:
        lock = threading.Lock()
        with lock:
            thread = threading.Thread(target=two_nodes.client.version)
            thread.start()
            thread.join(30)
        two_nodes.client.version()
    assert not found
