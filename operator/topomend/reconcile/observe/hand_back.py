"""Ends what an operator of mode relaunch has begun, for one that observes: nothing of it is in force, no pod is held.

An operator that observes would leave a gated pod waiting for ever, and a pod whose only copy is its record. So while
anything of that kind is left, this writes, and nothing else of such an operator does. It writes only while it holds the
Lease: not beside an operator that still acts. Where nothing is left, nothing is written, not even the Lease. Where the
rights are missing, as with the component ``observe``, each held pod gets an Event that says what lets it go.

Owns when that is. Leaves what is done about one pod or record to ``drain``, which keeps the user's annotations here.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

from topomend.drain.journal import Journal
from topomend.drain.leftovers import Leftovers, leftovers
from topomend.drain.pods import Pods
from topomend.drain.relaunches import Relaunches
from topomend.gating.definitions import Installation
from topomend.gating.withdrawal import Left, Withdrawal
from topomend.kube.client import Client
from topomend.kube.errors import Forbidden, NotFound, NotPermitted
from topomend.kube.resources import PODS
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.store import Store
from topomend.relaunch.placeholder import LABELS
from topomend.runtime.leader_election import LeaderElection
from topomend.wire.group import GROUP

LOOK_SECONDS = 30.0
"""How often it is looked for what is in force. Held pods are seen at once."""

RETRY_SECONDS = 30.0
"""When to try again after an attempt that left something."""

_SELECTOR = ",".join(f"{key}={value}" for key, value in LABELS.items())

_UNFINISHED = "status.phase!=Running"

_log = logging.getLogger(__name__)


class HandBack:
    """``client`` may write anything; ``election`` is None where operators do not take turns. For one thread."""

    def __init__(  # noqa: PLR0913  what it looks at and by whose leave it writes
        self,
        client: Client,
        store: Store,
        announcer: Announcer,
        installation: Installation,
        *,
        election: LeaderElection | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        writing = client.writing_while(election.leads) if election else client
        self._client, self._store, self._announcer, self._election = writing, store, announcer, election
        self._namespace, self._clock = installation.namespace, clock
        self._withdrawal = Withdrawal(writing, installation)
        self._look_due = self._retry_due = float("-inf")
        self._in_force: list[Left] = []
        self._found: tuple[Leftovers, ...] | None = None

    def ensure(self) -> None:
        """Look what is left, and end it. Raises APIError if that cannot be found out."""
        self._look()
        if not (self._in_force or self._found or self._is_any_held()):
            self._stand_by()
        elif self._clock() >= self._retry_due and self._may_write():
            self._retry_due = self._clock() + RETRY_SECONDS
            # There may be more to end than the Lease is valid for.
            with self._election.renewing() if self._election else nullcontext():
                self._end()

    def close(self) -> None:
        """End, and give the Lease back."""
        self._stand_by()

    def _look(self) -> None:
        if self._clock() < self._look_due:
            return
        self._look_due = self._clock() + LOOK_SECONDS
        try:
            self._in_force = self._withdrawal.left()
        except Forbidden as error:
            _log.debug("it is not known what gates new pods: %s", error)
        self._found = self._find_all() if self._found != () else self._find_placeholders()

    def _find_all(self) -> tuple[Leftovers, ...]:
        """The pods that are held, also those that the snapshot has not because it cannot read them."""
        return self._client.read(PODS, _holding, fields=_UNFINISHED).items

    def _find_placeholders(self) -> tuple[Leftovers, ...]:
        """Those that an operator of mode relaunch has created since."""
        return self._client.read(PODS, _holding, namespace=self._namespace, labels=_SELECTOR).items

    def _is_any_held(self) -> bool:
        return bool(self._store.snapshot.relaunches) or any(True for _ in self._held())

    def _held(self) -> Iterator[WatchedPod]:
        """The pods with a gate or a finalizer of ours."""
        snapshot = self._store.snapshot
        yield from snapshot.gated.values()
        others = [refusal.pod for refusal in snapshot.refused.values()]
        others += [unbound.pod for unbound in snapshot.unbound.values()]
        yield from (pod for pod in others if any(name.startswith(f"{GROUP}/") for name in pod.finalizers))

    def _may_write(self) -> bool:
        """Whether no other operator acts, and this one may."""
        if self._election is None:
            return True
        self._election.try_acquire_or_renew()
        if self._election.complaint:
            self._tell(f"Lease: {self._election.complaint}")
        return self._election.leads()

    def _stand_by(self) -> None:
        """Give the Lease back, if it was taken."""
        if self._election and self._election.leads():
            self._election.stop()

    def _end(self) -> None:
        journal = Journal(_log.info, dry=False)
        relaunches = Relaunches(self._client, journal)
        pods = Pods(self._client, relaunches, journal, holding=True)
        try:
            for left in self._in_force:
                self._withdrawal.take_back(left)
            if self._store.snapshot.relaunches:
                relaunches.end_all()
            pods.clean({pod.uid: pod for pod in (*(self._found or ()), *self._read_held())}.values())
        except Forbidden as error:
            self._tell(str(error))
            return
        except NotPermitted as error:
            _log.debug("what mode relaunch has left is taken back later: %s", error)
            return
        for thing, why in journal.remaining:
            self._tell(f"{thing}: {why}")
        if not journal.remaining:
            self._found = None
            self._look_due = self._retry_due = float("-inf")

    def _read_held(self) -> Iterator[Leftovers]:
        for pod in list(self._held()):
            try:
                yield from _holding(self._client.get(PODS, pod.name, pod.namespace))
            except NotFound:
                continue

    def _tell(self, why: str) -> None:
        """Say that something is left, in the log and on each held pod."""
        self._retry_due = self._clock() + RETRY_SECONDS
        _log.warning("what mode relaunch has left is not taken back: %s; run: kubectl numa drain", why)
        for pod in self._held():
            self._announcer.held_in_vain(pod, why)


def _holding(content: Mapping[str, Any]) -> Iterator[Leftovers]:
    """What of this Pod object keeps the pod from running or from going, if anything of ours does."""
    pod = leftovers(content).holding
    if pod.any:
        yield pod
