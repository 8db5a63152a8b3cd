"""A NodeTopology object becomes a change; a malformed one becomes a change that names the problem."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.builders import node_state, node_topology_object

from topomend.cache import changes
from topomend.cache.snapshot import Publication
from topomend.cache.topology_reader import TopologyReader
from topomend.model.condition import Condition
from topomend.model.machine import Machine, PCIDevice
from topomend.wire.document import MalformedObject
from topomend.wire.published.node_topology import read_machine

DATE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STATE = node_state()
NOT_READY = Condition("Ready", "False", "R", "why")


def test_the_heartbeat_is_read_with_its_age() -> None:
    content = node_topology_object(STATE, heartbeatTime="2026-01-02T03:04:05Z")
    heartbeat = changes.Heartbeat("2026-01-02T03:04:05Z", 90.0, 5.0)
    assert TopologyReader().published(content, DATE + timedelta(seconds=90), 5.0) == changes.Published(
        STATE, "7", "", heartbeat
    )


@pytest.mark.parametrize("time", [None, 7, "", "noon", "2026-01-02T03:04:05", "9999-99-99T00:00:00Z", ["x"]])
def test_a_heartbeat_that_is_not_a_time_is_ignored(time: object) -> None:
    change = TopologyReader().published(node_topology_object(STATE, heartbeatTime=time), DATE)
    assert isinstance(change, changes.Published)
    assert change.heartbeat is None


def test_a_node_that_is_not_ready_has_the_reason_of_its_agent() -> None:
    change = TopologyReader().published(node_topology_object(STATE, ready=NOT_READY), DATE)
    assert isinstance(change, changes.Published)
    assert change.problem == "its agent says R: why"


def test_an_object_without_status_says_that_its_agent_has_not_published_yet() -> None:
    assert TopologyReader().published({"metadata": {"name": "a"}}, DATE) == changes.Unreadable(
        "a", "its agent has not published yet"
    )


def test_a_known_version_is_not_read_again_but_its_conditions_are() -> None:
    first = TopologyReader().published(node_topology_object(STATE), DATE)
    assert isinstance(first, changes.Published)
    known = Publication(first.state, "7", confirmed="7")
    same_version = TopologyReader().published(
        node_topology_object(STATE, ready=NOT_READY, machine=None), DATE, known=known
    )
    assert isinstance(same_version, changes.Published)
    assert same_version.state is first.state
    assert same_version.problem == "its agent says R: why"
    with pytest.raises(MalformedObject, match=r"status\.machine"):
        TopologyReader().published(node_topology_object(STATE, version="8", machine=None), DATE, known=known)


def published_state(reader: TopologyReader, machine: Machine) -> changes.Published:
    change = reader.published(node_topology_object(replace(STATE, machine=machine)), DATE)
    assert isinstance(change, changes.Published)
    return change


def test_equal_machines_are_kept_once_and_without_the_parts_that_admission_does_not_read() -> None:
    machine = replace(STATE.machine, pci_devices=(PCIDevice("0000:00:01.0", 0x020000, 1, 2),))
    more_memory = tuple(replace(numa_node, memory=numa_node.memory + 1) for numa_node in machine.numa_nodes)
    reader = TopologyReader()
    first, twin = published_state(reader, machine), published_state(reader, machine)
    larger = published_state(reader, replace(machine, numa_nodes=more_memory))
    assert first.state.machine is twin.state.machine
    assert first.state.kubelet is twin.state.kubelet
    assert first.state.machine.pci_devices == ()
    assert larger.state.machine is not first.state.machine
    assert larger.state.machine.cores is first.state.machine.cores


@pytest.mark.parametrize(
    ("field", "groups"),
    [
        ("sockets", [{"id": 5, "cpus": "CPUS"}]),
        ("l3Caches", [{"id": 7, "cpus": "CPUS"}]),
        ("cores", ["CPUS"]),
        ("numaNodes", [{"id": 3, "cpus": "CPUS", "memoryBytes": 1}]),
    ],
)
def test_machines_whose_cores_differ_in_anything_share_none(field: str, groups: list[object]) -> None:
    reader = TopologyReader()
    first = reader.published(node_topology_object(STATE), DATE)
    content = node_topology_object(STATE)
    machine = content["status"]["machine"]
    cpus = ",".join(machine["cores"])
    machine[field] = json.loads(json.dumps(groups).replace("CPUS", cpus))
    if field == "cores":
        machine["numaNodes"], machine["sockets"] = [{"id": 0, "cpus": cpus}], [{"id": 0, "cpus": cpus}]
    other = reader.published(content, DATE)
    assert isinstance(first, changes.Published)
    assert isinstance(other, changes.Published)
    assert other.state.machine.cores == read_machine(content).cores != first.state.machine.cores
