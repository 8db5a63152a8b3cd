"""The parameter objects of the gating policies: they exist while an operator exists that can ungate pods.

A policy without its parameter object gates nothing. Every operator that runs in a pod, leader or not, makes its pod an
owner of both objects. The garbage collector deletes them after the last of those pods, and new pods are no longer
gated. An operator outside of a pod has no owner to name: objects that it creates remain until a user deletes them.
"""

import logging
from typing import Any

from topomend.kube.client import BRAKES, STEERINGS, Client, Resource
from topomend.kube.errors import APIError, Forbidden, Invalid, MethodNotAllowed, NotFound
from topomend.wire.group import BRAKE, BRAKE_NAME, STEERING, STEERING_NAME

ENSURE_SECONDS = 5.0
"""The interval of the checks. A check reads two small objects."""

_PARAMETERS = ((BRAKES, BRAKE, BRAKE_NAME), (STEERINGS, STEERING, STEERING_NAME))

_log = logging.getLogger(__name__)


class Parameters:
    """Keeps both objects in ``namespace``, the operator's own.

    ``client`` must be able to write without leading. ``pod_name`` and ``pod_uid`` are those of the operator's own pod,
    empty if it does not run in one.
    """

    def __init__(self, client: Client, namespace: str, pod_name: str, pod_uid: str) -> None:
        self._client, self._namespace = client, namespace
        self._owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod_uid} if pod_uid else None
        self._problems: dict[str, str] = {}
        self.ensured = False
        """Whether the API server has answered for both objects: each names this pod as an owner, or cannot exist."""

    def ensure(self) -> None:
        """Create each object that is missing, and add this pod as an owner. Raises APIError if no answer arrives."""
        for resource, kind, name in _PARAMETERS:
            try:
                self._ensure(resource, kind, name)
                self._problems.pop(name, None)
            except (Forbidden, Invalid, MethodNotAllowed, NotFound) as error:
                self._complain(f"{kind} {self._namespace}/{name}", name, error)
        self.ensured = True

    def _ensure(self, resource: Resource, kind: str, name: str) -> None:
        try:
            parameter = self._client.get(resource, name, self._namespace)
        except NotFound:
            parameter = self._create(resource, kind, name)
        owners = parameter["metadata"].get("ownerReferences", [])
        if self._owner is None or any(owner.get("uid") == self._owner["uid"] for owner in owners):
            return
        metadata = {
            "resourceVersion": parameter["metadata"]["resourceVersion"],
            "ownerReferences": [*owners, self._owner],
        }
        self._client.merge(resource, name, {"metadata": metadata}, self._namespace)
        _log.info("this pod is now an owner of %s %s/%s", kind, self._namespace, name)

    def _create(self, resource: Resource, kind: str, name: str) -> dict[str, Any]:
        owners = {"ownerReferences": [self._owner]} if self._owner else {}
        metadata = {"name": name, "namespace": self._namespace, **owners}
        content = {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata}
        created = self._client.create(resource, content, self._namespace)
        _log.info("created %s %s/%s: its policy gates new pods from now on", kind, self._namespace, name)
        return created

    def _complain(self, what: str, name: str, error: APIError) -> None:
        if self._problems.get(name) != str(error):
            self._problems[name] = str(error)
            _log.warning("%s cannot be created or updated, so its policy gates no pods: %s", what, error)
