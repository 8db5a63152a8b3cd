"""The pods that a workload would create: a Pod itself, or those of a template (Deployment, Job and others).

Leaves reading a Pod to ``wire.pod``, and which of the pods is asked about to the caller.
"""

from collections.abc import Mapping
from typing import Any

from topomend.wire.document import Document, MalformedObject

MOST_REPLICAS = 10_000

_WITH_TEMPLATES = (
    "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Job", "CronJob"
)  # fmt: skip
"""The built-in kinds that have a pod template."""


def is_pod_or_workload(content: Mapping[str, Any]) -> bool:
    """Whether the object is a Pod or has a pod template, whether or not that can be read."""
    if content.get("kind", "Pod") == "Pod":
        return True
    spec = content.get("spec")
    return content["kind"] in _WITH_TEMPLATES or (isinstance(spec, Mapping) and "template" in spec)


def template_pod(content: Any, name: str | None = None) -> dict[str, Any]:
    """The Pod, or a Pod made from the workload's template, which gets this ``name``, or the workload's.

    Raises MalformedObject for an object of any other kind.
    """
    document = Document(content)
    kind = document["kind"].text(default="Pod")
    if kind == "Pod":
        if not isinstance(content, dict):
            raise document.wrong("an object")
        return dict(content)
    template = _spec(document)["template"]
    if not isinstance(template.content, dict):
        raise MalformedObject(f"{kind} has no pod template; give a Pod or a workload")
    metadata = {
        "name": document["metadata"]["name"].text(default=""),
        **({"namespace": document["metadata"]["namespace"].text()} if _has_namespace(document) else {}),
        **{key: field.content for key, field in template["metadata"].fields()},
        **({"name": name} if name is not None else {}),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.content.get("spec")}


def replicas_of(content: Any) -> int:
    """How many pods the object stands for: its replicas, or the pods that a Job runs at a time. Raises MalformedObject.

    A DaemonSet has one on each node.
    """
    document = Document(content)
    if document["kind"].text(default="Pod") == "Pod":
        return 1
    spec = _spec(document)
    parallelism = spec["parallelism"]
    if parallelism.absent:
        return spec["replicas"].integer(1, most=MOST_REPLICAS)
    return min(parallelism.integer(most=MOST_REPLICAS), spec["completions"].integer(MOST_REPLICAS))


def pods_of(content: Any) -> list[dict[str, Any]]:
    """All pods that the object stands for, as Pod objects; those of a workload are numbered from 0.

    Raises MalformedObject.
    """
    if Document(content)["kind"].text(default="Pod") == "Pod":
        return [template_pod(content)]
    name = Document(content)["metadata"]["name"].text(default="")
    return [template_pod(content, f"{name}-{number}") for number in range(replicas_of(content))]


def _spec(document: Document) -> Document:
    spec = document["spec"]
    return spec["jobTemplate"]["spec"] if document["kind"].text(default="") == "CronJob" else spec


def _has_namespace(document: Document) -> bool:
    return not document["metadata"]["namespace"].absent
