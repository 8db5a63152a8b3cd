"""The settings that admission depends on, from the decoded content of a configuration.

A field that the kubelet would refuse is a problem, and is never read as a similar valid value.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from topomend.discover.kubelet_config.go_values import GoError, parse_cpu_list
from topomend.model.bitmask import MAX_ID
from topomend.model.nodes.kubelet import KubeletSettings, MemoryReservation
from topomend.replay.gates import minor_of
from topomend.replay.startup.feature_gates import ALL, FeatureGates
from topomend.replay.startup.quantity import InvalidQuantity, Quantity, parse
from topomend.wire.document import Document, MalformedObject

MAX_OPTIONS, MAX_RESERVATIONS, MAX_LIMITS, MAX_TEXT = 32, 256, 16, 256
"""The most that can be published of each, far more than any kubelet uses."""

MAX_POLICY = 64

_T = TypeVar("_T")

POLICIES: Mapping[str, tuple[str, ...]] = {
    "topologyManagerPolicy": ("none", "best-effort", "restricted", "single-numa-node"),
    "topologyManagerScope": ("container", "pod"),
    "cpuManagerPolicy": ("none", "static"),
    "memoryManagerPolicy": ("None", "Static"),
}
"""The valid values of each field; the first is the kubelet's default (apis/config/v1beta1/defaults.go)."""

_GATES = (
    "CPUManagerPolicyAlphaOptions",
    "CPUManagerPolicyBetaOptions",
    "TopologyManagerPolicyAlphaOptions",
    "TopologyManagerPolicyBetaOptions",
    "PodLevelResources",
    "PodLevelResourceManagers",
    "PodLevelResourcesFixKubeletQOSClass",
    "CPUManagerPolicyOptions",
    "TopologyManagerPolicyOptions",
    "MemoryManager",
    "SidecarContainers",
    "InPlacePodVerticalScaling",
    "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory",
    "InPlacePodVerticalScalingInitContainers",
    "InPlacePodLevelResourcesVerticalScaling",
    "DRAExtendedResource",
    "DynamicResourceAllocation",
    "KubeletPodResourcesListUseActivePods",
    "TaintTolerationComparisonOperators",
)
"""The gates that admission and resizes depend on (pkg/features/kube_features.go)."""


def settings_of(document: Document, version: str) -> tuple[KubeletSettings, list[str]]:
    """The settings of a kubelet of this version in a configuration's content, and each problem with which none starts.

    Its feature gates are those that the content sets, also by AllAlpha and AllBeta.
    """
    problems: list[str] = []

    def field(read: Callable[[], _T], fallback: _T) -> _T:
        try:
            return read()
        except MalformedObject as error:
            problems.append(f"the kubelet's configuration: {error}; the kubelet does not start with this")
            return fallback

    def choice(name: str) -> str:
        content = document[name].content
        # An unknown word is published as it is, so that no reader takes the node for one without a policy.
        fallback = content[:MAX_POLICY] if isinstance(content, str) else POLICIES[name][0]
        return field(lambda: _choice(document[name], POLICIES[name]), fallback)

    def options(name: str) -> dict[str, str]:
        return field(lambda: _options(document[name]), {})

    reserved_cpus = field(lambda: _cpu_list(document["reservedSystemCPUs"]) or None, None)
    cpu = field(lambda: _reserved_cpu(document), 0)
    settings = KubeletSettings(
        topology_manager_policy=choice("topologyManagerPolicy"),
        topology_manager_scope=choice("topologyManagerScope"),
        topology_manager_policy_options=options("topologyManagerPolicyOptions"),
        cpu_manager_policy=choice("cpuManagerPolicy"),
        cpu_manager_policy_options=options("cpuManagerPolicyOptions"),
        memory_manager_policy=choice("memoryManagerPolicy"),
        reserved_cpus=reserved_cpus,
        # A list of CPUs overrides the amounts (cmd/kubelet/app/server.go:run).
        reserved_cpu_millis=cpu if reserved_cpus is None else reserved_cpus.bit_count() * 1000,
        reserved_memory=field(lambda: tuple(_reservations(document["reservedMemory"])), ()),
        feature_gates=field(lambda: _gates(document["featureGates"]), {}),
    )
    return _of_release(settings, version), problems


def _of_release(settings: KubeletSettings, version: str) -> KubeletSettings:
    """The settings of a kubelet of this version, with each gate that AllAlpha or AllBeta sets in its release.

    Readers then need neither of the two: an operator may be older than the agent.
    """
    gates = FeatureGates(minor_of(version), settings.feature_gates)
    chosen = {name: gates.chosen(name) for name in _GATES}
    in_force = {name: gate for name, gate in chosen.items() if gate is not None}
    return replace(settings, version=version, feature_gates=in_force)


def _cpu_list(field: Document) -> int:
    text = field.text("")
    try:
        return parse_cpu_list(text)
    except GoError as error:
        raise MalformedObject(f"{field.path}: {text[:60]!r} is no list of CPUs ({error})") from error


def _choice(field: Document, known: tuple[str, ...]) -> str:
    """One of the ``known`` words. An empty text that has no default any more is none of them."""
    text = field.text(known[0])
    if text not in known:
        raise field.wrong(f"one of {', '.join(known)}")
    return text


def _options(document: Document) -> dict[str, str]:
    options = {key: value.text() for key, value in document.fields()}
    if len(options) > MAX_OPTIONS or any(len(text) > MAX_TEXT for pair in options.items() for text in pair):
        raise document.wrong(f"at most {MAX_OPTIONS} options of at most {MAX_TEXT} letters")
    return options


def _reserved_cpu(document: Document) -> int:
    """kubeReserved + systemReserved, in thousandths of a CPU: rounded up once they are added.

    Source: cm/node_container_manager_linux.go:GetNodeAllocatableReservation.
    """
    nano = 0
    for name in ("kubeReserved", "systemReserved"):
        field = document[name]["cpu"]
        if not field.absent:
            nano += _quantity(field).nano
    return -(-nano // 10**6)


def _reservations(reservations: Document) -> Iterator[MemoryReservation]:
    for number, reservation in enumerate(reservations):
        for place, (resource, quantity) in enumerate(reservation["limits"].fields()):
            if number >= MAX_RESERVATIONS or place >= MAX_LIMITS:
                raise reservations.wrong(f"at most {MAX_RESERVATIONS} NUMA nodes with {MAX_LIMITS} limits each")
            size = -(-_quantity(quantity).nano // 10**9)
            yield MemoryReservation(reservation["numaNode"].integer(default=0, most=MAX_ID - 1), resource, size)


def _quantity(field: Document) -> Quantity:
    try:
        return parse(field.text())
    except InvalidQuantity as error:
        raise MalformedObject(f"{field.path}: {error}") from error


def _gates(gates: Document) -> dict[str, bool]:
    given = {name: gate.boolean() for name, gate in gates.fields()}
    return {name: given[name] for name in (*ALL, *_GATES) if name in given}
