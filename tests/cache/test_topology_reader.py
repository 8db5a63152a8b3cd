from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.cache.test_changes import STATE

from topomend.cache import changes
from topomend.cache.snapshot import Publication
from topomend.cache.topology_reader import published
from topomend.model.machine import PCIDevice
from topomend.wire.document import MalformedObject
from topomend.wire.node_topology import Condition, Summary, node_topology, status_of

DATE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def content(ready: str = "True", **status: object) -> dict[str, object]:
    made = node_topology("a", {**status_of(STATE, Summary(), (Condition("Ready", ready, "R", "why"),)), **status})
    return {**made, "metadata": {"name": "a", "resourceVersion": "7"}}


def test_the_heartbeat_is_read_with_its_age() -> None:
    found = published(content(heartbeatTime="2026-01-02T03:04:05Z"), DATE + timedelta(seconds=90), 5.0)
    assert found == changes.Published(STATE, "7", "", changes.Heartbeat("2026-01-02T03:04:05Z", 90.0, 5.0))


@pytest.mark.parametrize("time", [None, 7, "", "noon", "2026-01-02T03:04:05", "9999-99-99T00:00:00Z", ["x"]])
def test_what_is_no_time_is_no_heartbeat(time: object) -> None:
    found = published(content(heartbeatTime=time), DATE)
    assert isinstance(found, changes.Published)
    assert found.heartbeat is None


def test_a_node_that_is_not_ready_and_one_without_status_are_distinguished() -> None:
    found = published(content("False"), DATE)
    assert isinstance(found, changes.Published)
    assert found.problem == "its agent says R: why"
    unwritten = {"metadata": {"name": "a"}}
    assert published(unwritten, DATE) == changes.Unreadable("a", "its agent has not published yet")


def test_a_version_that_is_known_is_not_read_again_but_what_it_says_of_itself_is() -> None:
    first = published(content(), DATE)
    assert isinstance(first, changes.Published)
    known = Publication(first.state, "7", confirmed="7")
    broken = content("False", machine=None)
    again = published(broken, DATE, known=known)
    assert isinstance(again, changes.Published)
    assert again.state is first.state
    assert again.problem == "its agent says R: why"
    with pytest.raises(MalformedObject, match=r"status\.machine"):
        published({**broken, "metadata": {"name": "a", "resourceVersion": "8"}}, DATE, known=known)


def test_what_nodes_have_in_common_is_held_once_and_what_admission_does_not_look_at_is_not_held() -> None:
    card = PCIDevice("0000:00:01.0", 0x020000, 1, 2)
    machine = replace(STATE.machine, pci_devices=(card,))
    more_memory = replace(
        machine, numa_nodes=tuple(replace(each, memory=each.memory + 1) for each in machine.numa_nodes)
    )
    first, twin, other = (
        published(content(**status_of(replace(STATE, machine=each), Summary())), DATE)
        for each in (machine, machine, more_memory)
    )
    assert isinstance(first, changes.Published) and isinstance(twin, changes.Published)  # noqa: PT018  one thing
    assert isinstance(other, changes.Published)
    assert first.state.machine is twin.state.machine
    assert first.state.kubelet is twin.state.kubelet
    assert first.state.machine.pci_devices == ()
    assert other.state.machine is not first.state.machine
    assert other.state.machine.cores is first.state.machine.cores
