"""The storm brake: a list of controllers whose new pods the API server gates, in a Brake object that its policy reads.

Where the API server has no such policies, or has just started, the operator's webhook reads it (``gating``).

A controller replaces a refused pod at once, and the replacement is refused as well. From the first refusal on, the
controller is on the list, and the policy gates its new pods. The operator ungates them one by one for nodes that admit
them. A controller leaves the list after QUIET_SECONDS without a gated or refused pod. A StatefulSet or a Job, which
creates its pods one after another, creates the next one within that time.

Before the list takes effect, a controller creates one more pod as a rule, at most a few. That takes the time from the
kubelet's refusal to the operator's write, and until the API server's cached copy of the list is current.

The list has its own kind instead of a ConfigMap. An API server v1.36 no longer updates its copy of a built-in kind
after the last policy with such a parameter was deleted: policy_source.go:ensureParamsForPolicyLocked (k8s.io/apiserver
pkg/admission/plugin/policy/generic) restarts a shared informer, which does nothing. After topomend is installed a
second time, a ConfigMap would have no effect.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from topomend.base.bounded_dict import BoundedDict
from topomend.kube.client import Client
from topomend.kube.errors import AlreadyExists, Forbidden, Invalid, MethodNotAllowed, NotFound
from topomend.kube.resources import BRAKES
from topomend.model.pods.scheduling import Owner, WatchedPod
from topomend.reconcile.refused import owners
from topomend.wire.group import BRAKE, BRAKE_NAME, UNGATED_NAMESPACES

NAME = BRAKE_NAME
QUIET_SECONDS = 60.0

IN_FORCE_SECONDS = 2.0
"""If a listed controller's pods are created ungated after this long, somebody emptied the list: it is written again."""

REMEMBERED = 10_000

MOST, MOST_OF_A_NAMESPACE = 2_500, 100
"""How many controllers are listed, as the schema of the list allows, and how many of one namespace."""

_LONGEST_TEXT = 400
"""The longest value that the schema of the list allows."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Listed:
    """A controller's name as listed, after its namespace and kind; since when it is listed, when that was last written,
    and when a pod of it was last refused or gated; in seconds. ``refused`` is the pod for which this operator listed
    it."""

    name: str
    since: float
    written: float
    last_needed: float
    refused: str = ""

    @property
    def namespace(self) -> str:
        """The controller's namespace."""
        return self.name.partition("/")[0]


class _List:
    """The list as this operator knows it, by the controllers' uids; None until it has been read."""

    def __init__(self) -> None:
        self.owners: dict[str, _Listed] | None = None


