"""Build the replacement pod's manifest and the patches that claim, narrow and ungate pods.

Owns which fields of the refused pod the replacement keeps. The API server fills the removed ones in again. Leaves
sending to ``driver``. Rules for gated pods: KEP-3521 (scheduling gates), KEP-3838 (node affinity of a gated pod may
only gain requirements inside its terms, and the same update may remove the gate).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from topomend.model.narrowing import Narrowing
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.pods.scheduling import WatchedPod
from topomend.model.relaunch_record import Relaunch
from topomend.wire.document import without_empty
from topomend.wire.group import (
    ATTEMPT_ANNOTATION,
    CHANGED_ANNOTATION,
    FIT_GATE,
    LABEL_PREFIX,
    NARROWED,
    NOT_NARROWED,
    RECORD_ANNOTATION,
    RELAUNCH_FINALIZER,
    RELAUNCH_GATE,
    RELEASED_ANNOTATION,
    REPLACES_ANNOTATION,
)

_USER_METADATA = ("name", "generateName", "labels", "annotations", "ownerReferences")
_REMOVED_SPEC = ("nodeName", "priority", "preemptionPolicy", "ephemeralContainers")
"""The binding, the debug containers, and what the API server computed from the priority class. The class may have
changed since, and plugin/pkg/admission/priority refuses a pod whose priority differs from its class."""

_OWN_ANNOTATIONS = (
    RECORD_ANNOTATION,
    REPLACES_ANNOTATION,
    ATTEMPT_ANNOTATION,
    RELEASED_ANNOTATION,
    CHANGED_ANNOTATION,
)
_LONGEST_NAME = 253

OF_ITS_LIFE = frozenset(
    (
        "cni.projectcalico.org/containerID",
        "cni.projectcalico.org/podIP",
        "cni.projectcalico.org/podIPs",
        "hami.io/bind-phase",
        "hami.io/bind-time",
        "hami.io/vgpu-devices-allocated",
        "hami.io/vgpu-devices-to-allocate",
        "hami.io/vgpu-node",
        "hami.io/vgpu-time",
        "k8s.ovn.org/pod-networks",
        "k8s.v1.cni.cncf.io/network-status",
        "k8s.v1.cni.cncf.io/networks-status",
        "ovn.kubernetes.io/allocated",
        "ovn.kubernetes.io/routed",
        "scheduling.koordinator.sh/device-allocated",
        "scheduling.koordinator.sh/resource-status",
    )
)
"""Annotations in which networks and schedulers note what they gave a pod on its node: addresses and devices that the
replacement does not have. Without stamps (API servers before 1.36) nothing else tells them from the user's."""

_TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}")
_TOKEN_SECONDS = 3607
_TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105  a folder
"""The volume that the ServiceAccount admission plugin adds, its token's life, and where it is mounted
(plugin/pkg/admission/serviceaccount/admission.go). A volume of the user's own may have such a name too."""

PREFERENCE_WEIGHT = 100
MAX_PREFERRED = 3
"""How many nodes a pod prefers that is narrowed to more than these; of so few it prefers the best one."""


