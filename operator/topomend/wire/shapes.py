"""The fields of large objects that are read of them, as types by which a decoder leaves out all others.

A list of all pods is mostly fields that nobody reads, and so are a Node, which lists its images, and a NodeTopology,
whose PCI devices admission does not need. Each field that a reader asks for has to be here: for the reader the others
are not there. Leaves decoding to ``kube``, and what the fields mean to the readers. A field of another type than here
is one of a malformed object, which is decoded as a whole.
"""

from typing import Any, TypedDict


class _OwnMetadata(TypedDict, total=False):
    name: Any
    generateName: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    labels: Any
    annotations: Any
    ownerReferences: Any
    deletionTimestamp: Any


class _Container(TypedDict, total=False):
    name: Any
    restartPolicy: Any
    resources: Any


class _ContainerStatus(TypedDict, total=False):
    name: Any
    allocatedResources: Any
    resources: Any


class _Condition(TypedDict, total=False):
    type: Any
    reason: Any


class _PodSpec(TypedDict, total=False):
    nodeName: Any
    priority: Any
    priorityClassName: Any
    initContainers: list[_Container] | None
    containers: list[_Container] | None
    resources: Any
    overhead: Any


class _PodStatus(TypedDict, total=False):
    qosClass: Any
    conditions: list[_Condition] | None
    initContainerStatuses: list[_ContainerStatus] | None
    containerStatuses: list[_ContainerStatus] | None
    nodeAllocatableResourceClaimStatuses: Any
    additionalNodeAllocatableResources: Any


class BoundPod(TypedDict, total=False):
    """A Pod of which is read what it takes of its node's totals, and what keeps it there."""

    kind: Any
    metadata: _OwnMetadata
    spec: _PodSpec
    status: _PodStatus | None


class _NodeSpec(TypedDict, total=False):
    taints: Any
    unschedulable: Any


class _NodeCondition(TypedDict, total=False):
    type: Any
    status: Any


class _NodeStatus(TypedDict, total=False):
    conditions: list[_NodeCondition] | None
    allocatable: Any
    capacity: Any
    features: Any


class ChosenNode(TypedDict, total=False):
    """A Node of which is read by what the scheduler chooses it."""

    metadata: _OwnMetadata
    spec: _NodeSpec | None
    status: _NodeStatus | None


class _Machine(TypedDict, total=False):
    numaNodes: Any
    sockets: Any
    l3Caches: Any
    cores: Any
    offlineCPUs: Any
    isolatedCPUs: Any


class _TopologyStatus(TypedDict, total=False):
    heartbeatTime: Any
    summary: Any
    machine: _Machine | None
    kubelet: Any
    devices: Any
    pods: Any
    claims: Any
    cpuPool: Any
    memory: Any
    conditions: Any


class AdmittingTopology(TypedDict, total=False):
    """A NodeTopology of which is read what admission depends on."""

    apiVersion: Any
    kind: Any
    metadata: _OwnMetadata
    status: _TopologyStatus | None
