"""Stop the gating of new pods: delete webhook configurations, the policies' bindings, and what both read.

The configurations own the policies, so the garbage collector deletes those.
"""

from dataclasses import dataclass

from topomend.drain.journal import Journal
from topomend.kube.client import Client
from topomend.kube.errors import Conflict, NotFound
from topomend.kube.resources import BRAKES, MUTATING_ADMISSION_POLICY_BINDINGS, MUTATING_WEBHOOKS, STEERINGS, Resource
from topomend.wire.group import BRAKE_NAME, STEERING_NAME

LABELS = "app.kubernetes.io/name=topomend"
"""Of configurations and bindings, whose names an administrator may have given a prefix."""

_IN_FORCE = (MUTATING_WEBHOOKS, MUTATING_ADMISSION_POLICY_BINDINGS)
"""In this order: without its configuration, an operator that still runs installs no policy again."""

_PARAMETERS = ((BRAKES, BRAKE_NAME), (STEERINGS, STEERING_NAME))


@dataclass(frozen=True, slots=True)
class Recreated:
    """A parameter object that an operator created again, as text, and the pods that own it: those of operators.

    An operator outside of a pod has no pod to name. The garbage collector deletes an object after its last owner.
    """

    name: str
    pods: tuple[str, ...]


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

    def recreated(self) -> Recreated | None:
        """The first parameter object that exists again; None where none does. Raises APIError.

        If one does, an operator runs somewhere, or has run until a moment ago.
        """
        for resource, name in _PARAMETERS:
            try:
                metadata = self._client.get(resource, name, self._namespace)["metadata"]
            except NotFound:
                continue
            owners = tuple(owner["name"] for owner in metadata.get("ownerReferences", ()) if owner["kind"] == "Pod")
            return Recreated(f"{resource.plural}.topomend.io {self._namespace}/{name}", owners)
        return None

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
