"""A real Kubernetes cluster of made-up NUMA machines, on one Linux machine.

etcd, the API server, the controller manager, the scheduler and kubelets of one binary, built once; each kubelet sees a
machine of its own and runs with a fake container runtime. Admission, topology, device plugins and authorization are
real; what containers do is not.
"""

from topomend.sandbox.cluster import Sandbox, SandboxNode
from topomend.sandbox.failures import ProgramFailed, SandboxBusy, SandboxError, SandboxUnavailable
from topomend.sandbox.node_spec import InvalidNodeSpec, NodeSpec

__all__ = [
    "InvalidNodeSpec",
    "NodeSpec",
    "ProgramFailed",
    "Sandbox",
    "SandboxBusy",
    "SandboxError",
    "SandboxNode",
    "SandboxUnavailable",
]
