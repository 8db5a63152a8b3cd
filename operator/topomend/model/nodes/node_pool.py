"""Pools of nodes, as providers and autoscalers name them by labels."""

from collections.abc import Iterable, Mapping

from topomend.model.nodes.node import Node

POOL_LABELS = (
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "cluster.x-k8s.io/pool-name",
    "node.cluster.x-k8s.io/machinepool",
)
"""The first of these labels that a node has names its pool."""

NAMING_LABELS = (*POOL_LABELS, "node.kubernetes.io/instance-type")
"""The first of these labels that a node has names its pool: where nobody made pools, machines of one type are one."""

NO_POOL = "none"
"""The pool of nodes without any of these labels."""

OTHERS = "others"
"""Pools beyond MAX_POOLS, together."""

MAX_POOLS = 50
"""How many pools are told apart, the first by name: a node's labels are chosen by its kubelet."""


def pools_of(nodes: Iterable[Node]) -> Mapping[str, str]:
    """The pool of each node, by the node's name."""
    named = {node.name: next((node.labels[key] for key in NAMING_LABELS if node.labels.get(key)), "") for node in nodes}
    shown = set(sorted(set(named.values()))[:MAX_POOLS])
    return {name: (pool or NO_POOL) if pool in shown else OTHERS for name, pool in named.items()}
