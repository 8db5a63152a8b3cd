"""A NodeConfig of Amazon EKS as the files and flags that nodeadm gives a kubelet.

Also read from an instance's user data, where it is one part of several.

Source: awslabs/amazon-eks-ami, nodeadm/internal/kubelet/config.go:generateKubeletConfig and writeKubeletConfig,
nodeadm/internal/configprovider/mime.go; the pods of instance types from eni_max_pods.go:CalcMaxPods and
instance-info.jsonl. Left out is what neither the resource managers nor a kubelet's start depend on, such as addresses
and certificates.
"""

import re
from collections.abc import Mapping
from email import message_from_bytes
from typing import Any

from topomend.check.finding import Subject
from topomend.cli.input.kubelet_input import KubeletInput, configuration, first_object, naming
from topomend.cli.output.failures import BadInput
from topomend.discover.kubelet_config.kubelet_process import read_flags
from topomend.wire.document import Document, MalformedObject

NODE_CONFIG = "NodeConfig"

_GROUP = "node.eks.aws"
_MEDIA_TYPE = f"application/{_GROUP}"

_DROP_IN = "40-nodeadm.conf"

_PODS: Mapping[str, int] = {
    "p4d.24xlarge": 737,
    "p4de.24xlarge": 737,
    "p5.48xlarge": 100,
    "p6-b200.48xlarge": 198,
    "c5n.18xlarge": 737,
    "r8g.metal-48xl": 737,
}
"""How many pods an instance may have by default: the addresses of all interfaces but one of each, and 2."""

_RESERVED_BY_RANGE = ((0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50))
"""From, to, and how much of 10,000 thousandths of a CPU nodeadm reserves in this range; a quarter percent beyond."""


def of_node_config(name: str, content: bytes, machine: str, cpus: int, minor: int) -> KubeletInput | None:
    """What a kubelet of this minor release reads on an instance of ``cpus`` CPUs. None if the file has no NodeConfig.

    ``machine`` is what the user calls it: the first word of a known instance type tells how many pods it may have, by
    which memory is reserved. Raises BadInput.
    """
    document = first_object(_part(name, content))
    if document is None or document["kind"].content != NODE_CONFIG:
        return None
    if not str(document["apiVersion"].content).startswith(f"{_GROUP}/"):
        return None
    with naming(name):
        return _read(name, document["spec"]["kubelet"], machine, cpus, minor)


def _part(name: str, content: bytes) -> bytes:
    """The NodeConfig of user data with several parts; any other content as it is."""
    if not re.match(rb"(?i)(mime-version|content-type):", content):
        return content
    parts = [part for part in message_from_bytes(content).walk() if part.get_content_type() == _MEDIA_TYPE]
    if len(parts) != 1:
        raise BadInput(f"{name} has {len(parts)} parts of type {_MEDIA_TYPE}: give one, merged as nodeadm merges them")
    decoded = parts[0].get_payload(decode=True)
    return decoded if isinstance(decoded, bytes) else b""


def _read(name: str, kubelet: Document, machine: str, cpus: int, minor: int) -> KubeletInput:
    flags = read_flags([flag.text() for flag in kubelet["flags"]])
    config: dict[str, Any] = {field: value.content for field, value in kubelet["config"].fields()}
    pods = _pods(kubelet["maxPodsExpression"], machine)
    if pods is None and _pins_memory(config, flags):
        raise BadInput(
            f"{name}: nodeadm reserves 11Mi of memory for each pod that the instance type may have, and how many that "
            "are is not known: name the type as --machine (topomend machines lists some), or give "
            "spec.kubelet.maxPodsExpression as a number"
        )
    return KubeletInput(
        Subject(NODE_CONFIG, name),
        configuration(name, _defaults(cpus, pods, minor)),
        {_DROP_IN: configuration(_DROP_IN, config)} if config else {},
        flags,
    )


def _pods(expression: Document, machine: str) -> int | None:
    text = expression.text("").strip()
    if not text:
        return _PODS.get(machine.partition(" ")[0].lower())
    if not re.fullmatch("[1-9][0-9]{0,5}", text):
        raise MalformedObject(f"{expression.path}: expressions of CEL are not evaluated here; give the number")
    return int(text)


def _pins_memory(config: Mapping[str, Any], flags: Mapping[str, object]) -> bool:
    """Whether it matters how much memory nodeadm reserves."""
    reserved = config.get("kubeReserved")
    if isinstance(reserved, Mapping) and "memory" in reserved:
        return False
    return config.get("memoryManagerPolicy") == "Static" or "memory-manager-policy" in flags


def _defaults(cpus: int, pods: int | None, minor: int) -> dict[str, Any]:
    reserved = {"cpu": f"{_reserved_cpu(1000 * cpus)}m", "ephemeral-storage": "1Gi"}
    content: dict[str, Any] = {
        "cgroupDriver": "systemd",
        "cgroupRoot": "/",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%"},
        "featureGates": _gates(minor),
        "kubeReserved": reserved if pods is None else {**reserved, "memory": f"{11 * pods + 255}Mi"},
        "kubeReservedCgroup": "/runtime",
        "protectKernelDefaults": True,
        "serializeImagePulls": False,
        "serverTLSBootstrap": True,
        "systemReservedCgroup": "/system",
    }
    if pods is not None:
        content["maxPods"] = pods
    if minor >= 34:
        content |= {"shutdownGracePeriod": "150s", "shutdownGracePeriodCriticalPods": "30s"}
    return content


def _gates(minor: int) -> dict[str, bool]:
    return {
        "RotateKubeletServerCertificate": True,
        **({"DynamicResourceAllocation": True} if minor >= 33 else {}),
        **({"MutableCSINodeAllocatableCount": True} if minor >= 34 else {}),
    }


def _reserved_cpu(millis: int) -> int:
    ranges = (*_RESERVED_BY_RANGE, (4000, millis, 25))
    return sum((min(millis, to) - since) * share // 10_000 for since, to, share in ranges if millis > since)
