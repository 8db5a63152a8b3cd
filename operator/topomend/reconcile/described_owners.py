"""What people look at when they ask about a pod's controller: they describe a Deployment, a Job or a CronJob.

Owns which objects get the events about a controller. A controller is read once, by a GET; where that fails, it alone
has the events. Leaves the pods' own controllers to ``model``.
"""

from topomend.base.bounded_dict import BoundedDict
from topomend.kube.client import Client
from topomend.kube.errors import APIError
from topomend.kube.resources import JOBS, REPLICA_SETS
from topomend.model.pods.scheduling import Owner
from topomend.runtime.event_recorder import Regarding
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pods.scheduling import read_owner

MAX_OWNERS = 10_000

_RESOURCES = {("apps/v1", "ReplicaSet"): REPLICA_SETS, ("batch/v1", "Job"): JOBS}
"""The controllers that others create and people hardly look at alone."""


class DescribedOwners:
    """For one thread: that which posts events."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._above: BoundedDict[Regarding, Owner | None] = BoundedDict(MAX_OWNERS)

    def __call__(self, regarding: Regarding) -> tuple[Regarding, ...]:
        """The Deployment in place of its ReplicaSet, a Job and its CronJob; any other object itself."""
        if (regarding.api_version, regarding.kind) not in _RESOURCES:
            return (regarding,)
        if regarding not in self._above:
            self._above[regarding] = self._read(regarding)
        above = self._above.get(regarding)
        if above is None:
            return (regarding,)
        described = Regarding(above.api_version, above.kind, regarding.namespace, above.name, above.uid)
        return (described,) if regarding.kind == "ReplicaSet" else (regarding, described)

    def _read(self, regarding: Regarding) -> Owner | None:
        resource = _RESOURCES[regarding.api_version, regarding.kind]
        try:
            metadata = Document(self._client.get(resource, regarding.name, regarding.namespace))["metadata"]
            return read_owner(metadata) if metadata["uid"].text("") == regarding.uid else None
        except (APIError, MalformedObject):
            return None
