"""What tests of several rooms share: one sandbox for the whole run, and work that begins with it."""

from collections.abc import Iterator

import pytest
from tests.early import Early

from topomend.sandbox import NodeSpec, Sandbox


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin the early work of the tests that will run; all of it ends with the run."""
    if session.config.option.collectonly:
        return
    early: set[Early] = {mark.args[0] for item in session.items for mark in item.iter_markers("early")}
    for each in early:
        session.config.add_cleanup(each.end)
        each.begin()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Sandbox]:
    """A real cluster of three NUMA machines.

    ``wide``: 4 NUMA nodes in 2 sockets, 32 CPUs, restricted. ``split``: 2 NUMA nodes in one socket, 8 CPUs, a GPU on
    each, single-numa-node. ``pods``: 2 NUMA nodes in 2 sockets, 16 CPUs, single-numa-node for whole pods. Tests that
    use it leave no pods behind.
    """
    nodes = [
        NodeSpec.of_shape(
            "wide", "sockets:2 numa:2 cores:4 threads:2 memory:16Gi", topology_manager_policy="restricted"
        ),
        NodeSpec.of_shape(
            "split",
            "sockets:1 numa:2 cores:4 threads:1 memory:8Gi device:vendor.com/gpu@0=1,1=1",
            topology_manager_policy="single-numa-node",
        ),
        NodeSpec.of_shape(
            "pods",
            "sockets:2 numa:1 cores:4 threads:2 memory:8Gi",
            topology_manager_policy="single-numa-node",
            topology_manager_scope="pod",
        ),
    ]
    with Sandbox.up(nodes, audit=True, on_progress=print) as sandbox:
        yield sandbox