def stripped(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest to record of a refused Pod object: its user's metadata and spec, nothing that the API server added.

    An ungated pod was narrowed to nodes that were right at that time, which is undone (``widened``). Finalizers are
    dropped: only ours can be on the pod, for pods with others are not relaunched. Annotations and labels are dropped
    that tell of the pod's life on its node, or that were written after its creation: who may change a pod may not
    always create one. So are fields that are null: they mean the same, and a merge patch, which writes the manifest,
    drops them.
    """
    metadata = {key: pod["metadata"][key] for key in _USER_METADATA if key in pod["metadata"]}
    annotations = metadata.pop("annotations", {})
    changed = frozenset(annotations.get(CHANGED_ANNOTATION, "").split())
    dropped = {*_OWN_ANNOTATIONS, *OF_ITS_LIFE, *changed}
    annotations = {key: value for key, value in annotations.items() if key not in dropped}
    labels = {key: value for key, value in metadata.pop("labels", {}).items() if LABEL_PREFIX + key not in changed}
    spec = {key: value for key, value in pod["spec"].items() if key not in _REMOVED_SPEC}
    token_volumes = {item["name"] for item in spec.get("volumes", ()) if _is_added_volume(item, spec)}
    narrowed = pod["metadata"].get("annotations", {}).get(RELEASED_ANNOTATION) == NARROWED
    spec["affinity"] = _affinity(spec.get("affinity", {}), narrowed=narrowed)
    spec["topologySpreadConstraints"] = [_without_merged(item) for item in spec.get("topologySpreadConstraints", ())]
    spec["volumes"] = [item for item in spec.get("volumes", ()) if item["name"] not in token_volumes]
    for kind in ("initContainers", "containers"):
        spec[kind] = [_without_mounts(container, token_volumes) for container in spec.get(kind, ())]
    manifest: dict[str, Any] = _without_null(
        {
            "metadata": without_empty(metadata | {"labels": labels, "annotations": annotations}),
            "spec": {key: value for key, value in spec.items() if value not in ([], {})},
        }
    )
    return manifest


def _without_null(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_null(value) for key, value in content.items() if value is not None}
    if isinstance(content, list):
        return [_without_null(value) for value in content if value is not None]
    return content


def _is_added_volume(volume: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Whether the API server added the volume, and would add the same to the replacement."""
    if not _TOKEN_VOLUME.fullmatch(volume["name"]):
        return False
    sources = volume.get("projected", {}).get("sources", ())
    tokens = [source["serviceAccountToken"] for source in sources if "serviceAccountToken" in source]
    mounts = [
        mount
        for kind in ("initContainers", "containers")
        for container in spec.get(kind, ())
        for mount in container.get("volumeMounts", ())
        if mount["name"] == volume["name"]
    ]
    return tokens == [{"expirationSeconds": _TOKEN_SECONDS, "path": "token"}] and all(
        mount["mountPath"] == _TOKEN_FOLDER for mount in mounts
    )


def _affinity(affinity: Mapping[str, Any], *, narrowed: bool) -> dict[str, Any]:
    """The affinity without what the API server merged into it, and without the operator's narrowing."""
    pod_affinity = {kind: _pod_affinity(rules) for kind, rules in affinity.items() if kind != "nodeAffinity"}
    node_affinity = affinity.get("nodeAffinity", {})
    node_affinity = widened(node_affinity) if narrowed else node_affinity
    return pod_affinity | ({"nodeAffinity": node_affinity} if node_affinity else {})


def widened(node_affinity: Mapping[str, Any]) -> dict[str, Any]:
    """The node affinity of an ungated pod as it was before ``launch`` narrowed it; unchanged where it was not narrowed.

    ``node_affinity`` is the pod's ``spec.affinity.nodeAffinity``.
    """
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = [term.get("matchExpressions") or [{}] for term in required.get("nodeSelectorTerms", ())]
    host_requirement = terms[0][-1] if terms else {}
    if host_requirement.get("key") != HOSTNAME_LABEL or any(term[-1] != host_requirement for term in terms):
        return dict(node_affinity)
    preferred = node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ())
    if host_requirement["operator"] == "NotIn" and preferred:
        preferred = preferred[:-1] if _is_for_best_hosts(preferred[-1]) else preferred
    elif len(host_requirement["values"]) > 1:
        preferred = preferred[:-1]
    user_terms = [_without_last(term) for term in required["nodeSelectorTerms"]]
    return without_empty(
        {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": user_terms}
            if any(user_terms)
            else {},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }
    )


def _is_for_best_hosts(preference: Mapping[str, Any]) -> bool:
    """Whether ``launch`` may have added it: it adds none where nodes are only excluded and none is best."""
    expressions = preference["preference"].get("matchExpressions") or [{}]
    keys = [expression.get("key") for expression in expressions]
    return preference["weight"] == PREFERENCE_WEIGHT and keys == [HOSTNAME_LABEL]


def _without_last(term: Mapping[str, Any]) -> dict[str, Any]:
    return without_empty({**term, "matchExpressions": term["matchExpressions"][:-1]})


def _pod_affinity(affinity: Mapping[str, Any]) -> dict[str, Any]:
    return {
        rule: [
            {**term, "podAffinityTerm": _without_merged(term["podAffinityTerm"])}
            if "podAffinityTerm" in term
            else _without_merged(term)
            for term in terms
        ]
        for rule, terms in affinity.items()
    }


