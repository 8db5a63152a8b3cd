"""Whether a failed pod's controller exists and wants another pod, as the API server says now.

Owns that question. A reference to an owner is its author's word: it may name a controller that never existed, is gone
or makes no pods any more. Leaves which kinds are asked about to ``decide/eligibility``.
"""

from topomend.kube.client import Client, Resource
from topomend.kube.errors import Forbidden, NotFound
from topomend.model.cluster import Owner
from topomend.wire.document import Document, MalformedObject

_PLURALS = {
    "ReplicaSet": "replicasets",
    "ReplicationController": "replicationcontrollers",
    "StatefulSet": "statefulsets",
}


def why_not_recreated(client: Client, owner: Owner, namespace: str) -> str:
    """Why ``owner`` creates no pod in place of a failed or deleted one; empty where it does. Raises APIError.

    ``owner`` is a ReplicaSet, a ReplicationController or a StatefulSet.
    """
    name = f"{owner.kind} {owner.name}"
    try:
        content = client.get(Resource(owner.api_version, _PLURALS[owner.kind]), owner.name, namespace)
    except NotFound:
        return f"{name} does not exist"
    except Forbidden as error:
        return f"{name} cannot be read: {error}"
    return _why_not_recreated(Document(content), owner, name)


def _why_not_recreated(content: Document, owner: Owner, name: str) -> str:
    try:
        if content["metadata"]["uid"].text("") != owner.uid:
            return f"{name} is another one than the pod's"
        if not content["metadata"]["deletionTimestamp"].absent:
            return f"{name} is being deleted"
        return "" if content["spec"]["replicas"].integer(1) else f"{name} wants no pods"
    except MalformedObject as error:
        return f"{name} cannot be read: {error}"
