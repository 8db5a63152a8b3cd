"""Read core/v1 PersistentVolumeClaims and PersistentVolumes: on which nodes a claim's volume is.

Leaves to the scheduler what a claim without a volume may be bound to (WaitForFirstConsumer), and how many volumes a
node may have.
Source: pkg/scheduler/framework/plugins/volumebinding/binder.go (FindPodVolumes, checkBoundClaims).
"""

from typing import Any

from topomend.model.pods.scheduling import NodeSelectorTerm
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pods.scheduling import check_number, read_terms

ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
"""Labels by which old volumes say where they are (plugins/volumezone/volume_zone.go:topologyLabels)."""

BOUND_ANNOTATION = "pv.kubernetes.io/bind-completed"

MAX_VALUES = 100
"""Values in a volume's node affinity, and objects: they are kept as long as a pod waits that has the volume."""


def read_volume_name(content: Any) -> str:
    """The name of the claim's volume; empty where it has none yet. Raises MalformedObject."""
    return Document(content)["spec"]["volumeName"].text("")


def is_bound(content: Any) -> bool:
    """Whether the claim is bound to the volume that it names: until then no pod is that has it. Raises MalformedObject.

    Source: plugins/volumebinding/binder.go (isPVCFullyBound, GetPodVolumeClaims).
    """
    return not Document(content)["metadata"]["annotations"][BOUND_ANNOTATION].absent


def is_ephemeral(content: Any, pod_uid: str) -> bool:
    """Whether the claim was made for the pod of this uid, and ends with it. Raises MalformedObject.

    Source: component-helpers/storage/ephemeral/ephemeral.go (VolumeIsForPod).
    """
    owners = Document(content)["metadata"]["ownerReferences"]
    return any(owner["controller"].boolean(default=False) and owner["uid"].text("") == pod_uid for owner in owners)


def is_of_claim(content: Any, namespace: str, claim: str) -> bool:
    """Whether the volume is that of the claim, into which its user may write any name. Raises MalformedObject."""
    reference = Document(content)["spec"]["claimRef"]
    return (reference["namespace"].text(""), reference["name"].text("")) == (namespace, claim)


def read_volume_terms(content: Any) -> tuple[NodeSelectorTerm, ...] | None:
    """The terms of the volume's node affinity, of which a node must match one; None where every node has the volume.

    Raises MalformedObject, also for one that has more terms than are kept or that says by labels alone where it is.
    """
    document = Document(content)
    affinity = document["spec"]["nodeAffinity"]["required"]
    if affinity.absent:
        labels = document["metadata"]["labels"]
        if any(not labels[name].absent for name in ZONE_LABELS):
            raise MalformedObject(f"{labels.path}: a zone without a node affinity, which the scheduler alone judges")
        return None
    check_number(affinity, MAX_VALUES, MAX_VALUES)
    return read_terms(affinity)
