"""The input of ``dra_driver``: which devices of which node it offers. Written before that program starts."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from topomend.model.nodes.node_state import Device
from topomend.sandbox import layout

PLAN_FILE = "dra.json"


@dataclass(frozen=True)
class NodeDevices:
    """The devices of one node, the token of its kubelet, and the folder that is the kubelet's root directory."""

    node: str
    token: str
    kubelet: str
    devices: tuple[Device, ...]


@dataclass(frozen=True)
class Plan:
    """The API server (``authority`` is the file of its certificate), and the nodes that have such devices."""

    host: str
    port: int
    authority: str
    nodes: tuple[NodeDevices, ...]

    def write(self, folder: Path) -> None:
        """Write the plan into the sandbox's folder."""
        layout.write_private(folder / PLAN_FILE, json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> "Plan":
        """Read the plan from the sandbox's folder."""
        content = json.loads((folder / PLAN_FILE).read_text())
        return cls(**{**content, "nodes": tuple(map(_node, content["nodes"]))})


def _node(content: Any) -> NodeDevices:
    devices = (Device(**{**device, "numa_nodes": tuple(device["numa_nodes"])}) for device in content["devices"])
    return NodeDevices(**{**content, "devices": tuple(devices)})
