"""The controllers above a pod: ReplicaSet and Deployment, Job and CronJob, and those of other kinds.

Owns following ownerReferences. What the user may not read is told to the caller, and the chain then ends there.
"""

from collections.abc import Callable, Iterator
from typing import Any

from topomend.kube.client import Client
from topomend.kube.errors import Forbidden, Refused
from topomend.kube.resources import Resource
from topomend.kube.served_kinds import BUILT_IN
from topomend.model.pods.scheduling import Owner
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pods.running_pod import workload_of
from topomend.wire.pods.scheduling import read_owner

MOST_OWNERS = 10
"""A longer chain is not followed: references may form a circle."""


_Above = dict[str, Owner | None]
"""By an object's uid, its controller."""


class Owners:
    """The owners of a namespace's objects. ``on_refused`` is told of one that the user may not read."""

    def __init__(self, client: Client, namespace: str, on_refused: Callable[[str], None]) -> None:
        self._client, self._namespace, self._on_refused = client, namespace, on_refused
        self._above: _Above = {}
        self._resources: dict[tuple[str, str], Resource | None] = {}

    def of(self, metadata: dict[str, Any]) -> Iterator[Owner]:
        """The controller in an object's metadata, that one's controller, and so on. Raises Unanswered."""
        owner = _controller(metadata)
        for _ in range(MOST_OWNERS):
            if owner is None:
                return
            yield owner
            if owner.uid not in self._above:
                self._read(owner, metadata)
            owner = self._above[owner.uid]

    def _read(self, owner: Owner, metadata: dict[str, Any]) -> None:
        """Read what is above this owner: of the first of a kind together with all others, later alone."""
        self._above[owner.uid] = None
        kind = owner.api_version, owner.kind
        try:
            if kind not in self._resources:
                self._resources[kind] = None
                self._resources[kind] = resource = self._resource(owner)
                self._above.update(self._all(resource) if resource else {})
            elif resource := self._resources[kind]:
                self._above.update(self._one(resource, owner))
        except Forbidden:
            self._resources[kind] = None
            self._on_refused(f"{owner.kind}s".lower())
        except Refused:  # it is gone, or whoever serves its kind fails: others are to be found all the same
            return
        self._above[owner.uid] = self._above[owner.uid] or _by_name(owner, metadata)

    def _all(self, resource: Resource) -> _Above:
        return dict(self._client.read(resource, _owned, namespace=self._namespace, metadata_only=True).items)

    def _one(self, resource: Resource, owner: Owner) -> _Above:
        return dict(_owned(self._client.get(resource, owner.name, self._namespace)))

    def _resource(self, owner: Owner) -> Resource | None:
        """The resource of an owner's kind; None for one that is not served, or that has no namespace."""
        kind = owner.api_version, owner.kind
        built_in = (each.resource for each in BUILT_IN if (each.resource.api_version, each.kind) == kind)
        found = next(built_in, None) or self._client.resource_of(*kind)
        return found if found and found.namespaced else None


def _owned(content: dict[str, Any]) -> list[tuple[str, Owner | None]]:
    metadata = content["metadata"]
    return [(str(metadata["uid"]), _controller(metadata))]


def _controller(metadata: dict[str, Any]) -> Owner | None:
    try:
        return read_owner(Document(metadata))
    except MalformedObject:
        return None


def _by_name(owner: Owner, metadata: dict[str, Any]) -> Owner | None:
    """The Deployment of a ReplicaSet that is gone or may not be read, by the names of both."""
    try:
        found = workload_of(Document(metadata))
    except MalformedObject:
        return None
    is_above = found is not None and found.kind == "Deployment" and owner.kind == "ReplicaSet"
    return found if is_above else None
