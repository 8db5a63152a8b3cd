"""Read core/v1 Pods: the fields by which topomend decides about a pod.

Owns placement, ownership, status and topomend's own annotations. Leaves the fields that admission reads to ``pod``.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from topomend.model.pods.scheduling import NodeSelectorTerm, Owner, Placement, Requirement, Toleration, WatchedPod
from topomend.wire.document import Document, MalformedObject
from topomend.wire.group import (
    ASKS_FOR_NODE,
    ATTEMPT_ANNOTATION,
    CREATOR_ANNOTATION,
    MAX_ATTEMPTS_ANNOTATION,
    NAME_POLICY_ANNOTATION,
    NARROWED,
    NOT_NARROWED,
    RECORD_ANNOTATION,
    RELAUNCH_ANNOTATION,
    RELAUNCH_PINNED_ANNOTATION,
    RELAUNCH_STARTED_ANNOTATION,
    RELEASED_ANNOTATION,
    REPLACES_ANNOTATION,
)
from topomend.wire.pods.pod import read_pod
from topomend.wire.pods.pod_group import MAX_NAME, read_pod_group

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""Annotation of the mirror pod of a static pod (pkg/kubelet/types/pod_update.go)."""

WORKLOAD_ANNOTATION, POD_SET_LABEL = "kueue.x-k8s.io/workload", "kueue.x-k8s.io/podset"
"""The annotation and the label by which Kueue names a pod's Workload and its pod set there (v0.17,
pkg/controller/jobframework/reconciler.go:getPodSetsInfoFromStatus)."""

CRITICAL_CLASSES = ("system-node-critical", "system-cluster-critical")

MAX_PRIORITY = 1 << 31

MAX_RULES = 1_000
"""Values in a pod's node selector or tolerations: they are kept as long as the pod waits."""

MAX_AFFINITY_RULES, MAX_AFFINITY_VALUES = 2_000, 20_000
"""Objects in a pod's node affinity, and values. The operator itself narrows a pod to thousands of nodes at times, by
one more object in each term."""

MAX_CONTAINERS, MAX_AMOUNTS = 200, 4_000
"""Containers of a pod, and its requests and limits: every node is asked about each."""

MAX_CLAIMS = 10
"""A pod's PersistentVolumeClaims that are looked up; where the volumes of a pod with more are is not known."""

MAX_CLAIM_NAME = 254
"""One character more than a claim's name may have. In a pod the API server checks no more than that there is one
(pkg/apis/core/validation/validation.go:validatePersistentClaimVolumeSource)."""

_DEFAULT_SCHEDULER = "default-scheduler"
_NEVER = "Never"

_VOLUMES_OF_ANY_NODE = frozenset(
    ("configMap", "downwardAPI", "emptyDir", "gitRepo", "hostPath", "image", "nfs", "projected", "secret")
)
"""Volumes that the kubelet makes or mounts on whichever node the pod is."""


def read_watched_pod(content: Any) -> WatchedPod:
    """The WatchedPod of a Pod object. Raises MalformedObject, also for one that has more in it than is kept."""
    check_size(Document(content)["spec"])
    return read_checked_pod(content)


def read_checked_pod(content: Any) -> WatchedPod:
    """The WatchedPod of a Pod object that ``check_size`` has passed. Raises MalformedObject."""
    document = Document(content)
    metadata, spec, status = document["metadata"], document["spec"], document["status"]
    annotations = {key: value.text("") for key, value in metadata["annotations"].fields()}
    named = islice(read_claim_names(metadata["name"].text(), spec["volumes"]), MAX_CLAIMS + 1)
    claims = tuple(name[:MAX_CLAIM_NAME] for name in named)
    return WatchedPod(
        namespace=metadata["namespace"].text(),
        name=metadata["name"].text(),
        uid=metadata["uid"].text(),
        version=metadata["resourceVersion"].text(""),
        pod=read_pod(content),
        phase=status["phase"].text("Pending"),
        reason=status["reason"].text(""),
        message=status["message"].text(""),
        node=spec["nodeName"].text(""),
        owner=read_owner(metadata),
        mirror=MIRROR_ANNOTATION in annotations,
        deleting=not metadata["deletionTimestamp"].absent,
        finalizers=tuple(finalizer.text() for finalizer in metadata["finalizers"]),
        gates=tuple(gate["name"].text() for gate in spec["schedulingGates"]),
        placement=replace(read_placement(spec), volumes=None if claims else ()),
        relaunch=annotations.get(RELAUNCH_ANNOTATION, ""),
        max_attempts=_read_count(annotations.get(MAX_ATTEMPTS_ANNOTATION)),
        attempt=_read_count(annotations.get(ATTEMPT_ANNOTATION)) or 0,
        record=annotations.get(RECORD_ANNOTATION, ""),
        replaces=annotations.get(REPLACES_ANNOTATION, ""),
        creation_time=metadata["creationTimestamp"].text(""),
        creator=annotations.get(CREATOR_ANNOTATION, ""),
        generation=metadata["generation"].integer(0),
        name_policy=annotations.get(NAME_POLICY_ANNOTATION, ""),
        released=annotations.get(RELEASED_ANNOTATION) in (NARROWED, NOT_NARROWED),
        narrowed=annotations.get(RELEASED_ANNOTATION) == NARROWED,
        node_affinity=spec["affinity"]["nodeAffinity"].content or {},
        claims=claims,
        scheduler_rules=tuple(_read_scheduler_rules(spec)),
        ran=_has_run(spec, status),
        unschedulable=is_unschedulable(status) and not _asks_for_a_node(status),
        asks_for_node=_asks_for_a_node(status),
        priority=spec["priority"].integer(0, least=-MAX_PRIORITY, most=MAX_PRIORITY),
        critical=spec["priorityClassName"].text("") in CRITICAL_CLASSES,
        preempts=spec["preemptionPolicy"].text("") != "Never",
        relaunch_started=annotations.get(RELAUNCH_STARTED_ANNOTATION, ""),
        group=read_pod_group(document),
        pinned=not spec["nodeName"].absent and _is_pinned(metadata),
        relaunch_pinned=annotations.get(RELAUNCH_PINNED_ANNOTATION, ""),
        nominated=status["nominatedNodeName"].text(""),
        start_time=status["startTime"].text(""),
        grace_seconds=metadata["deletionGracePeriodSeconds"].integer(0),
        workload=annotations.get(WORKLOAD_ANNOTATION, "")[:MAX_NAME],
        pod_set=metadata["labels"][POD_SET_LABEL].text("")[:MAX_NAME],
    )


