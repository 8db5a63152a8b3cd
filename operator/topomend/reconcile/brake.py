"""The storm brake: a list of controllers whose new pods the API server gates, in a Brake object that its policy reads.

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topomend.kube.client import BRAKES, MUTATING_ADMISSION_POLICIES, Client
from topomend.kube.errors import AlreadyExists, APIError, Forbidden, Invalid, NotFound
from topomend.model.bounded_dict import BoundedDict
from topomend.model.cluster import Owner, WatchedPod
from topomend.wire.group import BRAKE, BRAKE_NAME, UNGATED_NAMESPACES

NAME = BRAKE_NAME
QUIET_SECONDS = 60.0

IN_FORCE_SECONDS = 2.0
"""If a listed controller's pods are created ungated after this long, somebody emptied the list: it is written again."""

CHECK_SECONDS = 60.0
REMEMBERED = 10_000

NO_POLICIES = (
    "the API server has no MutatingAdmissionPolicy, so new pods cannot be gated; it is enabled from Kubernetes 1.36 on"
)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Listed:
    """When a controller was listed, and when one of its pods was last refused or gated; in seconds."""

    written: float
    last_needed: float


class Brake:
    """Keeps the list. ``namespace`` is the operator's. May be used by several threads."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._owners: dict[str, _Listed] | None = None
        self._counted: BoundedDict[str, None] = BoundedDict(REMEMBERED)
        self._gates, self._checked = False, float("-inf")
        self._lock = threading.Lock()

    def engage(self, pod: WatchedPod) -> str:
        """List the controller of a refused pod, so that its new pods are gated.

        Returns the reason if it cannot be listed, empty if it is, or if its namespace is never gated. Refused pods are
        relaunched in either case. A refused pod counts once, although some exist for hours. Raises APIError.
        """
        with self._lock:
            if pod.owner is None or pod.uid in self._counted or pod.namespace in UNGATED_NAMESPACES:
                return ""
            problem = self._list(pod.owner, pod) if self._gates_pods() else NO_POLICIES
            if not problem:
                self._counted[pod.uid] = None
            return problem

    def _list(self, owner: Owner, pod: WatchedPod) -> str:
        owners, now = self._listed(), time.monotonic()
        listed = owners.get(owner.uid)
        if listed is None or (not pod.released and now - listed.written > IN_FORCE_SECONDS):
            name = f"{pod.namespace}/{owner.kind}/{owner.name}"
            problem = self._write({owner.uid: name})
            if problem:
                return problem
            _log.info("new pods of %s are gated until a node admits them", name)
            listed = owners[owner.uid] = _Listed(now, now)
        listed.last_needed = now
        return ""

    def _gates_pods(self) -> bool:
        """Whether the API server has mutating policies. Checked again while it has none: it may be upgraded."""
        now = time.monotonic()
        if not self._gates and now - self._checked > CHECK_SECONDS:
            self._gates, self._checked = self._client.serves(MUTATING_ADMISSION_POLICIES), now
            if not self._gates:
                _log.warning("the storm brake is off: %s", NO_POLICIES)
        return self._gates

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
            if not self._gates_pods():
                return
            owners, now = self._listed(), time.monotonic()
            for uid in still_gated:
                if uid in owners:
                    owners[uid].last_needed = now
            admitted = [uid for uid, listed in owners.items() if listed.last_needed < now - QUIET_SECONDS]
            if admitted and not self._write(dict.fromkeys(admitted)):
                for uid in admitted:
                    del owners[uid]

    def _listed(self) -> dict[str, _Listed]:
        """The list. It is read once; a controller that an earlier operator listed counts as just refused."""
        if self._owners is None:
            uids: Iterable[str] = ()
            try:
                uids = self._client.get(BRAKES, NAME, self._namespace).get("owners") or {}
            except NotFound:
                self._create({})  # the API server notices a change sooner than a new object
            except Forbidden as error:
                _log.warning("the storm brake is off: %s", error)
            now = time.monotonic()
            self._owners = {uid: _Listed(now, now) for uid in uids}
        return self._owners

    def _write(self, owners: Mapping[str, str | None]) -> str:
        """Change the list: names by uid, None to remove. Returns the reason if it cannot be changed, else empty."""
        try:
            self._client.merge(BRAKES, NAME, {"owners": owners}, self._namespace)
        except NotFound:
            return self._create(owners)
        except (Forbidden, Invalid) as error:
            return self._off(error)
        return ""

    def _create(self, owners: Mapping[str, str | None]) -> str:
        content = {
            "apiVersion": BRAKES.api_version,
            "kind": BRAKE,
            "metadata": {"name": NAME, "namespace": self._namespace},
            "owners": {uid: name for uid, name in owners.items() if name is not None},
        }
        try:
            self._client.create(BRAKES, content, self._namespace)
        except AlreadyExists:
            return self._write(owners) if owners else ""  # another thread was faster (reconcile/parameters.py)
        except APIError as error:
            return self._off(error)
        return ""

    def _off(self, error: APIError) -> str:
        problem = (
            f"Brake {self._namespace}/{NAME}, the list of controllers whose new pods are gated, cannot be written: "
            f"{error}"
        )
        _log.warning("the storm brake is off: %s", problem)
        return problem