def _without_merged(term: Mapping[str, Any]) -> dict[str, Any]:
    """A pod affinity term or spread constraint without the requirements that the API server merged into its selector.

    The API server merges (mis)matchLabelKeys into the selector when the pod is created, and refuses a pod whose
    selector has them already (KEP-3633, KEP-3243; pkg/registry/core/pod/strategy.go:applyLabelKeysToLabelSelector).
    """
    keys = {*term.get("matchLabelKeys", ()), *term.get("mismatchLabelKeys", ())}
    selector = term.get("labelSelector")
    if not keys or not selector:
        return dict(term)
    user_expressions = [
        expression for expression in selector.get("matchExpressions", ()) if expression["key"] not in keys
    ]
    other_fields = {key: value for key, value in selector.items() if key != "matchExpressions"}
    return {
        **term,
        "labelSelector": other_fields | ({"matchExpressions": user_expressions} if user_expressions else {}),
    }


def digest(manifest: Mapping[str, Any]) -> str:
    """The hex SHA-256 of a manifest without its name: a replacement may have another name than the refused pod.

    ``manifest`` may be anybody's: what has no metadata has a digest too.
    """
    metadata = manifest.get("metadata")
    nameless = {key: value for key, value in metadata.items() if key != "name"} if isinstance(metadata, dict) else None
    content = {**manifest, "metadata": nameless}
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def own_name(refused_name: str, attempts_before: int) -> str:
    """The replacement's name ``<name>-r<attempt>``, where ``<name>`` is the name of the first refused pod.

    ``refused_name`` is the name of the pod refused now, and ``attempts_before`` its attempt, 0 for a first refusal.
    """
    first_name = refused_name.removesuffix(f"-r{attempts_before}") if attempts_before else refused_name
    suffix = f"-r{attempts_before + 1}"
    return first_name[: _LONGEST_NAME - len(suffix)].rstrip("-.") + suffix


def replaced_names(name: str, attempt: int) -> Iterator[str]:
    """The names that the refused pod of a replacement may have had: the replacement's, or the one before its suffix.

    ``attempt`` is the replacement's, counted from 1; see ``own_name``.
    """
    yield name
    stem = name.removesuffix(f"-r{attempt}")
    if stem != name:
        yield stem if attempt == 1 else f"{stem}-r{attempt - 1}"


def replacement(relaunch: Relaunch) -> dict[str, Any]:
    """The Pod object to create: the record's manifest with our gate, annotated with record, refused pod and attempt."""
    metadata, spec = relaunch.manifest["metadata"], relaunch.manifest["spec"]
    annotations = metadata.get("annotations", {}) | {
        RECORD_ANNOTATION: relaunch.name,
        REPLACES_ANNOTATION: relaunch.pod_uid,
        ATTEMPT_ANNOTATION: str(relaunch.refusals),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "namespace": relaunch.namespace,
            "name": relaunch.replacement_name,
            "annotations": annotations,
        },
        "spec": {**spec, "schedulingGates": [{"name": RELAUNCH_GATE}]},
    }


def added(asked: Mapping[str, Any], admitted: Mapping[str, Any]) -> str:
    """What admission adds to a Pod object that was through admission before; empty where it adds nothing of weight.

    Webhooks that do not look whether they changed a pod already add a second sidecar or raise its requests again.
    ``asked`` and ``admitted`` are the Pod object as it is sent and as it would be created.
    """
    additions = []
    for kind, title in (("initContainers", "init container"), ("containers", "container")):
        before = {container["name"]: container for container in asked["spec"].get(kind, ())}
        for container in admitted["spec"].get(kind, ()):
            known = before.get(container["name"])
            if known is None:
                additions.append(f"{title} {container['name']}")
            elif container.get("resources", {}) != known.get("resources", {}):
                additions.append(f"other resources of {title} {container['name']}")
    return ", ".join(additions)


def claim(pod: Mapping[str, Any], record_name: str) -> dict[str, Any]:
    """The merge patch that puts our finalizer and the record's name on a Pod object, by its uid and resourceVersion."""
    finalizers = [*_foreign_finalizers(pod), RELAUNCH_FINALIZER]
    return _if_unchanged(pod, {"finalizers": finalizers, "annotations": {RECORD_ANNOTATION: record_name}})


