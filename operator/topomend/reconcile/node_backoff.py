"""Nodes that refused a pod which was placed there: held back from its like until they publish something new.

Its like are the pods of its controller; of a bare pod, its replacements. What the node has not published cannot be
known by replay, so the next pod would be refused for the same.
"""

from topomend.cache.snapshot import Snapshot, is_newer
from topomend.decide.feasibility import ExcludedNodes, backing_off
from topomend.model.bounded_dict import BoundedDict
from topomend.model.cluster import WatchedPod
from topomend.runtime.backoff import Backoff

MAX_ENTRIES = 10_000


class NodeBackoff:
    """Remembers refusals by node. May be used by several threads."""

    def __init__(self, backoff: Backoff) -> None:
        self._back_off = backoff
        self._refused_at: BoundedDict[str, dict[str, str]] = BoundedDict(MAX_ENTRIES)

    def refused(self, pod: WatchedPod) -> None:
        """A pod that the operator has placed was refused."""
        kin = _kin(pod)
        self._back_off.failed(_key(kin, pod.node), pod.uid)
        self._refused_at[kin] = {**self._refused_at.get(kin, {}), pod.node: pod.version}

    def excluded_nodes(self, snapshot: Snapshot, pod: WatchedPod) -> ExcludedNodes:
        """The nodes that are no candidates for the pod now, besides the one that refused the pod itself."""
        return {node: backing_off(node) for node in self._held(snapshot, pod) if node != pod.node}

    def left(self, snapshot: Snapshot, pod: WatchedPod) -> float | None:
        """In how many seconds the first of them is a candidate again; None where there is none."""
        kin = _kin(pod)
        return min((self._back_off.left(_key(kin, node)) for node in self._held(snapshot, pod)), default=None)

    def _held(self, snapshot: Snapshot, pod: WatchedPod) -> list[str]:
        kin = _kin(pod)
        return [
            node
            for node, version in self._refused_at.get(kin, {}).items()
            if self._back_off.left(_key(kin, node)) and not _published_since(snapshot, node, version)
        ]


def _published_since(snapshot: Snapshot, node: str, version: str) -> bool:
    publication = snapshot.publications.get(node)
    return publication is not None and is_newer(publication.version, version)


def _kin(pod: WatchedPod) -> str:
    """What a pod shares with those that come in its place."""
    if pod.owner:
        return pod.owner.uid
    first = pod.name.removesuffix(f"-r{pod.attempt}") if pod.attempt else pod.name
    return f"{pod.namespace}/{first}"


def _key(kin: str, node: str) -> str:
    return f"{kin} {node}"
