"""When no pod is moved: while a cluster changes, an eviction would be one change more that nobody can foresee.

Owns what counts as a change and how long a pool rests after it. Leaves what follows to ``campaign``.
"""

import time
from collections.abc import Callable, Mapping

from topomend.cache.snapshot import Snapshot
from topomend.decide.queue.victims import undecided_nodes
from topomend.model.nodes.node_pool import pools_of
from topomend.reconcile.store import Store

QUIET_SECONDS = 600.0
"""How long a pool rests after one of its nodes has changed, and all of them after a refusal."""

LOOK_SECONDS = 5.0
"""How often nodes are looked at: on 5,000 that takes some milliseconds."""

_Seen = tuple[str, tuple[object, ...]]
"""A node's pool, and what counts as a change of it."""


class Quiet:
    """For one thread. ``preempting`` says whether places are held for which pods were evicted."""

    def __init__(
        self, store: Store, preempting: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._preempting, self._clock = store, preempting, clock
        self._seen: Mapping[str, _Seen] = {}
        self._looked = float("-inf")
        self._resting: dict[str, float] = {}

    def forget(self) -> None:
        """Another operator has led since: what has changed meanwhile is not known."""
        self._seen, self._looked = {}, float("-inf")

    def rest(self, pool: str, seconds: float) -> None:
        """No pod of the pool is moved for so long."""
        self._resting[pool] = max(self._resting.get(pool, 0.0), self._clock() + seconds)

    def look(self) -> None:
        """Note which pools have changed since the last look: a node came or went, is ready or not, cordoned, tainted,
        larger or smaller, or its agent is believed or not."""
        if self._clock() < self._looked + LOOK_SECONDS:
            return
        self._looked, now = self._clock(), _nodes(self._store.snapshot)
        for name in {name for name in now.keys() | self._seen.keys() if now.get(name) != self._seen.get(name)}:
            for pool, _ in filter(None, (now.get(name), self._seen.get(name))):
                self.rest(pool, QUIET_SECONDS)
        self._seen = now

    def pools(self) -> tuple[str, ...]:
        """The pools of which pods may be moved now."""
        snapshot, now = self._store.snapshot, self._clock()
        pool_of = {name: pool for name, (pool, _) in self._seen.items()}
        mispredicted = {pool_of.get(name) for name in snapshot.mismatches}
        resting = {pool for pool, until in self._resting.items() if now < until}
        return tuple(sorted(set(pool_of.values()) - resting - mispredicted))

    def why_not(self) -> str:
        """Why no pod of any pool is moved now; empty where one may be."""
        snapshot, now = self._store.snapshot, self._clock()
        if any(not record.step.ended for record in snapshot.relaunches.values()):
            return "a refused pod is being relaunched"
        if any(now < refusal.first_seen + QUIET_SECONDS for refusal in snapshot.refused.values()):
            return "a kubelet has refused a pod lately"
        if self._preempting() or any(pod.nominated for pod in snapshot.gated.values()):
            return "places are held for pods for which others were evicted"
        return "kube-scheduler evicts pods for others" if undecided_nodes(snapshot) else ""


def _nodes(snapshot: Snapshot) -> Mapping[str, _Seen]:
    pools = pools_of(snapshot.nodes.values())
    return {
        name: (
            pools[name],
            (
                node.uid,
                node.taints,
                node.unschedulable,
                node.ready,
                node.allocatable,
                bool(snapshot.why_unknown(name)),
            ),
        )
        for name, node in snapshot.nodes.items()
    }
