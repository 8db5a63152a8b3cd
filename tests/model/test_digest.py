"""A digest stands for the content of settings, so that equal nodes share what replay computes for them."""

from dataclasses import fields, replace
from typing import Any

import pytest

from topomend.model.nodes.kubelet import KubeletSettings, MemoryReservation

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
