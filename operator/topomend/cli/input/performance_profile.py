"""A PerformanceProfile of OpenShift as the KubeletConfiguration that the Node Tuning Operator makes of it.

Source: openshift/cluster-node-tuning-operator, pkg/performanceprofile/controller/performanceprofile/components/
kubeletconfig/kubeletconfig.go:New, and profile/profile.go:IsMixedCPUsEnabled. What the Machine Config Operator merges
it with is not in the profile, and so not known here. The names of fields in the annotation count as they are written.
"""

from collections.abc import Mapping
from typing import Any

from topomend.check.finding import Subject
from topomend.cli.input.kubelet_input import KubeletInput, configuration, first_object, naming
from topomend.discover.documents.read import is_json, read_document
from topomend.discover.documents.value import NotADocument, plain_value
from topomend.model.bitmask import format_id_list
from topomend.replay.startup import quantity
from topomend.replay.startup.quantity import InvalidQuantity, Quantity
from topomend.wire.document import Document, MalformedObject

PROFILE, PROFILE_VERSION = "PerformanceProfile", "performance.openshift.io/v2"

_UNKNOWN = "what the Machine Config Operator merges the kubelet's configuration with"

_SNIPPET = "kubeletconfig.experimental"
_UNCORE = "kubeletconfig.prefer-align-cpus-by-uncorecache"

_KEPT: Mapping[str, Mapping[str, str]] = {
    "evictionHard": {
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "imagefs.available": "15%",
        "nodefs.inodesFree": "5%",
    },
    "kubeReserved": {"memory": "500Mi"},
    "systemReserved": {"memory": "500Mi"},
}
"""What is filled in for the keys that the annotation does not set."""


def of_profile(name: str, content: bytes) -> KubeletInput | None:
    """What the kubelet reads of the profile in a file; None if its first document is none. Raises BadInput."""
    profile = first_object(content)
    if profile is None or profile["kind"].content != PROFILE:
        return None
    with naming(name):
        made = configuration(name, _configuration(profile))
    return KubeletInput(Subject(PROFILE, name), made, unknown=(_UNKNOWN,))


def _configuration(profile: Document) -> dict[str, Any]:
    if profile["apiVersion"].text("") != PROFILE_VERSION:
        raise profile["apiVersion"].wrong(PROFILE_VERSION)
    annotations = profile["metadata"]["annotations"]
    if not annotations[_UNCORE].absent:
        raise MalformedObject(f"the annotation {_UNCORE} is not read here; set the option in {_SNIPPET}")
    content = _snippet(annotations[_SNIPPET])
    content |= {"cpuManagerPolicy": "static", "cpuManagerReconcilePeriod": "5s"}
    for field, defaults in _KEPT.items():
        content[field] = {**defaults, **{key: value.text() for key, value in Document(content)[field].fields()}}
    content |= _reserved_cpus(profile["spec"])
    policy = profile["spec"]["numa"]["topologyPolicy"].text("best-effort")
    content["topologyManagerPolicy"] = policy
    if policy in ("restricted", "single-numa-node"):
        content["memoryManagerPolicy"] = "Static"
        if content.get("reservedMemory") is None:
            content["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": str(_kept_memory(content))}}]
    if policy == "single-numa-node":
        options = {key: value.text() for key, value in Document(content)["cpuManagerPolicyOptions"].fields()}
        content["cpuManagerPolicyOptions"] = {"full-pcpus-only": "true", **options}
    return content


def _snippet(annotation: Document) -> dict[str, Any]:
    """The fields that the annotation sets."""
    if annotation.absent:
        return {}
    text = annotation.text().encode(errors="replace")
    if not is_json(text):
        raise MalformedObject(f"the annotation {_SNIPPET} is no object of JSON")
    try:
        content: dict[str, Any] = plain_value(read_document(text).value)
    except NotADocument as error:
        raise MalformedObject(f"the annotation {_SNIPPET} is not JSON: {error}") from error
    return content


def _reserved_cpus(spec: Document) -> dict[str, str]:
    cpu = spec["cpu"]
    if cpu["shared"].text("") and spec["workloadHints"]["mixedCpus"].boolean(default=False):
        return {"reservedSystemCPUs": format_id_list(cpu["reserved"].id_list() | cpu["shared"].id_list())}
    return {} if cpu["reserved"].absent else {"reservedSystemCPUs": cpu["reserved"].text()}


def _kept_memory(content: Mapping[str, Any]) -> Quantity:
    amounts = (content["kubeReserved"]["memory"], content["systemReserved"]["memory"])
    try:
        return sum(map(quantity.parse, (*amounts, content["evictionHard"]["memory.available"])), start=Quantity(0))
    except InvalidQuantity as error:
        raise MalformedObject(f"the operator makes no configuration of such reserved memory: {error}") from error