def unclaim(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that removes our finalizer and the record's name from a Pod, by its uid and resourceVersion."""
    return _if_unchanged(
        pod,
        {
            "finalizers": _foreign_finalizers(pod),
            "annotations": {RECORD_ANNOTATION: None},
        },
    )


def protect(record: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that puts our finalizer on a Relaunch object, by its uid and resourceVersion."""
    return _if_unchanged(record, {"finalizers": [*_foreign_finalizers(record), RELAUNCH_FINALIZER]})


def unprotect(record: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that removes our finalizer from a Relaunch object, by its uid and resourceVersion."""
    return _if_unchanged(record, {"finalizers": _foreign_finalizers(record)})


def confirm(record: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that changes nothing of a Relaunch object, by its uid and resourceVersion."""
    return _if_unchanged(record, {})


def _foreign_finalizers(content: Mapping[str, Any]) -> list[str]:
    return [finalizer for finalizer in content["metadata"].get("finalizers", ()) if finalizer != RELAUNCH_FINALIZER]


def ungate(pod: WatchedPod) -> dict[str, Any]:
    """The merge patch that removes our gates from a pod, by uid and resourceVersion, and leaves its affinity alone."""
    return {**_with_precondition(pod.uid, pod.version, {}), "spec": {"schedulingGates": _foreign_gates(pod)}}


def _foreign_gates(pod: WatchedPod) -> list[dict[str, str]] | None:
    return [{"name": gate} for gate in pod.gates if gate not in (RELAUNCH_GATE, FIT_GATE)] or None


def launch(pod: WatchedPod, narrowing: Narrowing) -> dict[str, Any]:
    """The merge patch that narrows a gated pod and removes our gates, by uid and resourceVersion.

    Without any nodes the pod's affinity stays as it is.
    """
    if not narrowing:
        return {
            **_with_precondition(pod.uid, pod.version, {"annotations": {RELEASED_ANNOTATION: NOT_NARROWED}}),
            "spec": {"schedulingGates": _foreign_gates(pod)},
        }
    required = pod.node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    requirement = _on_hosts("NotIn", narrowing.excluded) if narrowing.excluded else _on_hosts("In", narrowing.hosts)
    terms = (
        [_narrowed(term, requirement) for term in required["nodeSelectorTerms"]]
        if required
        else [_narrowed({}, requirement)]
    )
    narrowed: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if _prefers(narrowing):
        narrowed["preferredDuringSchedulingIgnoredDuringExecution"] = [
            *pod.node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ()),
            {"weight": PREFERENCE_WEIGHT, "preference": {"matchExpressions": [_on_hosts("In", _best(narrowing))]}},
        ]
    return {
        **_with_precondition(pod.uid, pod.version, {"annotations": {RELEASED_ANNOTATION: NARROWED}}),
        "spec": {"schedulingGates": _foreign_gates(pod), "affinity": {"nodeAffinity": narrowed}},
    }


def _on_hosts(operator: str, hosts: Sequence[str]) -> dict[str, Any]:
    return {"key": HOSTNAME_LABEL, "operator": operator, "values": list(hosts)}


def _prefers(narrowing: Narrowing) -> bool:
    """Whether the best nodes are preferred: a pod that has one node alone has no choice."""
    return bool(narrowing.hosts) if narrowing.excluded else len(narrowing.hosts) > 1


def _best(narrowing: Narrowing) -> Sequence[str]:
    """The preferred nodes: all that are better than the others, where there are such, else a few."""
    many = narrowing.excluded or len(narrowing.hosts) > MAX_PREFERRED
    return narrowing.hosts[: narrowing.preferred or (MAX_PREFERRED if many else 1)]


def _narrowed(term: Mapping[str, Any], requirement: Mapping[str, Any]) -> dict[str, Any]:
    return {**term, "matchExpressions": [*term.get("matchExpressions", ()), requirement]}


def _without_mounts(container: Mapping[str, Any], volumes: set[str]) -> dict[str, Any]:
    mounts = [mount for mount in container.get("volumeMounts", ()) if mount["name"] not in volumes]
    fields = {key: value for key, value in container.items() if key != "volumeMounts"}
    return fields | ({"volumeMounts": mounts} if mounts else {})


def _if_unchanged(pod: Mapping[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    return _with_precondition(pod["metadata"]["uid"], pod["metadata"]["resourceVersion"], metadata)


def _with_precondition(uid: str, version: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": version, **metadata}}
