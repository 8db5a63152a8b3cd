"""What tests of several rooms share: two sandboxes for the whole run, the operator, the order of the tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clusters import Cluster, agents_on, brake_on, two_node_cluster
from tests.operator_process import Operator
from tests.seeds import SEED

from topomend.sandbox import NodeSpec, Sandbox


def pytest_report_header() -> str:
    """The seed of the run's random tests."""
    return f"seed {SEED}"


SHARED = ("two_nodes", "cluster", "lopsided")
"""The fixtures that many modules share, the slowest to start and to use first."""


@pytest.hookimpl(tryfirst=True)  # xdist's own hook reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of one sandbox in one process and in one go, the longest first.

    Else two processes (``make test``) would start it twice, and the last of them would still run when all others have
    ended.
    """
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group_of(item)))
    items.sort(key=lambda item: SHARED.index(group) if (group := _group_of(item)) in SHARED else len(SHARED))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop where xdist ignores the groups: tests would meet clusters as other tests left them, in another order."""
    if session.config.getoption("loadgroup", default=False) and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("pytest-xdist ignores the groups of tests; see the pinned pytest in pyproject.toml")


def _group_of(item: pytest.Item) -> str:
    """The sandbox that the test shares with others, or its own module."""
    fixtures = getattr(item, "fixturenames", ())
    return next((name for name in SHARED if name in fixtures), item.nodeid.partition("::")[0])


@pytest.fixture(scope="session")
def cluster() -> Iterator[Sandbox]:
    """A real cluster of three NUMA machines.

    ``wide``: 4 NUMA nodes in 2 sockets, 32 CPUs, restricted. ``split``: 2 NUMA nodes in one socket, 8 CPUs, a GPU on
    each, single-numa-node. ``pods``: 2 NUMA nodes in 2 sockets, 16 CPUs, two NICs by claim on the second one,
    single-numa-node for whole pods. Tests that use it leave no pods behind.
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
            "sockets:2 numa:1 cores:4 threads:2 memory:8Gi dra:vendor.com/nic@1=2",
            topology_manager_policy="single-numa-node",
            topology_manager_scope="pod",
        ),
    ]
    with Sandbox.up(nodes, audit=True, on_progress=print) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def two_nodes() -> Iterator[Cluster]:
    """One sandbox for all tests of the operator."""
    with two_node_cluster() as cluster:
        yield cluster


@pytest.fixture
def fragmented(two_nodes: Cluster) -> Iterator[Cluster]:
    """numa-a has three CPUs free, at most two on one NUMA node; numa-b is empty; both are published."""
    two_nodes.fragment()
    yield two_nodes
    two_nodes.clear()


@pytest.fixture
def start_operator(two_nodes: Cluster, tmp_path: Path) -> Iterator[Callable[..., Operator]]:
    """Start the operator, against the API server or whatever ``kubeconfig`` names; ended with the test."""
    started: list[Operator] = []

    def start(*flags: str, kubeconfig: Path = two_nodes.sandbox.kubeconfig, module: str = "") -> Operator:
        started.append(Operator(kubeconfig, tmp_path / f"operator-{len(started)}.log", *flags, module=module))
        return started[-1]

    yield start
    for operator in started:
        if operator.process.poll() is None:
            operator.terminate()
        print(f"{operator.log.name}:\n{operator.text()}")  # shown where the test fails


@pytest.fixture
def brake(two_nodes: Cluster) -> Iterator[None]:
    """The brake's policy as it is deployed, its binding, and the operator's namespace."""
    with brake_on(two_nodes):
        yield


@pytest.fixture(scope="module")
def brake_of_module(two_nodes: Cluster) -> Iterator[None]:
    """The same for all tests of a module."""
    with brake_on(two_nodes):
        yield


@pytest.fixture
def agents(two_nodes: Cluster) -> Iterator[None]:
    """An agent beside each kubelet, as the administrator."""
    with agents_on(two_nodes):
        yield
