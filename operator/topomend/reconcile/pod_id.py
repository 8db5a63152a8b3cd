"""The keys by which the operator remembers pods: one in the work queue, and those whose failures count together."""

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


@dataclass(frozen=True, slots=True)
class WorkloadID:
    """A pod and those that take its place: those of a controller, by its uid, or a bare pod, by the first one's name.

    Whoever makes a pod writes its owner's uid, which may be any text: the uid of another namespace's controller, or
    what looks like the name of a bare pod. So neither is a key without the namespace, and each has its own field.
    """

    namespace: str
    owner: str = ""
    name: str = ""

    @classmethod
    def of(cls, pod: WatchedPod) -> "WorkloadID":
        """That of a watched pod."""
        if pod.owner:
            return cls(pod.namespace, owner=pod.owner.uid)
        return cls(pod.namespace, name=pod.name.removesuffix(f"-r{pod.attempt}") if pod.attempt else pod.name)
