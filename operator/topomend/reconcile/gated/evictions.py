"""Which pods the operator may evict for another one, and their evictions: the API server may keep any of them.

Leaves the choice among them to ``decide/queue/victims``.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from topomend.base.bounded_dict import BoundedDict
from topomend.decide.queue import victims
from topomend.kube.client import Client
from topomend.kube.errors import Conflict, Forbidden, NotFound, Refused
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.gated.budgets import Budgets
from topomend.reconcile.object_faults import concerns_all
from topomend.reconcile.optional_right import OptionalRight
from topomend.wire.group import UNGATED_NAMESPACES

KEPT_SECONDS = 60.0
"""How long a pod stays whose eviction the API server refused, whatever the reason."""

MAX_ENTRIES = 10_000

_log = logging.getLogger(__name__)


class Evictions:
    """Evicts for one thread, by this ``right``. ``is_gated_by_us`` says whether the operator gates the new pods of a
    pod's controller."""

    def __init__(
        self,
        client: Client,
        right: OptionalRight,
        *,
        has_opted_out: Callable[[WatchedPod], bool],
        is_gated_by_us: Callable[[WatchedPod], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._right, self._clock = client, right, clock
        self._has_opted_out, self._is_gated_by_us = has_opted_out, is_gated_by_us
        self._kept: BoundedDict[str, float] = BoundedDict(MAX_ENTRIES)
        self._victims: BoundedDict[str, frozenset[tuple[str, str]]] = BoundedDict(MAX_ENTRIES)
        self.lists = 0
        """How many LISTs were made so far."""

    def among(self, pod: WatchedPod, running: victims.Running) -> victims.Running:
        """The same pods, and which of them the operator does not evict for ``pod``."""
        everybody = [other for pods in running.by_node.values() for other in pods]
        return replace(
            running,
            staying={other.uid for other in everybody if other.uid in running.staying or self._stays(other, pod)},
            returning={other.uid for other in everybody if other.owner and not self._is_gated_by_us(other)},
        )

    def kept(self, chosen: victims.Preemption, priority: int) -> set[str]:
        """The uids of those of the chosen victims that the API server would not evict now. Raises APIError."""
        kept = {victim.uid for victim in chosen.victims if not self.evict(victim, dry_run=True)}
        return kept or self._beyond_budgets(chosen, priority)

    def remember(self, pod: WatchedPod, chosen: Iterable[WatchedPod]) -> None:
        """Evict none of the same controllers again for ``pod``."""
        self._victims[pod.uid] = self._victims.get(pod.uid, frozenset()) | frozenset(map(_workload, chosen))

    def evict(self, victim: WatchedPod, *, dry_run: bool = False) -> bool:
        """Returns whether the victim leaves, or has left; False where the API server keeps it for now.

        A budget keeps it (429), or two of them (500), or somebody else's admission policy (403), or its namespace is
        being deleted (403), and so on: that concerns this victim alone. Raises APIError for what concerns all.
        """
        try:
            self._client.evict(victim.name, victim.namespace, uid=victim.uid, dry_run=dry_run)
        except (NotFound, Conflict):
            return True
        except Refused as error:
            if concerns_all(error) or (isinstance(error, Forbidden) and self._right.is_denied_by(error)):
                raise
            self._kept[victim.uid] = self._clock() + KEPT_SECONDS
            _log.info("%s/%s is not evicted: %s", victim.namespace, victim.name, error)
            return False
        return True

    def _stays(self, other: WatchedPod, pod: WatchedPod) -> bool:
        """Whether ``other`` stays: the cluster needs it, it opted out, nobody may evict it, its controller takes the
        place back, or it has left for ``pod`` already."""
        if other.mirror or other.critical or other.namespace in UNGATED_NAMESPACES or _is_of_a_daemon_set(other):
            return True
        if self._has_opted_out(other):
            return True
        return self._kept.get(other.uid, 0.0) > self._clock() or _workload(other) in self._victims.get(pod.uid, ())

    def _beyond_budgets(self, chosen: victims.Preemption, priority: int) -> set[str]:
        """One victim of each budget that does not allow all of its victims to leave: each dry run is by itself."""
        count = Counter(victim.namespace for victim in chosen.victims)
        several = [victim for victim in chosen.victims if count[victim.namespace] > 1]
        budgets = Budgets(self._client, of_api_server=True)
        try:
            read = budgets.of({chosen.node: several}, priority)
        finally:
            self.lists += budgets.lists
        protected = ((budget, [victim.uid for victim in several if victim.uid in budget.pods]) for budget in read)
        return {max(uids) for budget, uids in protected if len(uids) > max(1, budget.allowed)}


def _workload(pod: WatchedPod) -> tuple[str, str]:
    """What the pod has in common with those that its controller creates in its place.

    Its namespace too: whoever makes a pod writes its owner's uid, which may be that of another namespace's controller.
    """
    return pod.namespace, pod.owner.uid if pod.owner else pod.uid


def _is_of_a_daemon_set(pod: WatchedPod) -> bool:
    """Whether the pod's controller creates another one for the same node at once, which takes the place again."""
    return pod.owner is not None and pod.owner.kind == "DaemonSet"
