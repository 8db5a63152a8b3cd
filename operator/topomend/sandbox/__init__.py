"""A real Kubernetes cluster of made-up NUMA machines, on one Linux machine.

Demos and tests need kubelets on many kinds of NUMA hardware. This room owns such a cluster: etcd, the API
server, the controller manager, the scheduler and kubelets run from one binary, built once, and each kubelet sees a
made-up machine and a fake container runtime. Admission, topology, device plugins and authorization are real; containers
do nothing. Flags and output are left to ``cli``. Of the other rooms only ``cli`` imports this one.
"""

from topomend.sandbox.cluster import Sandbox, SandboxNode
from topomend.sandbox.failures import ProgramFailed, SandboxBusy, SandboxError, SandboxUnavailable
from topomend.sandbox.node.node_spec import InvalidNodeSpec, NodeSpec
from topomend.sandbox.node.pod_resources import ContainerResources

__all__ = [
    "ContainerResources",
    "InvalidNodeSpec",
    "NodeSpec",
    "ProgramFailed",
    "Sandbox",
    "SandboxBusy",
    "SandboxError",
    "SandboxNode",
    "SandboxUnavailable",
]
