"""The parameter objects of the gating policies: they exist while an operator exists that can ungate pods.

A policy without its parameter object gates nothing. Every operator that runs in a pod, leader or not, makes its pod an
owner of both objects. The garbage collector deletes them after the last of those pods, and new pods are no longer
gated. An operator outside of a pod has no owner to name: objects that it creates remain until a user deletes them.

A pod may exist whose operator does nothing: it hangs, or it crashes at every start. So both objects say until when they
are valid, and only an operator that acts and makes progress renews that. The API server compares that with its own
clock, which each write shows: a clock here that is wrong, or that jumps, is put right by that.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from topomend.kube.client import Client
from topomend.kube.errors import APIError, Forbidden, Invalid, MethodNotAllowed, NotFound
from topomend.kube.resources import BRAKES, STEERINGS, Resource
from topomend.runtime.timestamp import timestamp
from topomend.wire.group import BRAKE, BRAKE_NAME, STEERING, STEERING_NAME

ENSURE_SECONDS = 5.0
"""The interval of the checks. A check reads two small objects."""

VALID_SECONDS = 600.0
"""How long the policies gate pods after the last renewal: longer than an upgrade of the operator or of the API server
takes, and short enough for somebody who waits for a pod."""

RENEW_SECONDS = 60.0

WRONG_SECONDS = 30.0
"""By how much the clock here may differ from that of the API server before it is put right."""

_PARAMETERS = ((BRAKES, BRAKE, BRAKE_NAME), (STEERINGS, STEERING, STEERING_NAME))

_log = logging.getLogger(__name__)


class Parameters:
    """Keeps both objects in ``namespace``, the operator's own.

    ``client`` must be able to write without leading. ``pod_name`` and ``pod_uid`` are those of the operator's own pod,
    empty if it does not run in one. ``found`` gets each object as it was found, and when it was asked for by
    ``time.monotonic``.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        pod_name: str,
        pod_uid: str,
        found: Callable[[Resource, dict[str, Any], float], None],
    ) -> None:
        self._client, self._namespace, self._found = client, namespace, found
        self._owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod_uid} if pod_uid else None
        self._problems: dict[str, str] = {}
        self._late = timedelta()
        self.ensured = False
        """Whether the API server has answered for both objects: each names this pod as an owner, or cannot exist."""

    def ensure(self, *, renews: bool = True) -> None:
        """Create each object that is missing, and add this pod as an owner. Raises APIError if no answer arrives.

        ``renews`` is whether this operator ungates pods, so that the objects stay valid.
        """
        for resource, kind, name in _PARAMETERS:
            try:
                self._ensure(resource, kind, name, renews=renews)
                self._problems.pop(name, None)
            except (Forbidden, Invalid, MethodNotAllowed, NotFound) as error:
                self._complain(f"{kind} {self._namespace}/{name}", name, error)
        self.ensured = True

    def _ensure(self, resource: Resource, kind: str, name: str, *, renews: bool) -> None:
        asked = time.monotonic()
        try:
            parameter = self._client.get(resource, name, self._namespace)
        except NotFound:
            parameter = self._create(resource, kind, name)
        self._found(resource, parameter, asked)
        owners = parameter["metadata"].get("ownerReferences", [])
        patch: dict[str, Any] = {}
        if self._owner is not None and all(owner.get("uid") != self._owner["uid"] for owner in owners):
            patch["metadata"] = {"ownerReferences": [*owners, self._owner]}
        if renews and not self._is_valid(parameter.get("validUntil", "")):
            patch["validUntil"] = self._in(VALID_SECONDS)
        if not patch:
            return
        patch.setdefault("metadata", {})["resourceVersion"] = parameter["metadata"]["resourceVersion"]
        self._learn_time(self._client.merge(resource, name, patch, self._namespace))
        if "ownerReferences" in patch["metadata"]:
            _log.info("this pod is now an owner of %s %s/%s", kind, self._namespace, name)

    def _create(self, resource: Resource, kind: str, name: str) -> dict[str, Any]:
        owners = {"ownerReferences": [self._owner]} if self._owner else {}
        metadata = {"name": name, "namespace": self._namespace, **owners}
        content = {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata}
        content["validUntil"] = self._in(VALID_SECONDS)
        created = self._client.create(resource, content, self._namespace)
        self._learn_time(created)
        _log.info("created %s %s/%s: its policy gates new pods from now on", kind, self._namespace, name)
        return created

    def _is_valid(self, until: str) -> bool:
        """Whether that need not be renewed: neither soon over nor, by a clock that was wrong, later than it may be."""
        return self._in(VALID_SECONDS - RENEW_SECONDS) <= until <= self._in(VALID_SECONDS + RENEW_SECONDS)

    def _in(self, seconds: float) -> str:
        """The time so many seconds from now by the API server's clock. Texts of such times are in the order of the
        times."""
        return timestamp(datetime.now(UTC) + self._late + timedelta(seconds=seconds))

    def _learn_time(self, written: dict[str, Any]) -> None:
        """Compare the clock here with that by which the API server has noted this write, the last of the object.

        It notes none of an object that was created without a field of its own
        (apimachinery pkg/util/managedfields/internal/skipnonapplied.go): then nothing is learnt.
        """
        times = [entry.get("time", "") for entry in written["metadata"].get("managedFields", [])]
        try:
            noted = datetime.fromisoformat(max(times, default=""))
        except ValueError:
            return
        late = noted - datetime.now(UTC)
        is_wrong, was_wrong = abs(late) > timedelta(seconds=WRONG_SECONDS), bool(self._late)
        self._late = late if is_wrong else timedelta()
        if is_wrong and not was_wrong:
            _log.warning(
                "the clock of this machine is %.0f s behind that of the API server (negative: ahead), by which the "
                "gating policies are valid; put it right",
                late.total_seconds(),
            )

    def _complain(self, parameter: str, name: str, error: APIError) -> None:
        if self._problems.get(name) != str(error):
            self._problems[name] = str(error)
            _log.warning("%s cannot be created or updated, so its policy gates no pods: %s", parameter, error)
