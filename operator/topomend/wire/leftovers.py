"""What topomend has written on a Pod object, and the patch that takes all of it off.

Pods are read here as plain objects: one that no kubelet rule could read must be cleaned as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topomend.wire.group import GROUP, RECORD_ANNOTATION, RELAUNCH_GATE, REPLACES_ANNOTATION


@dataclass(frozen=True)
class Leftovers:
    """What is ours on one pod: names of gates and finalizers, keys of annotations and labels.

    ``foreign_gates`` and ``foreign_finalizers`` are those that stay. ``replaces`` and ``record`` are what a replacement
    that waits behind our gate says of the refused pod (its uid) and of its record; empty for any other pod. ``phase``
    is the pod's.
    """

    namespace: str
    name: str
    uid: str
    version: str
    phase: str
    gates: tuple[str, ...] = ()
    finalizers: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    foreign_gates: tuple[str, ...] = ()
    foreign_finalizers: tuple[str, ...] = ()
    replaces: str = ""
    record: str = ""

    @property
    def any(self) -> bool:
        """Whether anything is."""
        return bool(self.gates or self.finalizers or self.annotations or self.labels)

    def patch(self) -> dict[str, Any]:
        """The merge patch that takes it off, if the pod is still as it was read."""
        metadata: dict[str, Any] = {"uid": self.uid, "resourceVersion": self.version}
        if self.finalizers:
            metadata["finalizers"] = list(self.foreign_finalizers)
        if self.annotations:
            metadata["annotations"] = dict.fromkeys(self.annotations)
        if self.labels:
            metadata["labels"] = dict.fromkeys(self.labels)
        if not self.gates:
            return {"metadata": metadata}
        gates = [{"name": name} for name in self.foreign_gates]
        return {"metadata": metadata, "spec": {"schedulingGates": gates or None}}


def leftovers(pod: Mapping[str, Any]) -> Leftovers:
    """What is ours on a Pod object."""
    metadata = pod["metadata"]
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    gates = [gate["name"] for gate in pod.get("spec", {}).get("schedulingGates") or ()]
    finalizers = metadata.get("finalizers") or ()
    waits = RELAUNCH_GATE in gates and annotations.get(REPLACES_ANNOTATION) and annotations.get(RECORD_ANNOTATION)
    return Leftovers(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        phase=pod.get("status", {}).get("phase", ""),
        gates=tuple(filter(_is_ours, gates)),
        finalizers=tuple(filter(_is_ours, finalizers)),
        annotations=tuple(filter(_is_ours, annotations)),
        labels=tuple(filter(_is_ours, labels)),
        foreign_gates=tuple(name for name in gates if not _is_ours(name)),
        foreign_finalizers=tuple(name for name in finalizers if not _is_ours(name)),
        replaces=annotations[REPLACES_ANNOTATION] if waits else "",
        record=annotations[RECORD_ANNOTATION] if waits else "",
    )


def _is_ours(name: str) -> bool:
    return name.startswith(f"{GROUP}/")
