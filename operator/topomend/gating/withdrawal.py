"""Takes back what an operator has installed for new pods: policies, bindings, webhooks, and the objects that they read.

For an operator that observes and finds what one of mode relaunch has left. The webhook configurations stay, empty as
the manifests install them. Leaves to ``drain`` what an administrator removes for good.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from topomend.gating.definitions import NAMES, Installation
from topomend.gating.installer import POLICY_KINDS, in_version, served_version
from topomend.kube.client import Client
from topomend.kube.errors import Conflict, NotFound
from topomend.kube.resources import BRAKES, MUTATING_WEBHOOKS, STEERINGS, Resource
from topomend.wire.group import BRAKE_NAME, STEERING_NAME

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Left:
    """An object that is in force for new pods. A webhook configuration is emptied, any other is deleted."""

    kind: Resource
    name: str
    namespace: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind.plural} {self.name}"


class Withdrawal:
    """The objects of one installation."""

    def __init__(self, client: Client, installation: Installation) -> None:
        self._client, self._installation = client, installation

    def left(self) -> list[Left]:
        """What is in force, in the order in which it is to be taken back. Raises APIError."""
        return [*self._webhooks(), *self._policies(), *self._parameters()]

    def take_back(self, left: Left) -> None:
        """Take one object back. Raises APIError."""
        try:
            if left.kind is MUTATING_WEBHOOKS:
                content = {"apiVersion": left.kind.api_version, "kind": "MutatingWebhookConfiguration"}
                metadata = {"name": left.name, "uid": left.uid}
                self._client.apply(left.kind, left.name, {**content, "metadata": metadata})
            else:
                self._client.delete(left.kind, left.name, left.namespace, uid=left.uid)
        except (NotFound, Conflict):
            return  # another operator, or somebody who deletes, was faster; the next look finds what is left
        _log.info("%s is no longer in force for new pods: this operator observes", left)

    def _webhooks(self) -> Iterator[Left]:
        for definition in NAMES:
            name = self._installation.name(definition)
            try:
                configuration = self._client.get(MUTATING_WEBHOOKS, name)
            except NotFound:
                continue
            if configuration.get("webhooks"):
                yield Left(MUTATING_WEBHOOKS, name, "", configuration["metadata"]["uid"])

    def _policies(self) -> Iterator[Left]:
        version = served_version(self._client)
        kinds = [in_version(kind, version) for kind in reversed(POLICY_KINDS)] if version else []
        for kind in kinds:
            for definition in NAMES:
                yield from self._found(kind, self._installation.name(definition))

    def _parameters(self) -> Iterator[Left]:
        for kind, name in ((BRAKES, BRAKE_NAME), (STEERINGS, STEERING_NAME)):
            yield from self._found(kind, name, self._installation.namespace)

    def _found(self, kind: Resource, name: str, namespace: str = "") -> Iterator[Left]:
        try:
            yield Left(kind, name, namespace, self._client.get(kind, name, namespace)["metadata"]["uid"])
        except NotFound:
            return
