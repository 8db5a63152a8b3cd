"""The storm brake's list: owners whose new pods the API server gates at birth, in a Brake that its policy reads.

A controller whose pod is refused makes the next one at once, to be refused as well. From its first refused pod on, its
owner is on the list, and the policy puts our gate on its new pods; they are let go one by one to where replay says they
fit. An owner leaves the list when for a while none of its pods waited behind the gate and none was refused: one that
makes its pods one after another (StatefulSet, Job) makes the next one in that time.

How many pods are refused before the list is in force is how many the controller makes in the time from the kubelet's
word to the operator's write and on to the API server's own copy of the list: one, as a rule, or two.

The list is of a kind of its own, not a ConfigMap: an API server v1.36 never again renews its copy of a built-in kind
once the last policy with such a parameter was deleted (k8s.io/apiserver pkg/admission/plugin/policy/generic/
policy_source.go:ensureParamsForPolicyLocked starts a shared informer anew, which does nothing), so that the brake of
who installs topomend a second time would never hold.
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
"""A listed owner whose pods are created without the gate after so long is written anew: somebody emptied the list."""

ASK_SECONDS = 60.0
REMEMBERED = 10_000

NO_POLICIES = (
    "this API server has no MutatingAdmissionPolicy (it is on from Kubernetes 1.36), so pods cannot be gated at birth"
)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Listed:
    """When an owner was written on the list, and when one of its pods was refused or gated last."""

    written: float
    held: float


class Brake:
    """Keeps the list. May be used by several threads."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._owners: dict[str, _Listed] | None = None
        self._pressed: BoundedDict[str, None] = BoundedDict(REMEMBERED)
        self._gates, self._asked = False, float("-inf")
        self._lock = threading.Lock()

    def press(self, pod: WatchedPod) -> str:
        """Have the owner's new pods gated; says why it cannot be, empty where it can. Raises APIError.

        A pod counts once: some corpses stay for hours, and are seen again and again. Without the right to, or the
        namespace, or policies at all, pods are relaunched all the same. So are those of namespaces that are not gated.
        """
        with self._lock:
            if pod.owner is None or pod.uid in self._pressed or pod.namespace in UNGATED_NAMESPACES:
                return ""
            problem = self._list(pod.owner, pod) if self._gates_pods() else NO_POLICIES
            if not problem:
                self._pressed[pod.uid] = None
            return problem

    def _list(self, owner: Owner, pod: WatchedPod) -> str:
        owners, now = self._listed(), time.monotonic()
        known = owners.get(owner.uid)
        if known is None or (not pod.released and now - known.written > IN_FORCE_SECONDS):
            name = f"{pod.namespace}/{owner.kind}/{owner.name}"
            problem = self._write({owner.uid: name})
            if problem:
                return problem
            _log.info("new pods of %s are gated until they fit", name)
            known = owners[owner.uid] = _Listed(now, now)
        known.held = now
        return ""

    def _gates_pods(self) -> bool:
        """Whether the API server has policies that gate; asked again while it has none, for it may be upgraded."""
        now = time.monotonic()
        if not self._gates and now - self._asked > ASK_SECONDS:
            self._gates, self._asked = self._client.serves(MUTATING_ADMISSION_POLICIES), now
            if not self._gates:
                _log.warning("the storm brake is off: %s", NO_POLICIES)
        return self._gates

    def forget(self) -> None:
        """Read the list anew: another operator may have changed it."""
        with self._lock:
            self._owners = None

    def ease(self, still_gated: Iterable[str]) -> None:
        """Take the owners off whose pods are admitted again; ``still_gated`` are uids of those with gated pods."""
        with self._lock:
            if not self._gates_pods():
                return
            owners, now = self._listed(), time.monotonic()
            for uid in still_gated:
                if uid in owners:
                    owners[uid].held = now
            admitted = [uid for uid, each in owners.items() if each.held < now - QUIET_SECONDS]
            if admitted and not self._write(dict.fromkeys(admitted)):
                for uid in admitted:
                    del owners[uid]

    def _listed(self) -> dict[str, _Listed]:
        """The list, read once from a life before this one: whoever is on it is as if just refused."""
        if self._owners is None:
            uids: Iterable[str] = ()
            try:
                uids = self._client.get(BRAKES, NAME, self._namespace).get("owners") or {}
            except NotFound:
                self._create({})  # the API server is quicker to see a change than a new object
            except Forbidden as error:
                _log.warning("the storm brake is off: %s", error)
            now = time.monotonic()
            self._owners = {uid: _Listed(now, now) for uid in uids}
        return self._owners

    def _write(self, owners: Mapping[str, str | None]) -> str:
        """Change the list; says why it cannot be."""
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
        problem = f"the list of owners to be gated, Brake {self._namespace}/{NAME}, cannot be written: {error}"
        _log.warning("the storm brake is off: %s", problem)
        return problem
