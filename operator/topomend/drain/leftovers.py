"""Find everything that topomend wrote on a Pod object, and build the patch that removes it.

Owns which names are topomend's. Leaves sending the patch to ``pods``. Reads plain objects instead of the model: a pod
whose resources cannot be read must be cleaned as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from topomend.wire.group import GROUP, RECORD_ANNOTATION, RELAUNCH_GATE, REPLACES_ANNOTATION


@dataclass(frozen=True)
class Leftovers:
    """What topomend wrote on one pod: names of gates and finalizers, keys of annotations and labels.

    ``foreign_gates`` and ``foreign_finalizers`` are others' and stay. ``replaces`` is the refused pod's uid and
    ``record`` the record's name, where the pod is a replacement that waits behind our gate; empty for any other pod.
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
        """Whether the pod carries anything of ours."""
        return bool(self.gates or self.finalizers or self.annotations or self.labels)

    @property
    def holding(self) -> "Leftovers":
        """The part that keeps the pod from running or from going: without annotations and labels."""
        return replace(self, annotations=(), labels=())

    def patch(self) -> dict[str, Any]:
        """The merge patch that removes everything of ours, by the pod's uid and resourceVersion."""
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
    """What topomend wrote on this Pod object."""
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
