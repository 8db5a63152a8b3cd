"""Read a Pod object as the operator keeps it, within the memory that there is for pods.

Of a pod whatever decides about its nodes is kept: a few bytes may become hundreds, and a user writes them. Leaves the
fields of the object to ``wire``.
"""

from collections.abc import Iterator
from typing import Any

from topomend.cache.changes.pods import ENDED
from topomend.cache.changes.totals import PodOnNode, TotalsUnknown
from topomend.cache.entries import PodCounted
from topomend.cache.memory_budget import MemoryBudget
from topomend.model.pods.scheduling import WatchedPod
from topomend.wire.document import Document, MalformedObject
from topomend.wire.group import GROUP
from topomend.wire.pods.pod_usage import read_usage, was_resized
from topomend.wire.pods.scheduling import check_size, read_checked_pod

ORDINARY_BYTES = 8 << 10
"""A pod of no more memory is always kept. One of a single container takes three KiB, each further one half of one."""

ROOM_BYTES = 64 << 20
"""The memory for all pods that are larger, of which one namespace may take half."""

NO_ROOM = "spec: too large to be kept beside the other large pods, so topomend leaves the pod alone"

_BASE_BYTES = 2_500
_VALUE_BYTES = 100
"""What a pod of nothing takes, and each value, list and object in it."""


class PodReader:
    """Reads the objects of all pods. ``budget`` is the memory for large ones, by default all that the operator has."""

    def __init__(self, budget: MemoryBudget | None = None) -> None:
        self._budget = budget or MemoryBudget(ROOM_BYTES, ORDINARY_BYTES, ROOM_BYTES // 2)

    def kept(self, content: dict[str, Any], known: WatchedPod | None = None) -> WatchedPod:
        """The pod of a Pod object: ``known`` itself, where that is the same version.

        Raises MalformedObject, also for one for which there is no room, and that at once.
        """
        metadata = Document(content)["metadata"]
        version, namespace = metadata["resourceVersion"].text(""), metadata["namespace"].text("")
        if known and version and (known.uid, known.version) == (metadata["uid"].text(""), version):
            return known
        check_size(Document(content)["spec"])
        size = kept_bytes(content)
        if not self._budget.has_room(size, namespace):
            raise MalformedObject(NO_ROOM)
        pod = read_checked_pod(content)
        self._budget.take(pod, size, namespace)
        return pod


def counted_pod(content: dict[str, Any], *, gone: bool, entered: bool) -> PodOnNode | TotalsUnknown | None:
    """What a Pod object that a watch brought means for the totals of its node; None for one without a node.

    ``gone`` and ``entered`` are as in ``PodCounted``. However odd the pod is, the scheduler counts it. One that was
    resized may have been counted with other requests than it has at its end, so nothing is known then.
    """
    metadata, node = content["metadata"], (content.get("spec") or {}).get("nodeName")
    if not node:
        return None
    ended = (content.get("status") or {}).get("phase") in ENDED
    if ended and entered and was_resized(content):
        return TotalsUnknown(node)
    usage = {} if gone else read_usage(content)
    version, uid = metadata["resourceVersion"], metadata.get("uid", "")
    return PodOnNode(node, PodCounted(uid, version, usage, ended=ended, gone=gone, entered=entered))


def kept_bytes(content: dict[str, Any]) -> int:
    """About the memory that is taken by what is kept of a Pod object. Raises MalformedObject."""
    total, waiting = _BASE_BYTES, list(_decisive_parts(Document(content)))
    while waiting:
        part = waiting.pop()
        total += _VALUE_BYTES
        if isinstance(part, dict):
            total += sum(map(len, part))
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
        elif isinstance(part, str):
            total += len(part)
    return total


def _decisive_parts(pod: Document) -> Iterator[object]:
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    yield from (metadata[name].content for name in ("ownerReferences", "finalizers"))
    yield from (value.content for key, value in metadata["annotations"].fields() if key.startswith(GROUP))
    yield from (status[name].content for name in ("reason", "message"))
    yield from (spec[name].content for name in ("nodeSelector", "tolerations", "schedulingGates"))
    yield spec["affinity"]["nodeAffinity"].content
    for kind in ("initContainers", "containers"):
        for container in spec[kind]:
            yield container["name"].content
            yield container["resources"].content
