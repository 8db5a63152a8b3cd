"""Read the running containers, the node and the owner of a core/v1 Pod."""

from typing import Any

from topomend.model.pods.running_pod import RunningPod
from topomend.model.pods.scheduling import Owner
from topomend.wire.devices.resource_claim import read_claims_by_container
from topomend.wire.document import Document
from topomend.wire.pods.pod import read_pod
from topomend.wire.pods.scheduling import read_owner

TEMPLATE_HASH = "pod-template-hash"
"""Label by which a Deployment marks the pods of each of its ReplicaSets, whose name ends with it."""


def read_running_pod(content: dict[str, Any]) -> RunningPod:
    """The RunningPod of a Pod object. Raises MalformedObject."""
    document = Document(content)
    status = document["status"]
    running = frozenset(
        container["name"].text()
        for statuses in ("initContainerStatuses", "containerStatuses")
        for container in status[statuses]
        if not container["state"]["running"].absent
    )
    return RunningPod(
        read_pod(content),
        document["spec"]["nodeName"].text(""),
        running,
        workload_of(document["metadata"]),
        read_claims_by_container(content),
    )


def workload_of(metadata: Document) -> Owner | None:
    """The controller of a pod by its metadata alone; for a Deployment's pod that, told by the name of its ReplicaSet.

    The uid of a Deployment is empty. Raises MalformedObject.
    """
    owner = read_owner(metadata)
    suffix = f"-{metadata['labels'][TEMPLATE_HASH].text('')}"
    if owner is None or owner.kind != "ReplicaSet" or suffix == "-" or not owner.name.endswith(suffix):
        return owner
    return Owner("Deployment", owner.name.removesuffix(suffix), "", owner.api_version)
