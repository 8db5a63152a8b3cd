"""Which devices the plugin prefers: a choice that repeats."""

from pathlib import Path

from topomend.model.nodes.node_state import Device
from topomend.sandbox.devices.device_plugin import Plugin

IDS = ["gpu-1-0", "gpu-0-10", "gpu-0-9", "gpu-0-2"]
PLUGIN = Plugin(Path("unused"), "vendor.com/gpu", [Device("vendor.com/gpu", one, (int(one[4]),)) for one in IDS])


def test_the_lowest_numa_node_and_number_come_first() -> None:
    assert PLUGIN.preferred(IDS, [], 3) == ["gpu-0-2", "gpu-0-9", "gpu-0-10"]


def test_what_must_be_included_comes_before_all() -> None:
    assert PLUGIN.preferred(IDS, ["gpu-1-0"], 2) == ["gpu-1-0", "gpu-0-2"]


def test_only_what_is_available_is_chosen() -> None:
    assert PLUGIN.preferred(["gpu-1-0", "gpu-0-10"], [], 2) == ["gpu-0-10", "gpu-1-0"]
