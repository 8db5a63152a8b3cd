"""Nodes and pods in a few words, and what came of an admission in one line."""

from collections.abc import Iterable, Mapping

from topomend.model.bitmask import format_id_list, parse_id_list
from topomend.model.kubelet import KubeletSettings, MemoryReservation
from topomend.model.node_state import NodeState
from topomend.model.pod import Container, ContainerKind, Pod, Resources
from topomend.model.quantity import parse_quantity
from topomend.model.shape import parse_shape
from topomend.model.verdict import Verdict
from topomend.replay.admission import admit
from topomend.replay.errors import MESSAGE_PREFIX

TWO = "sockets:2 cores:4 memory:8Gi"
"""Two NUMA nodes of four CPUs: 0-3 and 4-7."""

TWO_SMT = "sockets:2 cores:2 threads:2 memory:8Gi"
"""Two NUMA nodes of two cores with two threads each: 0,4 and 1,5, then 2,6 and 3,7."""


def node(shape: str, policy: str = "single-numa-node", **settings: object) -> NodeState:
    """A node with the static CPU policy that reserves CPU 0, unless ``settings`` say otherwise.

    ``cpu_options`` and ``options`` are texts such as ``full-pcpus-only=true``; ``memory=True`` turns the Memory Manager
    on, with 512Mi of NUMA node 0 reserved.
    """
    parsed = parse_shape(shape)
    memory = bool(settings.pop("memory", False))
    kubelet = KubeletSettings(
        topology_manager_policy=policy,
        topology_manager_scope=str(settings.pop("scope", "container")),
        topology_manager_policy_options=_pairs(settings.pop("options", "")),
        cpu_manager_policy=str(settings.pop("cpu_policy", "static")),
        cpu_manager_policy_options=_pairs(settings.pop("cpu_options", "")),
        memory_manager_policy="Static" if memory else "None",
        reserved_cpus=parse_id_list(str(settings.pop("reserved", "0"))) or None,
        reserved_memory=(MemoryReservation(0, "memory", 512 << 20),) if memory else (),
        feature_gates=dict.fromkeys(str(settings.pop("gates", "")).split(), True),
        version=str(settings.pop("version", "v1.36.3")),
    )
    assert not settings, settings
    return NodeState("n", parsed.machine(), kubelet, parsed.offered_devices())


def pod(name: str, *containers: str, **fields: str) -> Pod:
    """A pod of containers such as ``cpu=3 memory=1Gi vendor.com/gpu=1``, equal requests and limits.

    A container is an app one unless its text begins with ``init`` or ``sidecar``; ``request:cpu=1`` requests without a
    limit. ``resources`` in ``fields`` are the pod-level ones.
    """
    made = tuple(_container(f"c{index}", text) for index, text in enumerate(containers))
    whole = _resources(fields["resources"].split()) if "resources" in fields else None
    return Pod("d", name, fields.get("uid", name), made, fields.get("qos_class", ""), whole)


def admit_all(state: NodeState, pods: Iterable[Pod]) -> tuple[list[Verdict], NodeState]:
    """Admit one after the other."""
    verdicts = []
    for each in pods:
        verdict, state = admit(state, each)
        verdicts.append(verdict)
    return verdicts, state


def told(verdict: Verdict) -> str:
    """The verdict in a line: the reason and the message, or for each container its affinity, CPUs, memory, devices.

    An affinity in round brackets is not preferred.
    """
    if not verdict.admitted:
        return f"{verdict.reason}: {verdict.message.removeprefix(MESSAGE_PREFIX)}"
    parts = []
    for placed in verdict.containers:
        nodes = "any" if placed.affinity is None else format_id_list(placed.affinity)
        words = [f"[{nodes}]" if placed.preferred else f"({nodes})"]
        words += [f"cpus {format_id_list(placed.cpus)}"] if placed.cpus else []
        words += [f"{each.resource} {each.size >> 20}Mi on {format_id_list(each.numa_nodes)}" for each in placed.memory]
        words += [f"{each.count} {each.resource} on {format_id_list(each.numa_nodes)}" for each in placed.devices]
        parts.append(" ".join(words))
    return "; ".join(parts)


def _pairs(text: object) -> Mapping[str, str]:
    return dict(word.split("=", 1) for word in str(text).split())


def _container(name: str, text: str) -> Container:
    words = text.split()
    kind = ContainerKind(words.pop(0)) if words and words[0] in ("init", "sidecar") else ContainerKind.APP
    return Container(name, kind, _resources(words))


def _resources(words: list[str]) -> Resources:
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for word in words:
        resource, _, quantity = word.removeprefix("request:").partition("=")
        requests[resource] = parse_quantity(quantity)
        if not word.startswith("request:"):
            limits[resource] = parse_quantity(quantity)
    return Resources(requests, limits)
