"""Read which group a pod belongs to whose pods are useful only together, and how many pods the group needs.

Owns the names that the field gives to such groups: Kubernetes' own PodGroup (KEP-4671), Kueue's groups of plain pods,
JobSet, and the PodGroups of the scheduler plugins and of Volcano. Leaves what becomes of a group to ``decide/gang``.
"""

import re
from typing import Any

from topomend.model.pods.scheduling import PodGroup
from topomend.wire.document import Document

KUBERNETES = "scheduling.k8s.io"
KUEUE = "kueue.x-k8s.io"
SCHEDULER_PLUGINS = "scheduling.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"
JOBSET = "jobset.x-k8s.io"

LABELS = {
    KUEUE: "kueue.x-k8s.io/pod-group-name",
    SCHEDULER_PLUGINS: "scheduling.x-k8s.io/pod-group",
    JOBSET: "jobset.sigs.k8s.io/jobset-name",
}
"""By API group, the pod label that names a group."""

KUEUE_SIZE = "kueue.x-k8s.io/pod-group-total-count"
VOLCANO_NAME = "scheduling.k8s.io/group-name"
"""Pod annotations: the number of pods in a group, and a group's name."""

MAX_NAME, MAX_SIZE = 253, 1 << 31

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""What an object may be called (apimachinery pkg/util/validation/validation.go:IsDNS1123Subdomain)."""


def read_pod_group(pod: Document) -> PodGroup | None:
    """The group of a Pod object; None for a pod that is useful alone. A name that no object can have names no group."""
    metadata, spec = pod["metadata"], pod["spec"]
    own = spec["schedulingGroup"]["podGroupName"].text("")
    if own:
        return _group(KUBERNETES, own)
    for api_group, label in LABELS.items():
        name = metadata["labels"][label].text("")
        if name:
            size = _read_size(metadata["annotations"][KUEUE_SIZE].text("")) if api_group == KUEUE else None
            return _group(api_group, name, size)
    return _group(VOLCANO, metadata["annotations"][VOLCANO_NAME].text(""))


def _group(api_group: str, name: str, size: int | None = None) -> PodGroup | None:
    if not 0 < len(name) <= MAX_NAME:
        return None
    can_be = api_group == KUEUE or _NAME.fullmatch(name)  # a group of Kueue's has no object that is asked for
    return PodGroup(api_group, name, size) if can_be else None


def _read_size(text: str) -> int | None:
    """A user wrote the annotation: a wrong value must not make the pod unreadable."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def read_group_size(api_group: str, content: Any) -> int | None:
    """How many pods the group of this object needs at once, 1 for one whose pods are useful alone.

    None where that is not known: the Jobs of a JobSet may start one after another. Raises MalformedObject.
    """
    spec = Document(content)["spec"]
    if api_group == KUBERNETES:
        return spec["schedulingPolicy"]["gang"]["minCount"].integer(1, most=MAX_SIZE)
    if api_group == JOBSET:
        return _jobset_size(spec)
    return spec["minMember"].integer(1, most=MAX_SIZE)


def read_composite(api_group: str, content: Any) -> str:
    """The name of the CompositePodGroup that the group of this object is a part of; empty where it is a part of none.

    Raises MalformedObject. Source: k8s.io/api scheduling/v1beta1 PodGroupSpec, from Kubernetes 1.37 on.
    """
    if api_group != KUBERNETES:
        return ""
    return Document(content)["spec"]["parentCompositePodGroupName"].text("")


def _jobset_size(spec: Document) -> int | None:
    if spec["startupPolicy"]["startupPolicyOrder"].text("") == "InOrder":
        return None
    size = 0
    for job in spec["replicatedJobs"]:
        if not job["dependsOn"].absent:
            return None
        template = job["template"]["spec"]
        parallelism = template["parallelism"].integer(1, most=MAX_SIZE)
        pods = min(parallelism, template["completions"].integer(parallelism, most=MAX_SIZE))
        size += job["replicas"].integer(1, most=MAX_SIZE) * pods
    return size