def check_size(spec: Document) -> None:
    """Raise MalformedObject where a pod has more in it than the operator keeps of any pod."""
    for name in ("nodeSelector", "tolerations", "schedulingGates", "overhead"):
        check_number(spec[name])
    check_number(spec["affinity"]["nodeAffinity"], MAX_AFFINITY_VALUES, MAX_AFFINITY_RULES)
    amounts = 0
    for name in ("initContainers", "containers"):
        for index, container in enumerate(spec[name]):
            amounts += sum(_size(container["resources"][kind].content) for kind in ("requests", "limits"))
            if index >= MAX_CONTAINERS or amounts > MAX_AMOUNTS:
                most = f"{MAX_CONTAINERS} containers or {MAX_AMOUNTS} amounts in them"
                raise MalformedObject(f"{spec[name].path}: more than {most}, so topomend leaves the pod alone")


def _size(content: object) -> int:
    return len(content) if isinstance(content, dict) else 0


def check_number(rules: Document, most: int = MAX_RULES, most_objects: int = MAX_RULES) -> None:
    """Raise MalformedObject where there are more values or objects in ``rules`` than are kept of any pod."""
    values, objects, waiting = 0, 0, [rules.content]
    while waiting:
        part = waiting.pop()
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        objects += isinstance(part, dict)
        values += not isinstance(part, dict | list)
        if values > most or objects > most_objects:
            number = f"{most} values or {most_objects} rules"
            raise MalformedObject(f"{rules.path}: more than {number}, so topomend leaves the pod alone")


def read_placement(spec: Document) -> Placement:
    """The placement rules in a pod's ``spec``: node selector, required node affinity, tolerations.

    Raises MalformedObject.
    """
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return Placement(
        node_selector={key: value.text("") for key, value in spec["nodeSelector"].fields()},
        terms=None if required.absent else read_terms(required),
        tolerations=read_tolerations(spec["tolerations"]),
    )


def read_tolerations(tolerations: Document) -> tuple[Toleration, ...]:
    """A list of tolerations. Raises MalformedObject."""
    return tuple(
        Toleration(
            toleration["key"].text(""),
            toleration["operator"].text("Equal"),
            toleration["value"].text(""),
            toleration["effect"].text(""),
        )
        for toleration in tolerations
    )


def is_unschedulable(status: Document) -> bool:
    """Whether the pod of this status is called unschedulable, and preempts no pod.

    Source: pkg/scheduler/schedule_one.go:handleSchedulingFailure.
    """
    return status["nominatedNodeName"].text("") == "" and any(_called_unschedulable(status))


def _asks_for_a_node(status: Document) -> bool:
    """Whether it is the operator that called the pod unschedulable, for cluster autoscalers.

    The condition outlasts the pod's gates, until a scheduler writes its own: then it is no scheduler's word.
    """
    return any(condition["message"].text("").startswith(ASKS_FOR_NODE) for condition in _called_unschedulable(status))


def _called_unschedulable(status: Document) -> Iterator[Document]:
    """The condition that says so, if there is one."""
    for condition in status["conditions"]:
        words = (condition["type"].text(""), condition["status"].text(""), condition["reason"].text(""))
        if words == ("PodScheduled", "False", "Unschedulable"):
            yield condition


