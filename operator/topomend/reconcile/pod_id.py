"""The key of the work queue."""

from dataclasses import dataclass

from topomend.model.pods.scheduling import WatchedPod


@dataclass(frozen=True, slots=True)
class PodID:
    """A refused or gated pod. The uid distinguishes it from a later pod of the same name."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, pod: WatchedPod) -> "PodID":
        """That of a watched pod."""
        return cls(pod.namespace, pod.name, pod.uid)
