"""Translates a case of the oracle into topomend's model, so that replay can play the same case."""

from dataclasses import replace

from verify.oracle.kubelet_oracle import Case

from topomend import library
from topomend.model.bitmask import parse_id_list
from topomend.model.condition import Summary
from topomend.model.machine import Core, HugePages, Machine, NUMANode
from topomend.model.nodes.kubelet import DEFAULT_VERSION, KubeletSettings, MemoryReservation
from topomend.model.nodes.node_state import Device, InitialContainer, NodeState, restarted
from topomend.model.pods.pod import requests_of
from topomend.model.quantity import MAX_INT64, parse_quantity, value
from topomend.wire.published.node_topology import node_topology, status_of

LIMITLESS = str(MAX_INT64)
"""An amount of which no pod can request too much."""


def library_node(case: Case) -> library.Simulation:
    """The case's node before its first step, by the library: as an agent would publish it, and its Node object.

    A case for the managers alone has no Node object. It gets one on which every pod fits.
    """
    published = node_topology("node", status_of(node_state(case), Summary()))
    return library.node(published, node_object=case.get("node") or _limitless_node(case), pods=())


def with_state(node: library.Simulation, state: NodeState) -> library.Simulation:
    """The node with other facts about its managers."""
    return replace(node, kubelet=replace(node.kubelet, state=state))


def _limitless_node(case: Case) -> Case:
    pods = (library.pod(step["admit"]).pod for step in case["steps"] if "admit" in step)
    resources = {"pods", *(resource for pod in pods for resource in requests_of(pod))}
    allocatable = dict.fromkeys(sorted(resources), LIMITLESS)
    return {"metadata": {"name": "node"}, "status": {"allocatable": allocatable}}


def node_state(case: Case) -> NodeState:
    """The case's node before its first step."""
    return NodeState("node", _machine(case["machine"]), _settings(case["kubelet"]), _devices(case))


def _machine(machine: Case) -> Machine:
    nodes = (
        NUMANode(
            node["id"],
            node["memory"],
            tuple(HugePages(pages["size"], pages["count"]) for pages in node.get("hugepages", ())),
            tuple(node.get("distances", ())),
        )
        for node in machine["numaNodes"]
    )
    cores = (
        Core(parse_id_list(core["threads"]), core["socket"], core["numaNode"], core["l3Cache"])
        for core in machine["cores"]
    )
    return Machine(tuple(nodes), tuple(cores))


def _settings(kubelet: Case) -> KubeletSettings:
    reserved = kubelet.get("reservedSystemCPUs", "")
    return KubeletSettings(
        version=kubelet.get("version", DEFAULT_VERSION),
        topology_manager_policy=kubelet["topologyManagerPolicy"],
        topology_manager_scope=kubelet["topologyManagerScope"],
        topology_manager_policy_options=kubelet.get("topologyManagerPolicyOptions", {}),
        cpu_manager_policy=kubelet["cpuManagerPolicy"],
        cpu_manager_policy_options=kubelet.get("cpuManagerPolicyOptions", {}),
        memory_manager_policy=kubelet["memoryManagerPolicy"],
        reserved_cpus=parse_id_list(reserved) if reserved else None,
        reserved_cpu_millis=parse_quantity(kubelet.get("kubeReserved", {}).get("cpu", "0")),
        reserved_memory=tuple(
            MemoryReservation(reservation["numaNode"], resource, value(parse_quantity(size)))
            for reservation in kubelet.get("reservedMemory", ())
            for resource, size in reservation["limits"].items()
        ),
        feature_gates=kubelet.get("featureGates", {}),
    )


def restarted_node(node: NodeState, step: Case) -> NodeState:
    """The node after a step ``restart``; one that finds containers is not ready yet."""
    if "found" not in step:
        return replace(node, initial_containers=None, stopped_resources=frozenset())
    found = (InitialContainer(each["podUID"], each["name"], each.get("running", False)) for each in step["found"])
    return restarted(replace(node, stopped_resources=frozenset()), found, step.get("away", ()))


def connected_node(node: NodeState, step: Case) -> NodeState:
    """The node after a step ``connect``."""
    return replace(node, stopped_resources=node.stopped_resources - set(step["connect"]))


def _devices(case: Case) -> tuple[Device, ...]:
    return tuple(
        Device(
            device["resource"],
            device["id"],
            None if device["numaNodes"] is None else tuple(device["numaNodes"]),
            not device.get("unhealthy", False),
        )
        for device in case.get("devices", ())
    )
