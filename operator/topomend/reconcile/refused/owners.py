"""Whether a pod's controller exists and wants another pod, as the API server says now.

Owns both questions. A reference to an owner is its author's word: it may name a controller that never existed, is gone,
is another namespace's or makes no pods any more. Leaves which kinds are asked about to ``decide/eligibility``.
"""

import re

from topomend.decide.eligibility import counts_deletions
from topomend.kube.client import Client
from topomend.kube.errors import Forbidden, Invalid, MethodNotAllowed, NotFound
from topomend.kube.resources import Resource
from topomend.model.pods.scheduling import Owner
from topomend.wire.document import Document, MalformedObject

DEFAULT_BACKOFF_LIMIT = 6
"""Source: pkg/apis/batch/v1/defaults.go:SetDefaults_Job."""

_PLURALS = {
    ("apps", "DaemonSet"): "daemonsets",
    ("apps", "ReplicaSet"): "replicasets",
    ("", "ReplicationController"): "replicationcontrollers",
    ("apps", "StatefulSet"): "statefulsets",
    ("batch", "Job"): "jobs",
}

_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_API_VERSION = re.compile(r"(?=.{1,317}\Z)([a-z0-9][a-z0-9-]*(\.[a-z0-9][a-z0-9-]*)*/)?v[a-z0-9]{1,62}")
_MAX_NAME = 253


class NotReadable(Exception):
    """The API server does not let topomend read the owner; the message says what to do."""


def is_wellformed(owner: Owner) -> bool:
    """Whether the reference may be a real one: the API server gives every object a UUID, and checks no reference."""
    is_named = 0 < len(owner.name) <= _MAX_NAME
    return bool(is_named and _UID.fullmatch(owner.uid) and _API_VERSION.fullmatch(owner.api_version))


def exists(client: Client, owner: Owner, namespace: str) -> bool:
    """Whether the namespace has an object of this kind, name and uid. Raises NotReadable, APIError."""
    name = f"{owner.kind} {owner.name}"
    try:
        resource = _resource(client, owner)
        content = client.get(resource, owner.name, namespace) if resource and resource.namespaced else {}
    except NotFound:
        return False
    except (Forbidden, Invalid, MethodNotAllowed) as error:
        raise NotReadable(
            f"{name} cannot be read, and only controllers that exist are braked: {error}; to have this kind braked, "
            "bind a role with the verb get to the operator's account"
        ) from error
    try:
        return Document(content)["metadata"]["uid"].text("") == owner.uid
    except MalformedObject:
        return False


def _resource(client: Client, owner: Owner) -> Resource | None:
    plural = _PLURALS.get((owner.group, owner.kind))
    return Resource(owner.api_version, plural) if plural else client.resource_of(owner.api_version, owner.kind)


def why_not_recreated(client: Client, owner: Owner, namespace: str) -> str:
    """Why ``owner`` creates no pod in place of a failed or deleted one; empty where it does. Raises APIError.

    ``owner`` is a ReplicaSet, a ReplicationController, a StatefulSet or a Job.
    """
    name = f"{owner.kind} {owner.name}"
    if not is_wellformed(owner):
        return f"{owner.kind} {owner.name[:_MAX_NAME]} cannot exist: no object has its name, uid and apiVersion"
    try:
        content = client.get(Resource(owner.api_version, _PLURALS[owner.group, owner.kind]), owner.name, namespace)
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
        if counts_deletions(owner):
            return _why_not_failing(content, name)
        return "" if content["spec"]["replicas"].integer(1) else f"{name} wants no pods"
    except MalformedObject as error:
        return f"{name} cannot be read: {error}"


def _why_not_failing(job: Document, name: str) -> str:
    """Why the Job may not have one more failure; empty where it may and goes on.

    Source: pkg/controller/job/job_controller.go:syncJob, where a Job fails whose failures exceed its backoffLimit.
    """
    spec, status = job["spec"], job["status"]
    if spec["suspend"].boolean(default=False):
        return f"{name} is suspended"
    if any(condition["status"].text("") == "True" for condition in status["conditions"]):
        return f"{name} has ended or is about to"
    if not spec["backoffLimitPerIndex"].absent:
        return f"{name} counts its failures by index"
    uncounted = len([*status["uncountedTerminatedPods"]["failed"]])
    failures, limit = status["failed"].integer(0) + uncounted, spec["backoffLimit"].integer(DEFAULT_BACKOFF_LIMIT)
    return "" if failures < limit else f"{name} may not have one more failure: it has {failures} of {limit}"
