"""Read topomend's own objects: workloads, pods, Lease, parameter objects, policies.

Each reader raises MalformedObject for a field with a value that it cannot have.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from topomend.check.facts import AdmissionCheck, Kind, Lease, OwnPod, Parameter, Policy, Workload
from topomend.check.finding import Subject
from topomend.wire.document import Document
from topomend.wire.queued_workload import is_active, is_ours

VERSION_LABEL = "app.kubernetes.io/version"
COMPONENT_LABEL = "app.kubernetes.io/component"


def subject_of(content: Any, kind: str) -> Subject:
    """The object as a finding names it. An object without a usable name still has a kind."""
    metadata = content.get("metadata") if isinstance(content, dict) else None
    named = metadata if isinstance(metadata, dict) else {}
    return Subject(kind, str(named.get("name") or "?"), str(named.get("namespace") or ""))


def read_deployment(content: Any) -> Workload:
    """The Workload of a Deployment. It wants one pod where it says nothing."""
    document = Document(content)
    status = document["status"]
    return _workload(
        document,
        "Deployment",
        document["spec"]["replicas"].integer(1),
        status["readyReplicas"].integer(0),
        status["updatedReplicas"].integer(0),
    )


def read_daemon_set(content: Any) -> Workload:
    """The Workload of a DaemonSet."""
    document = Document(content)
    status = document["status"]
    return _workload(
        document,
        "DaemonSet",
        status["desiredNumberScheduled"].integer(0),
        status["numberReady"].integer(0),
        status["updatedNumberScheduled"].integer(0),
    )


def _workload(document: Document, kind: str, wanted: int, ready: int, current: int) -> Workload:
    metadata, pod = document["metadata"], document["spec"]["template"]["spec"]
    container = next(iter(pod["containers"]), Document(None, "spec.template.spec.containers[0]"))
    arguments = [*container["args"], *container["command"]]
    variables = [f"{each['name'].text()}={each['value'].text('')}" for each in container["env"]]
    return Workload(
        Subject(kind, metadata["name"].text(), metadata["namespace"].text("")),
        version=metadata["labels"][VERSION_LABEL].text(""),
        image=container["image"].text(""),
        wanted=wanted,
        ready=ready,
        current=current,
        account=pod["serviceAccountName"].text(""),
        arguments=(*(argument.text() for argument in arguments), *variables),
    )


def read_own_pod(content: Any) -> OwnPod:
    """The OwnPod of a Pod."""
    document = Document(content)
    metadata, status = document["metadata"], document["status"]
    return OwnPod(
        Subject("Pod", metadata["name"].text(), metadata["namespace"].text("")),
        metadata["labels"][COMPONENT_LABEL].text(""),
        document["spec"]["nodeName"].text(""),
        _trouble(status),
    )


def _trouble(status: Document) -> str:
    conditions = {each["type"].text(""): each for each in status["conditions"]}
    ready = conditions.get("Ready")
    if ready is not None and ready["status"].text("") == "True":
        return ""
    unplaced = conditions.get("PodScheduled")
    if unplaced is not None and unplaced["status"].text("") == "False":
        return _words(unplaced)
    for container in status["containerStatuses"]:
        waiting = container["state"]["waiting"]
        if not waiting.absent:
            return _words(waiting)
    return "it runs, and its readiness probe fails" if status["phase"].text("") == "Running" else "it has not started"


def _words(document: Document) -> str:
    reason, message = document["reason"].text(""), document["message"].text("")
    return ": ".join(filter(None, (reason, message))) or "it waits"


def read_lease(content: Any) -> Lease:
    """The Lease."""
    spec = Document(content)["spec"]
    return Lease(subject_of(content, "Lease"), spec["holderIdentity"].text(""), _time(spec["renewTime"]))


def read_parameter(content: Any, kind: str) -> Parameter:
    """The Brake or the Steering."""
    document = Document(content)
    owners = tuple(owner.text() for _, owner in document["owners"].fields())
    return Parameter(subject_of(content, kind), _time(document["validUntil"]), owners)


def read_admission_check(content: Any) -> Iterator[AdmissionCheck]:
    """The AdmissionCheck, if it is topomend's to answer."""
    if is_ours(content):
        yield AdmissionCheck(subject_of(content, "AdmissionCheck"), is_active(content))


def _time(field: Document) -> datetime | None:
    """A moment with its offset. Raises MalformedObject for anything else."""
    if field.absent or field.content == "":
        return None
    try:
        moment = datetime.fromisoformat(field.text())
    except ValueError as error:
        raise field.wrong("a time such as 2026-01-01T00:00:00Z") from error
    if moment.tzinfo is None:
        raise field.wrong("a time with its offset, such as 2026-01-01T00:00:00Z")
    return moment


def read_policies(policies: Iterable[Any], bindings: Iterable[Any]) -> dict[str, Policy]:
    """Validating policies by name, each with what its binding says."""
    found: dict[str, Policy] = {}
    by_role_binding = set[str]()
    for content in policies:
        document = Document(content)
        name = document["metadata"]["name"].text()
        found[name] = Policy(name)
        if document["spec"]["paramKind"]["kind"].text("") == "ClusterRoleBinding":
            by_role_binding.add(name)
    for content in bindings:
        spec = Document(content)["spec"]
        name = spec["policyName"].text("")
        parameter = spec["paramRef"]["name"].text("") if name in by_role_binding else ""
        found[name] = Policy(name, bound=name in found, parameter=parameter)
    return found


def read_bound(policies: Iterable[Any], bindings: Iterable[Any]) -> dict[str, bool]:
    """Mutating policies by name, and whether a binding puts each in force."""
    bound = {Document(content)["spec"]["policyName"].text("") for content in bindings}
    names = [Document(content)["metadata"]["name"].text() for content in policies]
    return {name: name in bound for name in names}


def read_kind(name: str, shipped: Mapping[str, Any], served: Mapping[str, Any] | None) -> Kind:
    """A kind by its schema in the manifests and by that which the API server has of it; None if it is not served."""
    if served is None:
        return Kind(name, served=False)
    known = set(_fields(served))
    return Kind(name, lacking=tuple(field for field in _fields(shipped) if field not in known))


_OF_EVERY_OBJECT = ("apiVersion", "kind", "metadata")


def _fields(schema: Any, path: str = "") -> Iterator[str]:
    """The paths of all fields in a schema, in its order."""
    if not isinstance(schema, dict):
        return
    for name, inner in (schema.get("properties") or {}).items():
        if path or name not in _OF_EVERY_OBJECT:
            where = f"{path}.{name}" if path else name
            yield where
            yield from _fields(inner, where)
    yield from _fields(schema.get("items"), f"{path}[]")
    yield from _fields(schema.get("additionalProperties"), f"{path}.*")
