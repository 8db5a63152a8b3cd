"""The parameters of the policies that gate pods at birth: there as long as there is an operator to let them go.

A policy without its parameter gates nothing. Every operator that runs in a pod makes its pod an owner of both, be it
the leader or not, so that the garbage collector takes them with the last of those pods, and new pods are created as
ever. One that runs elsewhere has nothing to be owned by: what it makes stays until somebody deletes it.
"""

import logging
from typing import Any

from topomend.kube.client import BRAKES, STEERINGS, Client, Resource
from topomend.kube.errors import APIError, Forbidden, Invalid, MethodNotAllowed, NotFound
from topomend.wire.group import BRAKE, BRAKE_NAME, STEERING, STEERING_NAME

ENSURE_SECONDS = 5.0
"""How often it is looked whether they are there: each look is two requests for small objects."""

_PARAMETERS = ((BRAKES, BRAKE, BRAKE_NAME), (STEERINGS, STEERING, STEERING_NAME))

_log = logging.getLogger(__name__)


class Parameters:
    """Keeps both. ``client`` must be one that may always write; ``namespace`` is the operator's own, and ``pod_name``
    and ``pod_uid`` are the pod's there that it runs in, empty for one that runs in none."""

    def __init__(self, client: Client, namespace: str, pod_name: str, pod_uid: str) -> None:
        self._client, self._namespace = client, namespace
        self._owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod_uid} if pod_uid else None
        self._problems: dict[str, str] = {}
        self.asked = False
        """Whether the API server has answered for both: they are there and ours, or cannot be."""

    def ensure(self) -> None:
        """Make what is missing. Raises APIError where an answer did not come."""
        for resource, kind, name in _PARAMETERS:
            try:
                self._ensure(resource, kind, name)
                self._problems.pop(name, None)
            except (Forbidden, Invalid, MethodNotAllowed, NotFound) as error:
                self._complain(f"{kind} {self._namespace}/{name}", name, error)
        self.asked = True

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
        _log.info("%s %s/%s is owned by this pod too", kind, self._namespace, name)

    def _create(self, resource: Resource, kind: str, name: str) -> dict[str, Any]:
        owners = {"ownerReferences": [self._owner]} if self._owner else {}
        metadata = {"name": name, "namespace": self._namespace, **owners}
        content = {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata}
        made = self._client.create(resource, content, self._namespace)
        _log.info("%s %s/%s is made: pods may be gated at birth", kind, self._namespace, name)
        return made

    def _complain(self, what: str, name: str, error: APIError) -> None:
        if self._problems.get(name) != str(error):
            self._problems[name] = str(error)
            _log.warning("%s, without which its policy gates no pod, cannot be kept: %s", what, error)
