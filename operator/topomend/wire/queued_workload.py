"""Read Kueue's Workloads, AdmissionChecks, ResourceFlavors and ClusterQueues, and write what an admission check says of
itself and of a workload.

The version is kueue.x-k8s.io/v1beta2, which Kueue serves from 0.15 on. Owns these fields. Leaves the pods of a
template to ``cluster``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from topomend.model.pods.queued_workload import Check, Flavor, PodSet, QueuedWorkload
from topomend.model.pods.scheduling import Toleration
from topomend.wire.document import Document, MalformedObject, without_empty
from topomend.wire.pods.scheduling import (
    MAX_PRIORITY,
    check_number,
    check_size,
    read_checked_pod,
    read_owner,
    read_tolerations,
)

API_VERSION = "kueue.x-k8s.io/v1beta2"
"""From Kueue 0.15 on."""

CONTROLLER = "topomend.io/numa-fit"
"""The ``controllerName`` of the AdmissionChecks that topomend answers."""

MAX_COUNT = 1 << 31

MAX_POD_SETS = 8
"""Kueue's own limit, which its kinds enforce."""

MAX_MESSAGE = 32_768
"""The longest message of a check, in characters, that the kind allows."""

_ACTIVE = "Active"


def read_workload(content: Any) -> QueuedWorkload:
    """The QueuedWorkload of a Workload object. Raises MalformedObject."""
    document = Document(content)
    metadata, spec, status = document["metadata"], document["spec"], document["status"]
    conditions = {
        condition["type"].text(): condition
        for condition in status["conditions"]
        if condition["status"].text("") == "True"
    }
    assigned = {each["name"].text(): each for each in status["admission"]["podSetAssignments"]}
    pod_sets = [_read_pod_set(document, pod_set, assigned) for pod_set in spec["podSets"]]
    if len(pod_sets) > MAX_POD_SETS:
        raise MalformedObject(f"{spec['podSets'].path}: more than {MAX_POD_SETS} pod sets")
    owner = read_owner(metadata)
    evicted = conditions.get("Evicted")
    return QueuedWorkload(
        namespace=metadata["namespace"].text(),
        name=metadata["name"].text(),
        uid=metadata["uid"].text(),
        version=metadata["resourceVersion"].text(""),
        pod_sets=tuple(pod_sets),
        checks={check.name: check for check in map(_read_check, status["admissionChecks"])},
        owner=owner.uid if owner else "",
        creation_time=metadata["creationTimestamp"].text(""),
        priority=_priority(spec),
        reserved="QuotaReserved" in conditions,
        admitted="Admitted" in conditions,
        over=_is_over(metadata, spec) or "Finished" in conditions,
        evicted=evicted["reason"].text("") if evicted else "",
        requeue_at=status["requeueState"]["requeueAt"].text(""),
    )


def _is_over(metadata: Document, spec: Document) -> bool:
    return not metadata["deletionTimestamp"].absent or not spec["active"].boolean(default=True)


def _priority(spec: Document) -> int:
    return spec["priority"].integer(0, least=-MAX_PRIORITY, most=MAX_PRIORITY)


def _read_pod_set(workload: Document, pod_set: Document, assigned: Mapping[str, Document]) -> PodSet:
    name, template = pod_set["name"].text(), pod_set["template"]
    metadata, assignment = workload["metadata"], assigned.get(name)
    check_size(template["spec"])
    head = {
        "name": f"{metadata['name'].text()}/{name}",
        "namespace": metadata["namespace"].text(),
        "uid": f"{metadata['uid'].text()}/{name}",
        "creationTimestamp": metadata["creationTimestamp"].text(""),
        "ownerReferences": metadata["ownerReferences"].content,
        "labels": template["metadata"]["labels"].content,
        "annotations": template["metadata"]["annotations"].content,
    }
    pod = read_checked_pod({"metadata": head, "spec": template["spec"].content})
    count = pod_set["count"].integer(1, most=MAX_COUNT)
    flavors: tuple[str, ...] = ()
    if assignment is not None:
        count = assignment["count"].integer(count, most=MAX_COUNT)
        flavors = tuple(sorted({flavor.text() for _, flavor in assignment["flavors"].fields()}))
    return PodSet(
        name,
        count,
        replace(pod, priority=_priority(workload["spec"]), gates=()),
        flavors,
        spread_by_kueue=assignment is not None and not assignment["topologyAssignment"].absent,
    )


def _read_check(check: Document) -> Check:
    updates = [(update["name"].text(), update) for update in check["podSetUpdates"]]
    check_number(check["podSetUpdates"])
    return Check(
        check["name"].text(),
        check["state"].text(""),
        check["message"].text(""),
        check["retryCount"].integer(0),
        {name: {key: text.text("") for key, text in update["nodeSelector"].fields()} for name, update in updates},
        {name: read_tolerations(update["tolerations"]) for name, update in updates},
    )


