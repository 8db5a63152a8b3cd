"""CPU seconds by pool: of recorded /proc/stat files, and of the CPUs that this test keeps busy."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from prometheus_client import CollectorRegistry

import topomend
from topomend.agent.cpu_seconds import EXCLUSIVE, MODES, RESERVED, SHARED, CPUSeconds, pools_of, read_times
from topomend.discover.host import read_host
from topomend.model.bitmask import mask_of, members
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import ContainerAllocation, NodeState, PodAllocation
from topomend.model.shapes.shape import parse_shape

TICKS = os.sysconf("SC_CLK_TCK")

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(topomend.__file__).parents[1])}

Record = Callable[[Mapping[int, tuple[int, int]]], None]


def node(exclusive: int = 0, shape: str = "numa:2 cores:2", **settings: object) -> NodeState:
    """Two NUMA nodes, CPUs 0-1 and 2-3; CPU 0 is reserved."""
    pods = (PodAllocation("default", "p", containers=(ContainerAllocation("c", cpus=exclusive),)),) if exclusive else ()
    kubelet = KubeletSettings(**{"cpu_manager_policy": "static", "reserved_cpus": 0b0001, **settings})  # type: ignore[arg-type]
    return NodeState("n", parse_shape(shape).machine(), kubelet, pods=pods)


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Write a /proc/stat: of each CPU its user and idle seconds."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path), raising=False)

    def write(seconds: Mapping[int, tuple[int, int]]) -> None:
        lines = [
            f"cpu{cpu} {user * TICKS} 0 0 {idle * TICKS} 0 0 0 0 {user * TICKS} 0"
            for cpu, (user, idle) in seconds.items()
        ]
        head = "cpu  9 9 9 9 9 9 9 9 9 9"
        (tmp_path / "stat").write_text("\n".join([head, *lines, "intr 1 2 3", "ctxt 4", "btime 5", ""]))

    return write


def spent(counted: CPUSeconds) -> dict[tuple[str, str, str], float]:
    """The counters that are not zero."""
    registry = CollectorRegistry()
    registry.register(counted)
    return {
        (sample.labels["numa"], sample.labels["pool"], sample.labels["mode"]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.value
    }


def test_every_cpu_is_in_one_pool_of_its_numa_node() -> None:
    assert pools_of(node(exclusive=0b0110)) == {
        (0, EXCLUSIVE): 0b0010,
        (0, RESERVED): 0b0001,
        (0, SHARED): 0,
        (1, EXCLUSIVE): 0b0100,
        (1, RESERVED): 0,
        (1, SHARED): 0b1000,
    }


def test_reserved_by_an_amount_are_the_cpus_that_the_static_policy_picks() -> None:
    state = node(reserved_cpus=None, reserved_cpu_millis=1500)
    assert pools_of(state)[0, RESERVED] == 0b0011


def test_what_was_spent_before_the_agent_started_is_not_counted(record: Record) -> None:
    record({0: (10, 100), 1: (20, 100), 2: (30, 100), 3: (40, 100)})
    counted = CPUSeconds()
    counted.show(node(exclusive=0b0010))
    assert spent(counted) == {}
    record({0: (11, 100), 1: (22, 101), 2: (33, 100), 3: (44, 102)})
    assert spent(counted) == {
        ("0", RESERVED, "user"): 1.0,
        ("0", EXCLUSIVE, "user"): 2.0,
        ("0", EXCLUSIVE, "idle"): 1.0,
        ("1", SHARED, "user"): 7.0,
        ("1", SHARED, "idle"): 2.0,
    }


def test_a_cpu_that_changes_pools_leaves_behind_what_it_spent_there(record: Record) -> None:
    record({0: (0, 0), 1: (100, 0), 2: (0, 0), 3: (0, 0)})
    counted = CPUSeconds()
    counted.show(node())
    record({0: (0, 0), 1: (103, 0), 2: (0, 0), 3: (0, 0)})
    counted.show(node(exclusive=0b0010))
    record({0: (0, 0), 1: (108, 0), 2: (0, 0), 3: (0, 0)})
    assert spent(counted) == {("0", SHARED, "user"): 3.0, ("0", EXCLUSIVE, "user"): 5.0}
    counted.show(node())
    record({0: (0, 0), 1: (109, 0), 2: (0, 0), 3: (0, 0)})
    assert spent(counted) == {("0", SHARED, "user"): 4.0, ("0", EXCLUSIVE, "user"): 5.0}


def test_the_kernels_steps_back_are_no_seconds(record: Record) -> None:
    record({0: (5, 50), 1: (0, 0), 2: (0, 0), 3: (0, 0)})
    counted = CPUSeconds()
    counted.show(node())
    record({0: (6, 49), 1: (0, 0), 2: (0, 0), 3: (0, 0)})
    assert spent(counted) == {("0", RESERVED, "user"): 1.0}
    record({0: (6, 52), 1: (0, 0), 2: (0, 0), 3: (0, 0)})
    assert spent(counted) == {("0", RESERVED, "user"): 1.0, ("0", RESERVED, "idle"): 3.0}


def test_cpus_are_known_by_their_ids_where_one_of_them_is_offline(record: Record) -> None:
    """CPU 1 is offline: the third line is CPU 3, of the other NUMA node."""
    state = node()
    online = replace(state.machine, cores=tuple(core for core in state.machine.cores if core.threads != 0b0010))
    record({0: (0, 0), 2: (0, 0), 3: (0, 0)})
    counted = CPUSeconds()
    counted.show(replace(state, machine=online))
    record({0: (0, 0), 2: (0, 0), 3: (7, 0)})
    assert spent(counted) == {("1", SHARED, "user"): 7.0}
    record({0: (0, 0), 1: (90, 0), 2: (0, 0), 3: (8, 0)})  # it comes back before the agent has seen it
    assert spent(counted) == {("1", SHARED, "user"): 7.0}
    counted.show(state)
    record({0: (0, 0), 1: (91, 0), 2: (0, 0), 3: (9, 0)})
    assert spent(counted) == {("0", SHARED, "user"): 1.0, ("1", SHARED, "user"): 8.0}


def test_a_stat_file_of_other_cpus_than_the_machines_is_told_once_and_not_counted(
    record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    record({0: (0, 0), 1: (0, 0)})
    counted = CPUSeconds()
    with caplog.at_level(logging.WARNING):
        counted.show(node())
        record({0: (5, 0), 1: (5, 0)})
        assert spent(counted) == {}
        assert spent(counted) == {}
    assert [line.getMessage() for line in caplog.records] == [
        "no CPU seconds are counted: /proc/stat shows CPUs 0-1, but the machine has 0-3"
    ]


def test_a_stat_file_that_cannot_be_read_stops_the_counters_and_nothing_else(record: Record, tmp_path: Path) -> None:
    record({0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0)})
    counted = CPUSeconds()
    counted.show(node())
    (tmp_path / "stat").unlink()
    assert spent(counted) == {}
    record({0: (2, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0)})
    assert spent(counted) == {("0", RESERVED, "user"): 2.0}


def test_all_series_are_there_from_the_start() -> None:
    counted = CPUSeconds()
    counted.show(node())
    registry = CollectorRegistry()
    registry.register(counted)
    samples = [sample for family in registry.collect() for sample in family.samples]
    assert len(samples) == 2 * 3 * len(MODES)
    assert {sample.name for sample in samples} == {"topomend_agent_numa_cpu_seconds_total"}


def test_the_cpus_of_this_machine_are_counted_while_one_is_kept_busy() -> None:
    machine = read_host(Path("/")).machine
    busy = next(members(mask_of(os.sched_getaffinity(0))))
    state = NodeState("here", machine, KubeletSettings(cpu_manager_policy="static", reserved_cpus=0))
    pod = PodAllocation("default", "p", containers=(ContainerAllocation("c", cpus=1 << busy),))
    assert mask_of(read_times()) == machine.cpus
    counted = CPUSeconds()
    counted.show(replace(state, pods=(pod,)))
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {busy})
    try:
        until = time.thread_time() + 1.0  # of this thread alone, which alone is on that CPU
        while time.thread_time() < until:
            pass
    finally:
        os.sched_setaffinity(0, allowed)
    seconds = spent(counted)
    numa = next(number for number, cpus in machine.cpus_of_numa_node.items() if cpus >> busy & 1)
    # The kernel counts whole ticks, in part for whoever else wants this CPU.
    assert sum(seconds.get((str(numa), EXCLUSIVE, mode), 0.0) for mode in ("user", "nice", "system")) >= 0.5


def test_an_agent_without_metrics_loads_neither_psutil_nor_the_prometheus_library() -> None:
    script = (
        "import sys, topomend.agent.loop, topomend.cli.agent;"
        "print([name for name in ('psutil', 'prometheus_client') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
