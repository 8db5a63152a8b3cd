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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from topomend.kube.client import BRAKES, Client
from topomend.kube.errors import AlreadyExists, APIError, Forbidden, Invalid, NotFound
from topomend.model.bounded_dict import BoundedDict
from topomend.model.cluster import Owner, WatchedPod
from topomend.reconcile import owners
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
    """A controller's namespace, when it was listed, and when a pod of it was last refused or gated; in seconds."""

    namespace: str
    written: float
    last_needed: float


class Brake:
    """Keeps the list. ``namespace`` is the operator's. May be used by several threads.

    ``why_not_gating`` says why no new pod can be gated, empty if it can; it may raise APIError.
    """

    def __init__(self, client: Client, namespace: str, why_not_gating: Callable[[], str]) -> None:
        self._client, self._namespace, self._why_not_gating = client, namespace, why_not_gating
        self._owners: dict[str, _Listed] | None = None
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
        with self._lock:
            if problem := self._why_off():
                return problem
            is_known = owner.uid in self._listed()
        # Without the lock: what strangers write on their pods must not delay other controllers.
        try:
            is_real = is_known or owners.exists(self._client, owner, pod.namespace)
        except owners.NotReadable as error:
            return str(error)
        with self._lock:
            problem = self._list(owner, pod) if is_real else ""
            if not problem:
                self._counted[pod.uid] = None
            return problem

    def _list(self, owner: Owner, pod: WatchedPod) -> str:
        listed_owners, now = self._listed(), time.monotonic()
        listed = listed_owners.get(owner.uid)
        if listed and listed.namespace != pod.namespace:
            return ""  # a reference to a controller of another namespace
        if listed is None and self._is_full(pod.namespace):
            return f"{MOST_OF_A_NAMESPACE} controllers of namespace {pod.namespace} are braked, which is the most"
        if listed is None or (not pod.released and now - listed.written > IN_FORCE_SECONDS):
            name = f"{pod.namespace}/{owner.kind}/{owner.name}"
            given_up = self._given_up(owner.uid)
            problem = self._write({owner.uid: name[:_LONGEST_TEXT], **dict.fromkeys(given_up)})
            if problem:
                return problem
            _log.info("new pods of %s are gated until a node admits them", name)
            for uid in given_up:
                del listed_owners[uid]
            listed = listed_owners[owner.uid] = _Listed(pod.namespace, now, now)
        listed.last_needed = now
        return ""

    def _given_up(self, owner_uid: str) -> list[str]:
        """The controller that leaves a full list for another: of the namespace with most the one needed least lately.

        Whoever has many namespaces could otherwise fill the list, and no other storm would be braked.
        """
        listed_owners = self._listed()
        if len(listed_owners) < MOST or owner_uid in listed_owners:
            return []
        ((crowded, _),) = Counter(listed.namespace for listed in listed_owners.values()).most_common(1)
        of_it = [uid for uid, listed in listed_owners.items() if listed.namespace == crowded]
        return [min(of_it, key=lambda uid: listed_owners[uid].last_needed)]

    def _is_full(self, namespace: str) -> bool:
        return sum(listed.namespace == namespace for listed in self._listed().values()) >= MOST_OF_A_NAMESPACE

    def _why_off(self) -> str:
        """Why the list has no effect; empty if it has."""
        problem = self._why_not_gating()
        if problem and problem != self._off_because:
            _log.warning("the storm brake is off: %s", problem)
        self._off_because = problem
        return problem

    def lists(self, owner_uid: str) -> bool:
        """Whether this operator has the controller on its list."""
        with self._lock:
            return owner_uid in (self._owners or ())

    def forget(self) -> None:
        """Forget the list, so that it is read again: another operator may have changed it."""
        with self._lock:
            self._owners = None

    def release(self, still_gated: Iterable[str]) -> None:
        """Remove controllers whose pods are admitted again. Raises APIError.

        ``still_gated`` are the uids of controllers that have gated pods.
        """
        with self._lock:
            if self._why_off():
                return
            listed_owners, now = self._listed(), time.monotonic()
            for uid in still_gated if listed_owners else ():
                if uid in listed_owners:
                    listed_owners[uid].last_needed = now
            admitted = [uid for uid, listed in listed_owners.items() if listed.last_needed < now - QUIET_SECONDS]
            if admitted and not self._write(dict.fromkeys(admitted)):
                for uid in admitted:
                    del listed_owners[uid]

    def _listed(self) -> dict[str, _Listed]:
        """The list. It is read once; a controller that an earlier operator listed counts as just refused."""
        if self._owners is None:
            names: Mapping[str, str] = {}
            try:
                names = self._client.get(BRAKES, NAME, self._namespace).get("owners") or {}
            except NotFound:
                self._create({})  # the API server notices a change sooner than a new object
            except Forbidden as error:
                _log.warning("the storm brake is off: %s", error)
            now = time.monotonic()
            self._owners = {uid: _Listed(name.partition("/")[0], now, now) for uid, name in names.items()}
        return self._owners

    def _write(self, changes: Mapping[str, str | None]) -> str:
        """Change the list: names by uid, None to remove. Returns the reason if it cannot be changed, else empty."""
        try:
            self._client.merge(BRAKES, NAME, {"owners": changes}, self._namespace)
        except NotFound:
            return self._create(changes)
        except (Forbidden, Invalid) as error:
            return self._off(error)
        return ""

    def _create(self, changes: Mapping[str, str | None]) -> str:
        content = {
            "apiVersion": BRAKES.api_version,
            "kind": BRAKE,
            "metadata": {"name": NAME, "namespace": self._namespace},
            "owners": {uid: name for uid, name in changes.items() if name is not None},
        }
        try:
            self._client.create(BRAKES, content, self._namespace)
        except AlreadyExists:
            return self._write(changes) if changes else ""  # another thread was faster (gating/parameters.py)
        except APIError as error:
            return self._off(error)
        return ""

    def _is_brakable(self, pod: WatchedPod, owner: Owner) -> bool:
        """Whether the policy may gate pods like this one, and its reference to an owner may be a real one."""
        is_gated_namespace = pod.namespace not in (*UNGATED_NAMESPACES, self._namespace)
        return is_gated_namespace and not pod.critical and owners.is_wellformed(owner)

    def _off(self, error: APIError) -> str:
        problem = (
            f"Brake {self._namespace}/{NAME}, the list of controllers whose new pods are gated, cannot be written: "
            f"{error}"
        )
        _log.warning("the storm brake is off: %s", problem)
        return problem
