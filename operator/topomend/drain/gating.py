"""The policies that gate and stamp new pods: their bindings deleted, and the objects that they read."""

from topomend.drain.journal import Journal
from topomend.kube.client import BRAKES, MUTATING_ADMISSION_POLICY_BINDINGS, STEERINGS, Client, Resource
from topomend.kube.errors import Conflict, NotFound
from topomend.wire.group import BRAKE_NAME, CREATOR_NAME, STEERING_NAME

_PARAMETERS = ((BRAKES, BRAKE_NAME), (STEERINGS, STEERING_NAME))


class Gating:
    """Ends it. ``namespace`` is the operator's own."""

    def __init__(self, client: Client, namespace: str, journal: Journal) -> None:
        self._client, self._namespace, self._journal = client, namespace, journal

    def stop(self) -> None:
        """Have no new pod gated or stamped, within the second that an API server takes to notice. Raises APIError."""
        for name in (STEERING_NAME, BRAKE_NAME, CREATOR_NAME):
            self._delete(MUTATING_ADMISSION_POLICY_BINDINGS, name, "")

    def forget(self) -> None:
        """Delete what the policies read, once nobody makes it again. Raises APIError."""
        for resource, name in _PARAMETERS:
            self._delete(resource, name, self._namespace)

    def remade(self) -> str:
        """What of it is there again, empty where nothing is: an operator runs somewhere. Raises APIError."""
        for resource, name in _PARAMETERS:
            if self._read_uid(resource, name, self._namespace):
                return f"{resource.plural}.topomend.io {self._namespace}/{name}"
        return ""

    def _delete(self, resource: Resource, name: str, namespace: str) -> None:
        uid = self._read_uid(resource, name, namespace)
        if not uid:
            return
        try:
            if not self._journal.dry:
                self._client.delete(resource, name, namespace, uid=uid)
        except (NotFound, Conflict):
            return  # somebody else did, or made it anew meanwhile: the next pass looks again
        self._journal.did("gating objects deleted", f"{resource.plural} {name}: deleted, so that no new pod is gated")

    def _read_uid(self, resource: Resource, name: str, namespace: str) -> str:
        try:
            return str(self._client.get(resource, name, namespace)["metadata"]["uid"])
        except NotFound:
            return ""