class Brake:
    """Keeps the list. ``namespace`` is the operator's. May be used by several threads.

    ``why_not_gating`` says why no new pod can be gated, empty if it can; it may raise APIError. No lock is held over a
    request: one that is slow delays nobody else. The list is changed before it is written, and back where that fails.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        why_not_gating: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._namespace, self._why_not_gating = client, namespace, why_not_gating
        self._clock, self._list = clock, _List()
        self._counted: BoundedDict[str, None] = BoundedDict(REMEMBERED)
        self._off_because = ""
        self._lock = threading.Lock()

    def engage(self, pod: WatchedPod) -> str:
        """List the controller of a refused pod, so that its new pods are gated.

        Returns the reason if it cannot be listed, empty if it is, or if it is nothing to list: it does not exist, or
        its pods are never gated. Refused pods are relaunched in either case. A refused pod counts once, although some
        exist for hours. Raises APIError.
        """
        owner = pod.owner
        if owner is None or pod.uid in self._counted or not self._is_brakable(pod, owner):
            return ""
        if problem := self._why_off():
            return problem
        listed_owners = self._read_once(self._list)
        try:
            is_real = owner.uid in listed_owners or owners.exists(self._client, owner, pod.namespace)
        except owners.NotReadable as error:
            return str(error)
        problem = self._engage(listed_owners, owner, pod) if is_real else ""
        if not problem:
            with self._lock:
                self._counted[pod.uid] = None
        return problem

    def _engage(self, listed_owners: dict[str, _Listed], owner: Owner, pod: WatchedPod) -> str:
        now, name = self._clock(), f"{pod.namespace}/{owner.kind}/{owner.name}"[:_LONGEST_TEXT]
        with self._lock:
            before = listed_owners.get(owner.uid)
            if before and before.namespace != pod.namespace:
                return ""  # a reference to a controller of another namespace
            if before and (pod.released or now - before.written <= IN_FORCE_SECONDS):
                before.last_needed = now
                return ""
            if before is None and _is_full(listed_owners, pod.namespace):
                return f"{MOST_OF_A_NAMESPACE} controllers of namespace {pod.namespace} are braked, which is the most"
            given_up = {uid: listed_owners.pop(uid) for uid in ([] if before else _given_up(listed_owners))}
            listed = listed_owners[owner.uid] = _Listed(name, before.since if before else now, now, now, pod.name)
        problem = "not written"
        try:
            problem = self._write({owner.uid: name, **dict.fromkeys(given_up)})
        finally:
            if problem:
                self._restore(listed_owners, {**given_up, **({owner.uid: before} if before else {})}, instead_of=listed)
        if not problem:
            _log.info("new pods of %s are gated until a node admits them", name)
        return problem

    def _why_off(self) -> str:
        """Why the list has no effect; empty if it has."""
        problem = self._why_not_gating()
        if problem and problem != self._off_because:
            _log.warning("the storm brake is off: %s", problem)
        self._off_because = problem
        return problem

    def lists(self, pod: WatchedPod) -> bool:
        """Whether this operator has the pod's controller on its list."""
        return _listing_of(pod, self._list.owners or {}) is not None

    def because(self, pod: WatchedPod) -> str:
        """Why a pod is gated whose controller is listed; empty for any other."""
        listed = _listing_of(pod, self._list.owners or {})
        if listed is None or pod.owner is None:
            return ""
        refused = listed.refused or "one of them"
        return f"gated because new pods of {pod.owner.kind} {pod.owner.name} are braked since {refused} was refused"

    def count(self) -> int:
        """How many controllers are listed, as this operator knows."""
        return len(self._list.owners or ())

    def oldest_seconds(self) -> float:
        """For how long this operator has known one of them to be listed, at most; 0 where there is none."""
        listed_owners = (self._list.owners or {}).copy()
        now = self._clock()
        return max((now - listed.since for listed in listed_owners.values()), default=0.0)

    def forget(self) -> None:
        """Forget the list, so that it is read again: another operator may have changed it."""
        self._list = _List()  # a thread that is about to change the former one does not change this

    def release(self, still_gated: Iterable[WatchedPod]) -> None:
        """Remove controllers whose pods are admitted again. Raises APIError.

        ``still_gated`` are the gated pods for which controllers stay on the list. For one thread.
        """
        if self._why_off():
            return
        listed_owners, now = self._read_once(self._list), self._clock()
        for pod in still_gated if listed_owners else ():
            if listed := _listing_of(pod, listed_owners):
                listed.last_needed = now
        if not self._quiet(listed_owners):
            return
        with self._lock:
            removed = {uid: listed_owners.pop(uid) for uid in self._quiet(listed_owners)}
        is_written = False
        try:
            is_written = not self._write(dict.fromkeys(removed))
        finally:
            if not is_written:
                self._restore(listed_owners, removed)
        # Of two writes at once the later is not known: whoever was listed again meanwhile may have been removed.
        again = {uid: listed.name for uid in removed if (listed := listed_owners.get(uid))}
        if is_written and again:
            self._write(again)

    def _quiet(self, listed_owners: dict[str, _Listed]) -> Sequence[str]:
        """The controllers that have had no gated or refused pod for QUIET_SECONDS."""
        latest = self._clock() - QUIET_SECONDS
        return [uid for uid, listed in listed_owners.copy().items() if listed.last_needed < latest]

    def _restore(
        self, listed_owners: dict[str, _Listed], removed: Mapping[str, _Listed], instead_of: _Listed | None = None
    ) -> None:
        """Take a change back that was not written, but for controllers that were listed again meanwhile."""
        with self._lock:
            for uid in [uid for uid, listed in listed_owners.items() if listed is instead_of]:
                del listed_owners[uid]
            for uid, listed in removed.items():
                listed_owners.setdefault(uid, listed)

    def _read_once(self, kept: _List) -> dict[str, _Listed]:
        """The list, read where it was not yet; a controller that an earlier operator listed counts as just refused."""
        if kept.owners is not None:
            return kept.owners
        names: Mapping[str, str] = {}
        try:
            names = self._client.get(BRAKES, NAME, self._namespace).get("owners") or {}
        except NotFound:
            self._write({})  # the API server notices a change sooner than a new object
        except Forbidden as error:
            _log.warning("the storm brake is off: %s", error)
        now = self._clock()
        with self._lock:
            if kept.owners is None:
                kept.owners = {uid: _Listed(name, now, now, now) for uid, name in names.items()}
            return kept.owners

    def _write(self, changes: Mapping[str, str | None]) -> str:
        """Change the list: names by uid, None to remove. Returns the reason if it cannot be changed, else empty.

        Raises other APIErrors, which may pass.
        """
        try:
            self._merge_or_create(changes)
        except (Forbidden, Invalid, MethodNotAllowed, NotFound) as error:
            problem = (
                f"Brake {self._namespace}/{NAME}, the list of controllers whose new pods are gated, cannot be written: "
                f"{error}"
            )
            _log.warning("the storm brake is off: %s", problem)
            return problem
        return ""

    def _merge_or_create(self, changes: Mapping[str, str | None]) -> None:
        with suppress(NotFound):
            self._client.merge(BRAKES, NAME, {"owners": changes}, self._namespace)
            return
        content = {
            "apiVersion": BRAKES.api_version,
            "kind": BRAKE,
            "metadata": {"name": NAME, "namespace": self._namespace},
            "owners": {uid: name for uid, name in changes.items() if name is not None},
        }
        try:
            self._client.create(BRAKES, content, self._namespace)
        except AlreadyExists:  # another thread was faster (gating/parameters.py)
            self._client.merge(BRAKES, NAME, {"owners": changes}, self._namespace)

    def _is_brakable(self, pod: WatchedPod, owner: Owner) -> bool:
        """Whether the policy may gate pods like this one, and its reference to an owner may be a real one."""
        is_gated_namespace = pod.namespace not in (*UNGATED_NAMESPACES, self._namespace)
        return is_gated_namespace and not pod.critical and owners.is_wellformed(owner)


def _listing_of(pod: WatchedPod, listed_owners: Mapping[str, _Listed]) -> _Listed | None:
    """The pod's controller as listed; None where it is not, or is another namespace's, whose uid the pod names."""
    listed = listed_owners.get(pod.owner.uid) if pod.owner else None
    return listed if listed and listed.namespace == pod.namespace else None


def _is_full(listed_owners: Mapping[str, _Listed], namespace: str) -> bool:
    return sum(listed.namespace == namespace for listed in listed_owners.values()) >= MOST_OF_A_NAMESPACE


def _given_up(listed_owners: Mapping[str, _Listed]) -> list[str]:
    """The controller that leaves a full list for another: of the namespace with most the one needed least lately.

    Whoever has many namespaces could otherwise fill the list, and no other storm would be braked.
    """
    if len(listed_owners) < MOST:
        return []
    ((crowded, _),) = Counter(listed.namespace for listed in listed_owners.values()).most_common(1)
    of_it = [uid for uid, listed in listed_owners.items() if listed.namespace == crowded]
    return [min(of_it, key=lambda uid: listed_owners[uid].last_needed)]
