"""A real Kubernetes cluster of made-up NUMA machines, for tests of software that cares where its pods lie.

>>> from topomend_sandbox import NodeSpec, Sandbox
>>> node = NodeSpec.of_shape("worker", "numa:4 cores:4 memory:4Gi", topology_manager_policy="single-numa-node")
>>> len(node.machine.numa_nodes), node.kubelet.cpu_manager_policy
(4, 'static')

``Sandbox.up([node])`` starts the cluster and is a context manager that takes it down. This package is the front door:
the cluster is ``topomend.sandbox``, whose names may change with any version; those here, and in ``fixtures``, stay.
"""

from topomend.model.shapes.shape import InvalidShape
from topomend.sandbox import (
    ContainerResources,
    InvalidNodeSpec,
    NodeSpec,
    ProgramFailed,
    Sandbox,
    SandboxBusy,
    SandboxError,
    SandboxNode,
    SandboxUnavailable,
)

__all__ = [
    "ContainerResources",
    "InvalidNodeSpec",
    "InvalidShape",
    "NodeSpec",
    "ProgramFailed",
    "Sandbox",
    "SandboxBusy",
    "SandboxError",
    "SandboxNode",
    "SandboxUnavailable",
]
