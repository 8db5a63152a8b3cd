"""Digests stand for the content of machines and settings, so that equal nodes share what replay computes for them."""

from dataclasses import fields, replace
from typing import Any

import pytest

from topomend.model.kubelet import KubeletSettings, MemoryReservation
from topomend.model.machine import PCIDevice
from topomend.model.shape import parse_shape

MACHINE = parse_shape("numa:2 cores:4 memory:8Gi").machine()

SETTINGS = KubeletSettings(
    cpu_manager_policy_options={"full-pcpus-only": "true", "strict-cpu-reservation": "false"}, reserved_cpus=1
)

OTHER: dict[str, Any] = {
    "version": "v1.30.0",
    "topology_manager_policy": "restricted",
    "topology_manager_scope": "pod",
    "topology_manager_policy_options": {"prefer-closest-numa-nodes": "true"},
    "cpu_manager_policy": "static",
    "cpu_manager_policy_options": {"full-pcpus-only": "false", "strict-cpu-reservation": "false"},
    "memory_manager_policy": "Static",
    "reserved_cpus": None,
    "reserved_cpu_millis": 500,
    "reserved_memory": (MemoryReservation(0, "memory", 1 << 20),),
    "feature_gates": {"PodLevelResources": False},
}


@pytest.mark.parametrize("name", [setting.name for setting in fields(KubeletSettings)])
def test_every_setting_changes_the_digest(name: str) -> None:
    assert replace(SETTINGS, **{name: OTHER[name]}).digest != SETTINGS.digest


def test_the_order_of_options_does_not_change_the_digest() -> None:
    options = dict(reversed(list(SETTINGS.cpu_manager_policy_options.items())))
    assert replace(SETTINGS, cpu_manager_policy_options=options).digest == SETTINGS.digest


def test_a_machines_numa_nodes_and_cores_change_its_digest_and_nothing_else_does() -> None:
    memory = replace(MACHINE.numa_nodes[0], memory=MACHINE.numa_nodes[0].memory + 1)
    assert replace(MACHINE, numa_nodes=(memory, *MACHINE.numa_nodes[1:])).digest != MACHINE.digest
    assert replace(MACHINE, cores=MACHINE.cores[1:]).digest != MACHINE.digest
    assert replace(MACHINE, pci_devices=(PCIDevice("0000:00:01.0", 0x030000, 1, 2),)).digest == MACHINE.digest