def read_flavor(content: Any) -> Flavor:
    """The Flavor of a ResourceFlavor object. Raises MalformedObject."""
    spec = Document(content)["spec"]
    check_number(spec["nodeLabels"])
    check_number(spec["tolerations"])
    return Flavor(
        {key: text.text("") for key, text in spec["nodeLabels"].fields()}, read_tolerations(spec["tolerations"])
    )


def is_ours(content: Any) -> bool:
    """Whether this AdmissionCheck is for topomend to answer. Raises MalformedObject."""
    return Document(content)["spec"]["controllerName"].text("") == CONTROLLER


def is_active(content: Any) -> bool:
    """Whether its status says that it is answered, and of its spec as it is now. Raises MalformedObject."""
    document = Document(content)
    generation = document["metadata"]["generation"].integer(0)
    return any(condition["observedGeneration"].integer(0) == generation for condition in _active(document))


def counts_as_active(content: Any) -> bool:
    """Whether Kueue takes this AdmissionCheck for answered, whatever its spec was then. Raises MalformedObject."""
    return bool(_active(Document(content)))


def _active(check: Document) -> list[Document]:
    """The condition that the check is answered, if it has that."""
    conditions = check["status"]["conditions"]
    return [each for each in conditions if (each["type"].text(""), each["status"].text("")) == (_ACTIVE, "True")]


def active_status(content: Mapping[str, Any], now: str) -> dict[str, Any]:
    """What to apply to the status of an AdmissionCheck that is answered from ``now`` on, a time as in objects."""
    words = "topomend asks replay of each node's kubelet whether all pods of a workload fit"
    return _activity(content, now, "True", "Active", words)


def inactive_status(content: Mapping[str, Any], now: str) -> dict[str, Any]:
    """What to apply to the status of an AdmissionCheck that nobody answers from ``now`` on."""
    return _activity(content, now, "False", "Drained", "kubectl numa drain has stopped topomend's operator")


def _activity(content: Mapping[str, Any], now: str, status: str, reason: str, message: str) -> dict[str, Any]:
    condition = {
        "type": _ACTIVE,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": content["metadata"].get("generation", 0),
        "lastTransitionTime": now,
    }
    return _applied("AdmissionCheck", content["metadata"]["name"], {"conditions": [condition]})


def asked_checks(queue: Any) -> tuple[str, ...]:
    """The names of the AdmissionChecks that a ClusterQueue asks. Raises MalformedObject."""
    rules = Document(queue)["spec"]["admissionChecksStrategy"]["admissionChecks"]
    return tuple(rule["name"].text() for rule in rules)


def check_status(workload: QueuedWorkload, answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What to apply to the status of a workload: ``answers`` are entries of ``admissionChecks``.

    It is for the workload as it was read: the API server refuses it for any later version.
    """
    identity = {"namespace": workload.namespace, "uid": workload.uid, "resourceVersion": workload.version}
    return _applied("Workload", workload.name, {"admissionChecks": list(answers)}, **identity)


def answer(  # noqa: PLR0913  the fields of one entry
    check: str,
    state: str,
    message: str,
    now: str,
    *,
    pins: Mapping[str, str] | None = None,
    label: str = "",
) -> dict[str, Any]:
    """An entry of a workload's ``admissionChecks``. ``pins`` are values of the node label ``label`` by pod set."""
    updates = [{"name": name, "nodeSelector": {label: host}} for name, host in sorted((pins or {}).items())]
    optional: dict[str, Any] = without_empty({"podSetUpdates": updates})
    return {
        "name": check,
        "state": state,
        "message": message[:MAX_MESSAGE],
        "lastTransitionTime": now,
        **optional,
    }


def requeued_at(workload: QueuedWorkload, when: str | None, *, any_version: bool = False) -> dict[str, Any]:
    """What to merge into the status of a workload, as it was read or in ``any_version``, that is to wait until then, or
    no longer."""
    metadata = {"uid": workload.uid} | ({} if any_version else {"resourceVersion": workload.version})
    return {"metadata": metadata, "status": {"requeueState": {"requeueAt": when}}}


def with_additions(pod_set: PodSet, flavors: Iterable[Flavor], checks: Iterable[Check]) -> PodSet:
    """The pod set whose pods have what Kueue adds to them: of their flavors, and of other admission checks."""
    placement = pod_set.pod.placement
    selector, tolerations = dict(placement.node_selector), list[Toleration](placement.tolerations)
    for flavor in flavors:
        selector |= flavor.labels
        tolerations += flavor.tolerations
    for check in checks:
        selector |= check.selectors.get(pod_set.name, {})
        tolerations += check.tolerations.get(pod_set.name, ())
    narrowed = replace(placement, node_selector=selector, tolerations=tuple(tolerations))
    return replace(pod_set, pod=replace(pod_set.pod, placement=narrowed))


def _applied(kind: str, name: str, status: Mapping[str, Any], **metadata: str) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, **metadata}, "status": status}
