"""Stop the gating of new pods: delete webhook configurations, the policies' bindings, and what both read.

The configurations own the policies, so the garbage collector deletes those.
"""

from topomend.drain.journal import Journal
from topomend.kube.client import (
    BRAKES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_WEBHOOKS,
    STEERINGS,
    Client,
    Resource,
)
from topomend.kube.errors import Conflict, NotFound
from topomend.wire.group import BRAKE_NAME, STEERING_NAME

LABELS = "app.kubernetes.io/name=topomend"
"""Of configurations and bindings, whose names an administrator may have given a prefix."""

_IN_FORCE = (MUTATING_WEBHOOKS, MUTATING_ADMISSION_POLICY_BINDINGS)
"""In this order: without its configuration, an operator that still runs installs no policy again."""

_PARAMETERS = ((BRAKES, BRAKE_NAME), (STEERINGS, STEERING_NAME))


class Gating:
    """Webhook configurations, bindings and parameter objects. ``namespace`` is the operator's."""

    def __init__(self, client: Client, namespace: str, journal: Journal) -> None:
        self._client, self._namespace, self._journal = client, namespace, journal

    def stop(self) -> None:
        """Delete configurations and bindings, so that no new pod is gated or stamped. Raises APIError.

        An API server takes up to a second to notice.
        """
        for resource in _IN_FORCE:
            try:
                listed = self._client.list(resource, labels=LABELS).items
            except NotFound:
                continue  # API servers before 1.36 do not know policies
            for content in listed:
                self._delete(resource, content["metadata"]["name"], "")

    def forget(self) -> None:
        """Delete the parameter objects. Call it once no operator runs that would recreate them. Raises APIError."""
        for resource, name in _PARAMETERS:
            self._delete(resource, name, self._namespace)

    def recreated(self) -> str:
        """The first parameter object that exists again, as text; empty where none does. Raises APIError.

        If one does, an operator still runs somewhere.
        """
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
            return  # somebody else deleted or recreated it meanwhile; ``recreated`` looks again
        self._journal.did("gating objects deleted", f"{resource.plural} {name}: deleted, so that no new pod is gated")

    def _read_uid(self, resource: Resource, name: str, namespace: str) -> str:
        try:
            return str(self._client.get(resource, name, namespace)["metadata"]["uid"])
        except NotFound:
            return ""