def _is_pinned(metadata: Document) -> bool:
    """Whether somebody wrote the pod's node into it. A binding leaves no trace among the managers of its fields.

    No condition tells that: a refused pod has none, and of every other the kubelet says that it was scheduled.
    """
    return any(
        entry["subresource"].text("") == "" and not entry["fieldsV1"]["f:spec"]["f:nodeName"].absent
        for entry in metadata["managedFields"]
    )


def _has_run(spec: Document, status: Document) -> bool:
    """Whether a container has started that is never to run twice: its own restartPolicy is Never, or else its pod's.

    Source: pkg/kubelet/container/helpers.go:ShouldContainerBeRestarted, which asks the container's own policy first
    (KEP-5307, ContainerRestartRules).
    """
    of_pod = spec["restartPolicy"].text("")
    return any(
        _has_started(started) and policies.get(started["name"].text(""), of_pod) == _NEVER
        for containers in ("initContainers", "containers")
        for policies in (_own_restart_policies(spec[containers]),)
        for started in status[f"{containers.removesuffix('s')}Statuses"]
    )


def _own_restart_policies(containers: Document) -> dict[str, str]:
    policies = {container["name"].text(""): container["restartPolicy"].text("") for container in containers}
    return {name: policy for name, policy in policies.items() if policy}


def _has_started(container: Document) -> bool:
    """Whether the container runs or has ended. Of a pod refused at its first admission no status says so."""
    return any(
        not container[state][kind].absent for state in ("state", "lastState") for kind in ("running", "terminated")
    )


def _read_scheduler_rules(spec: Document) -> Iterator[str]:
    """The fields by which the scheduler judges a node through other pods, volumes, claims or plugins of its own.

    Source: pkg/scheduler/framework/plugins (interpodaffinity, podtopologyspread, nodeports, volumebinding,
    volumerestrictions, volumezone, nodevolumelimits, dynamicresources).
    """
    affinity = spec["affinity"]
    if any(not affinity[kind].absent for kind in ("podAffinity", "podAntiAffinity")):
        yield "affinity"
    if any(True for _ in spec["topologySpreadConstraints"]):
        yield "topologySpreadConstraints"
    if any(_is_bound_to_nodes(volume) for volume in spec["volumes"]):
        yield "volumes"
    if any(port["hostPort"].integer(0) for port in _ports(spec)):
        yield "hostPort"
    if any(True for _ in spec["resourceClaims"]):
        yield "resourceClaims"
    if spec["schedulerName"].text(_DEFAULT_SCHEDULER) != _DEFAULT_SCHEDULER:
        yield "schedulerName"


def read_claim_names(pod: str, volumes: Document) -> Iterator[str]:
    """The names of the claims of a pod of this name, those too that are made for it (ephemeral volumes).

    Source: component-helpers/storage/ephemeral/ephemeral.go:VolumeClaimName.
    """
    for volume in volumes:
        if not volume["persistentVolumeClaim"].absent:
            yield volume["persistentVolumeClaim"]["claimName"].text()
        elif not volume["ephemeral"].absent:
            yield f"{pod}-{volume['name'].text()}"


def _is_bound_to_nodes(volume: Document) -> bool:
    """Whether the volume may exist on some nodes only, or counts against a node's limit of volumes."""
    return any(kind != "name" and kind not in _VOLUMES_OF_ANY_NODE for kind, _ in volume.fields())


def _ports(spec: Document) -> Iterator[Document]:
    for kind in ("initContainers", "containers"):
        for container in spec[kind]:
            yield from container["ports"]


def read_terms(selector: Document) -> tuple[NodeSelectorTerm, ...]:
    """The terms of a NodeSelector. Raises MalformedObject."""
    return tuple(
        NodeSelectorTerm(read_requirements(term["matchExpressions"]), read_requirements(term["matchFields"]))
        for term in selector["nodeSelectorTerms"]
    )


def read_requirements(requirements: Document) -> tuple[Requirement, ...]:
    """The requirements of a selector's ``matchExpressions`` or ``matchFields``. Raises MalformedObject."""
    return tuple(
        Requirement(
            requirement["key"].text(),
            requirement["operator"].text(),
            tuple(value.text() for value in requirement["values"]),
        )
        for requirement in requirements
    )


def read_owner(metadata: Document) -> Owner | None:
    """The controller in an object's ``metadata``; None where it has none. Raises MalformedObject."""
    for reference in metadata["ownerReferences"]:
        if reference["controller"].boolean(default=False):
            return Owner(
                reference["kind"].text(),
                reference["name"].text(),
                reference["uid"].text(),
                api_version=reference["apiVersion"].text(""),
            )
    return None


def _read_count(text: str | None) -> int | None:
    """A count of at most four digits from an annotation; None where it is absent or anything else.

    A user may have written it, so a wrong value must not make the pod unreadable.
    """
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 4:
        return None
    return int(text)
