"""What tests of several rooms share: two sandboxes for the whole run, the operator, the order of the tests."""

import gc
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.clusters import Cluster, agents_on, brake_on, two_node_cluster
from tests.kills import traced
from tests.operator_process import Operator
from tests.order import in_turn
from tests.seeds import SEED

from topomend.sandbox import NodeSpec, Sandbox

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
"""How long an example takes, by the clock, says more of the machine than of what is tried."""


def pytest_report_header() -> str:
    """The seed of the run's random tests."""
    return f"seed {SEED}"


_killer_of = pytest.StashKey[Callable[[int], str]]()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """Have Python look for garbage among what tests make, not in the ten thousand tests themselves.

    They stay until the end, and each look through all of them takes longer than most tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_sessionstart(session: pytest.Session) -> Generator[None]:
    """Have the one process that starts the others trace who kills them."""
    if session.config.getoption("numprocesses", default=None):
        tracing = ExitStack()
        session.config.stash[_killer_of] = tracing.enter_context(traced())
        session.config.add_cleanup(tracing.close)
    return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Say how a process of pytest-xdist ended that nobody ended: a negative number is that of a signal."""
    if error:
        code, process = None, node.gateway._io.popen  # execnet tells it nowhere
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(10)
        counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        print(f"{node.gateway.id} ended with {code}; the kernel has killed {counts.get('oom_kill')} for lack of memory")
        if killer_of := node.config.stash.get(_killer_of, None):
            print(killer_of(process.pid))


SHARED = ("two_nodes", "cluster", "lopsided")
"""The fixtures that many modules share."""


@pytest.hookimpl(tryfirst=True)  # xdist's own hook reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of one sandbox in one process and in one go, in the order of ``tests/order.py``.

    Else several processes (``make test``) would start it, and the last of them would still run when all others have
    ended.
    """
    groups = dict[str, list[pytest.Item]]()
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group_of(item)))
        groups.setdefault(_group_of(item), []).append(item)
    waits = {name: any(item.get_closest_marker("cluster") for item in group) for name, group in groups.items()}
    items[:] = [item for name in in_turn(waits) for item in groups[name]]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop where xdist ignores the groups: tests would meet clusters as other tests left them, in another order."""
    if session.config.getoption("loadgroup", default=False) and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("pytest-xdist ignores the groups of tests; see the pinned pytest in pyproject.toml")


def _group_of(item: pytest.Item) -> str:
    """The group that the test names, the sandbox that it shares with others, or its own module.

    ``two_nodes`` has more tests than one process has time for: those of the controller have one of their own.
    """
    if named := item.get_closest_marker("xdist_group"):
        return str(named.args[0])
    fixture, module = _shared_fixture(item), item.nodeid.partition("::")[0]
    if fixture == "two_nodes":
        return f"{fixture} of controller" if module.startswith("tests/controller/") else f"{fixture} of others"
    return fixture or module


def _shared_fixture(item: pytest.Item) -> str:
    fixtures = getattr(item, "fixturenames", ())
    return next((name for name in SHARED if name in fixtures), "")


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
    """Start the operator, against the API server or whatever ``kubeconfig`` names; ended with the test.

    ``constants`` as in ``Operator``.
    """
    started: list[Operator] = []

    def start(
        *flags: str,
        kubeconfig: Path = two_nodes.sandbox.kubeconfig,
        constants: Mapping[str, float] | None = None,
    ) -> Operator:
        log = tmp_path / f"operator-{len(started)}.log"
        started.append(Operator(kubeconfig, log, *flags, constants=constants))
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
