"""core/v1 Nodes and Pods, read into what deciding about a refused pod needs of them.

What admission reads of a pod is ``wire/pod.py``'s.
"""

from typing import Any

from topomend.model.cluster import (
    Node,
    NodeSelectorTerm,
    Owner,
    Placement,
    Requirement,
    Taint,
    Toleration,
    WatchedPod,
)
from topomend.wire.document import Document
from topomend.wire.group import (
    ATTEMPT_ANNOTATION,
    CREATOR_ANNOTATION,
    MAX_ATTEMPTS_ANNOTATION,
    NAME_POLICY_ANNOTATION,
    RECORD_ANNOTATION,
    RELAUNCH_ANNOTATION,
    RELEASED_ANNOTATION,
    REPLACES_ANNOTATION,
)
from topomend.wire.pod import read_pod

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""On the API server's image of a static pod (pkg/kubelet/types/pod_update.go)."""


def read_node(content: Any) -> Node:
    """The Node of an object. Raises MalformedObject."""
    document = Document(content)
    metadata, spec, status = document["metadata"], document["spec"], document["status"]
    ready = [each["status"].text("") for each in status["conditions"] if each["type"].text("") == "Ready"]
    return Node(
        name=metadata["name"].text(),
        uid=metadata["uid"].text(""),
        labels={key: value.text("") for key, value in metadata["labels"].fields()},
        taints=tuple(
            Taint(each["key"].text(), each["effect"].text(""), each["value"].text("")) for each in spec["taints"]
        ),
        unschedulable=spec["unschedulable"].boolean(default=False),
        allocatable={name: amount.quantity() for name, amount in status["allocatable"].fields()},
        ready=ready == ["True"],
        version=metadata["resourceVersion"].text(""),
    )


def read_watched_pod(content: Any) -> WatchedPod:
    """The WatchedPod of a Pod object. Raises MalformedObject."""
    document = Document(content)
    metadata, spec, status = document["metadata"], document["spec"], document["status"]
    annotations = {key: value.text("") for key, value in metadata["annotations"].fields()}
    return WatchedPod(
        namespace=metadata["namespace"].text(),
        name=metadata["name"].text(),
        uid=metadata["uid"].text(),
        version=metadata["resourceVersion"].text(""),
        pod=read_pod(content),
        phase=status["phase"].text("Pending"),
        reason=status["reason"].text(""),
        message=status["message"].text(""),
        node=spec["nodeName"].text(""),
        owner=_read_owner(metadata),
        mirror=MIRROR_ANNOTATION in annotations,
        deleting=not metadata["deletionTimestamp"].absent,
        finalizers=tuple(each.text() for each in metadata["finalizers"]),
        gates=tuple(each["name"].text() for each in spec["schedulingGates"]),
        placement=read_placement(spec),
        relaunch=annotations.get(RELAUNCH_ANNOTATION, ""),
        max_attempts=_read_count(annotations.get(MAX_ATTEMPTS_ANNOTATION)),
        attempt=_read_count(annotations.get(ATTEMPT_ANNOTATION)) or 0,
        record=annotations.get(RECORD_ANNOTATION, ""),
        replaces=annotations.get(REPLACES_ANNOTATION, ""),
        creation_time=metadata["creationTimestamp"].text(""),
        creator=annotations.get(CREATOR_ANNOTATION, ""),
        generation=metadata["generation"].integer(0),
        name_policy=annotations.get(NAME_POLICY_ANNOTATION, ""),
        released=annotations.get(RELEASED_ANNOTATION) == "true",
        node_affinity=spec["affinity"]["nodeAffinity"].content or {},
    )


def read_placement(spec: Document) -> Placement:
    """Where a pod's ``spec`` lets it go. Raises MalformedObject."""
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return Placement(
        node_selector={key: value.text("") for key, value in spec["nodeSelector"].fields()},
        terms=None
        if required.absent
        else tuple(
            NodeSelectorTerm(_read_requirements(term["matchExpressions"]), _read_requirements(term["matchFields"]))
            for term in required["nodeSelectorTerms"]
        ),
        tolerations=tuple(
            Toleration(
                each["key"].text(""), each["operator"].text("Equal"), each["value"].text(""), each["effect"].text("")
            )
            for each in spec["tolerations"]
        ),
    )


def _read_requirements(requirements: Document) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(each["key"].text(), each["operator"].text(), tuple(value.text() for value in each["values"]))
        for each in requirements
    )


def _read_owner(metadata: Document) -> Owner | None:
    for each in metadata["ownerReferences"]:
        if each["controller"].boolean(default=False):
            return Owner(
                each["kind"].text(), each["name"].text(), each["uid"].text(), api_version=each["apiVersion"].text("")
            )
    return None


def _read_count(text: str | None) -> int | None:
    """A small count that a user may have written; what is no count is as if it were not there."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 4:
        return None
    return int(text)
