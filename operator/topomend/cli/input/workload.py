"""The pods that a workload would create: a Pod itself, or those of a template (Deployment, Job and others).

Owns the names of those whose names Kubernetes would make up. Leaves reading a Pod to ``wire.pod``, and which of the
pods is asked about to the caller.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from topomend.wire.document import Document, MalformedObject

MOST_REPLICAS = 10_000

_WITH_TEMPLATES = (
    "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Job", "CronJob"
)  # fmt: skip
"""The built-in kinds that have a pod template."""


class PodNames:
    """Gives each pod of a file a name of its own: a kubelet takes two pods of one name for one.

    ``taken`` are namespace and name of the pods that the file has so far; ``on_node`` of those beside it, whose names
    only pods get that may be the same: those that are named, and those of a StatefulSet.
    """

    def __init__(self, on_node: Iterable[tuple[str, str]] = ()) -> None:
        self.on_node = frozenset(on_node)
        self.taken = set[tuple[str, str]]()
        self._counted = Counter[tuple[str, str]]()

    def of_pod(self, content: Mapping[str, Any]) -> str:
        """The name of a Pod object, whether or not it is taken; of one without a name one that is not.

        Raises MalformedObject.
        """
        metadata = Document(content)["metadata"]
        namespace, name = metadata["namespace"].text(default="default"), metadata["name"].text(default="")
        if not name:
            return self._numbered(namespace, metadata["generateName"].text(default="") or "pod-")
        self.taken.add((namespace, name))
        return name

    def of_workload(self, kind: str, namespace: str, name: str, replicas: int) -> list[str]:
        """``web-0``, ``web-1``; ``web-job-0``, ``web-job-1`` if pods of another workload or a Pod have such a name."""
        own = name or kind.lower()
        names = [f"{own}-{number}" for number in range(replicas)]
        keys = {(namespace, each) for each in names}
        if self.taken.isdisjoint(keys) and (kind == "StatefulSet" or self.on_node.isdisjoint(keys)):
            self.taken |= keys
            return names
        return [self._numbered(namespace, f"{own}-{kind.lower()}-") for _ in names]

    def _numbered(self, namespace: str, prefix: str) -> str:
        while True:
            name = f"{prefix}{self._counted[namespace, prefix]}"
            self._counted[namespace, prefix] += 1
            if (namespace, name) not in self.taken and (namespace, name) not in self.on_node:
                self.taken.add((namespace, name))
                return name


def same_name(count: int, namespace: str, name: str) -> str:
    """What is wrong with several pods of one name, and what to do."""
    return f"{count} pods are called {namespace}/{name}; give each its own metadata.name"


def is_pod_or_workload(content: Mapping[str, Any]) -> bool:
    """Whether the object is a Pod or has a pod template, whether or not that can be read."""
    if content.get("kind", "Pod") == "Pod":
        return True
    spec = content.get("spec")
    return content["kind"] in _WITH_TEMPLATES or (isinstance(spec, Mapping) and "template" in spec)


def shown(content: Mapping[str, Any]) -> str:
    """``Deployment web``."""
    metadata = content.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return f"{content.get('kind', 'Pod')}{f' {name}' if name else ''}"


def passed_over(objects: Iterable[str]) -> str:
    """What a user is told of the other objects of a file, as they are ``shown``."""
    return f"passed over, as no pods are read from them: {', '.join(objects)}"


def template_pod(content: Any) -> dict[str, Any]:
    """The Pod, or a Pod made from the workload's template, which gets the workload's name.

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


def pods_of(content: Any, names: PodNames) -> list[dict[str, Any]]:
    """All pods that the object stands for, as Pod objects, each with a name. Raises MalformedObject."""
    kind, pod = Document(content)["kind"].text(default="Pod"), template_pod(content)
    metadata = {key: field.content for key, field in Document(pod)["metadata"].fields()}
    if kind == "Pod":
        return [{**pod, "metadata": {**metadata, "name": names.of_pod(pod)}}]
    name, namespace = Document(content)["metadata"]["name"].text(default=""), Document(pod)["metadata"]["namespace"]
    made = names.of_workload(kind, namespace.text(default="default"), name, replicas_of(content))
    return [{**pod, "metadata": {**metadata, "name": each}} for each in made]


def _spec(document: Document) -> Document:
    spec = document["spec"]
    return spec["jobTemplate"]["spec"] if document["kind"].text(default="") == "CronJob" else spec


def _has_namespace(document: Document) -> bool:
    return not document["metadata"]["namespace"].absent
