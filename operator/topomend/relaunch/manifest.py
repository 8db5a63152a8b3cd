"""The replacement pod: what is kept of the refused one, what is taken off, and how it is narrowed and let go.

The API server fills the taken-off fields in again. Rules for gated pods: KEP-3521 (scheduling gates), KEP-3838
(node affinity of a gated pod may only gain requirements inside its terms, and the same update may drop the gate).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from topomend.model.cluster import HOSTNAME_LABEL, WatchedPod
from topomend.model.relaunch import Relaunch
from topomend.wire.document import without_empty
from topomend.wire.group import (
    ATTEMPT_ANNOTATION,
    FIT_GATE,
    RECORD_ANNOTATION,
    RELAUNCH_FINALIZER,
    RELAUNCH_GATE,
    RELEASED_ANNOTATION,
    REPLACES_ANNOTATION,
)

_KEPT_METADATA = ("name", "generateName", "labels", "annotations", "ownerReferences")
_TAKEN_OFF_SPEC = ("nodeName", "priority", "preemptionPolicy", "ephemeralContainers")
"""Where a pod was bound, what debugged it, and what follows from its priority class, which may say otherwise by now
(plugin/pkg/admission/priority refuses a pod that says another than its class)."""

_OWN_ANNOTATIONS = (RECORD_ANNOTATION, REPLACES_ANNOTATION, ATTEMPT_ANNOTATION, RELEASED_ANNOTATION)
_LONGEST_NAME = 253

_SERVICE_ACCOUNT_VOLUME = "kube-api-access-"
"""The volume that the ServiceAccount admission plugin adds (plugin/pkg/admission/serviceaccount)."""

PREFERENCE_WEIGHT = 100


def stripped(pod: Mapping[str, Any], previous: Relaunch | None = None) -> dict[str, Any]:
    """The manifest to record of a refused Pod object: its user's metadata and spec, nothing that a server added.

    A pod that was let go has been narrowed to nodes that were right then. ``previous`` is the record that made it,
    where it is a replacement itself: the affinity is taken from there, and else widened again. Other finalizers than
    ours cannot be on it: such a pod is left alone.
    """
    metadata = {key: pod["metadata"][key] for key in _KEPT_METADATA if key in pod["metadata"]}
    annotations = {key: value for key, value in metadata.pop("annotations", {}).items() if key not in _OWN_ANNOTATIONS}
    spec = {key: value for key, value in pod["spec"].items() if key not in _TAKEN_OFF_SPEC}
    mounted = {each["name"] for each in spec.get("volumes", ()) if each["name"].startswith(_SERVICE_ACCOUNT_VOLUME)}
    released = pod["metadata"].get("annotations", {}).get(RELEASED_ANNOTATION) == "true"
    spec["affinity"] = (
        previous.manifest["spec"].get("affinity", {})
        if previous
        else _affinity(spec.get("affinity", {}), released=released)
    )
    spec["topologySpreadConstraints"] = [_without_merged(each) for each in spec.get("topologySpreadConstraints", ())]
    spec["volumes"] = [each for each in spec.get("volumes", ()) if each["name"] not in mounted]
    for kind in ("initContainers", "containers"):
        spec[kind] = [_without_mounts(container, mounted) for container in spec.get(kind, ())]
    return {
        "metadata": without_empty(metadata | {"annotations": annotations}),
        "spec": {key: value for key, value in spec.items() if value not in ([], {})},
    }


def _affinity(affinity: Mapping[str, Any], *, released: bool) -> dict[str, Any]:
    """The affinity without what the API server merged into it, and without what we did."""
    found = {kind: _pod_affinity(each) for kind, each in affinity.items() if kind != "nodeAffinity"}
    of_nodes = affinity.get("nodeAffinity", {})
    of_nodes = widened(of_nodes) if released else of_nodes
    return found | ({"nodeAffinity": of_nodes} if of_nodes else {})


def widened(node_affinity: Mapping[str, Any]) -> dict[str, Any]:
    """The node affinity of a pod that was let go as it was before that (``launch``)."""
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = [each.get("matchExpressions") or [{}] for each in required.get("nodeSelectorTerms", ())]
    named = terms[0][-1] if terms else {}
    if named.get("key") != HOSTNAME_LABEL or any(each[-1] != named for each in terms):
        return dict(node_affinity)
    preferred = node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ())
    if len(named["values"]) > 1:
        preferred = preferred[:-1]
    left = [_without_last(each) for each in required["nodeSelectorTerms"]]
    return without_empty(
        {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": left} if any(left) else {},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }
    )


def _without_last(term: Mapping[str, Any]) -> dict[str, Any]:
    return without_empty({**term, "matchExpressions": term["matchExpressions"][:-1]})


def _pod_affinity(affinity: Mapping[str, Any]) -> dict[str, Any]:
    return {
        rule: [
            {**each, "podAffinityTerm": _without_merged(each["podAffinityTerm"])}
            if "podAffinityTerm" in each
            else _without_merged(each)
            for each in terms
        ]
        for rule, terms in affinity.items()
    }


def _without_merged(term: Mapping[str, Any]) -> dict[str, Any]:
    """A term that selects pods by the values of the pod's own labels, without the requirements made of them.

    The API server merges (mis)matchLabelKeys into the selector when the pod is created, and takes no pod where that has
    been done already (KEP-3633, KEP-3243; pkg/registry/core/pod/strategy.go:applyLabelKeysToLabelSelector).
    """
    keys = {*term.get("matchLabelKeys", ()), *term.get("mismatchLabelKeys", ())}
    selector = term.get("labelSelector")
    if not keys or not selector:
        return dict(term)
    own = [each for each in selector.get("matchExpressions", ()) if each["key"] not in keys]
    rest = {key: value for key, value in selector.items() if key != "matchExpressions"}
    return {**term, "labelSelector": rest | ({"matchExpressions": own} if own else {})}


def digest(manifest: Mapping[str, Any]) -> str:
    """What tells a manifest from any other, its name left out: a replacement may have another than the refused pod."""
    named = {"metadata": {key: value for key, value in manifest["metadata"].items() if key != "name"}}
    return sha256(json.dumps({**manifest, **named}, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def renamed(manifest: Mapping[str, Any], refused_name: str, attempts_before: int) -> dict[str, Any]:
    """The manifest under the name ``<name>-r<attempt>``, ``<name>`` being that of the pod that was refused first."""
    first = refused_name.removesuffix(f"-r{attempts_before}") if attempts_before else refused_name
    suffix = f"-r{attempts_before + 1}"
    name = first[: _LONGEST_NAME - len(suffix)].rstrip("-.") + suffix
    return {**manifest, "metadata": {**manifest["metadata"], "name": name}}


def replaced_names(name: str, attempt: int) -> Iterator[str]:
    """The names that the pod may have had which a replacement of this name stands in for: its own, or the one before
    the suffix (``renamed``)."""
    yield name
    first = name.removesuffix(f"-r{attempt}")
    if first != name:
        yield first if attempt == 1 else f"{first}-r{attempt - 1}"


def replacement(relaunch: Relaunch) -> dict[str, Any]:
    """The Pod object to create: the record's manifest behind our gate, saying whom it replaces."""
    metadata, spec = relaunch.manifest["metadata"], relaunch.manifest["spec"]
    annotations = metadata.get("annotations", {}) | {
        RECORD_ANNOTATION: relaunch.name,
        REPLACES_ANNOTATION: relaunch.pod_uid,
        ATTEMPT_ANNOTATION: str(relaunch.attempt),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "namespace": relaunch.namespace, "annotations": annotations},
        "spec": {**spec, "schedulingGates": [{"name": RELAUNCH_GATE}]},
    }


def claim(pod: Mapping[str, Any], record_name: str) -> dict[str, Any]:
    """The merge patch that puts our finalizer and the record's name on a pod, if it is still as it was read."""
    finalizers = [*_foreign_finalizers(pod), RELAUNCH_FINALIZER]
    return _if_unchanged(pod, {"finalizers": finalizers, "annotations": {RECORD_ANNOTATION: record_name}})


def unclaim(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that takes our finalizer off a pod, if it is still as it was read."""
    return _if_unchanged(
        pod,
        {
            "finalizers": _foreign_finalizers(pod),
            "annotations": {RECORD_ANNOTATION: None},
        },
    )


def protect(record: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that puts our finalizer on a Relaunch object, if it is still as it was read."""
    return _if_unchanged(record, {"finalizers": [*_foreign_finalizers(record), RELAUNCH_FINALIZER]})


def unprotect(record: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that takes our finalizer off a Relaunch object, if it is still as it was read."""
    return _if_unchanged(record, {"finalizers": _foreign_finalizers(record)})


def _foreign_finalizers(content: Mapping[str, Any]) -> list[str]:
    return [each for each in content["metadata"].get("finalizers", ()) if each != RELAUNCH_FINALIZER]


def ungate(pod: WatchedPod) -> dict[str, Any]:
    """The merge patch that takes our gates off a pod, if it is still as it was seen, and leaves it where it may go."""
    return {**_if_still(pod.uid, pod.version, {}), "spec": {"schedulingGates": _foreign_gates(pod)}}


def _foreign_gates(pod: WatchedPod) -> list[dict[str, str]] | None:
    return [{"name": each} for each in pod.gates if each not in (RELAUNCH_GATE, FIT_GATE)] or None


def launch(pod: WatchedPod, hostnames: Sequence[str]) -> dict[str, Any]:
    """The merge patch that narrows a gated pod to ``hostnames``, prefers the first, and takes our gates off, if it is
    still as it was seen."""
    required = pod.node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    named = {"key": HOSTNAME_LABEL, "operator": "In", "values": list(hostnames)}
    terms = [_narrowed(term, named) for term in required["nodeSelectorTerms"]] if required else [_narrowed({}, named)]
    first = {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": [hostnames[0]]}]}
    preferred = [
        *pod.node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ()),
        {"weight": PREFERENCE_WEIGHT, "preference": first},
    ]
    narrowed: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if len(hostnames) > 1:
        narrowed["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return {
        **_if_still(pod.uid, pod.version, {"annotations": {RELEASED_ANNOTATION: "true"}}),
        "spec": {"schedulingGates": _foreign_gates(pod), "affinity": {"nodeAffinity": narrowed}},
    }


def _narrowed(term: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    return {**term, "matchExpressions": [*term.get("matchExpressions", ()), named]}


def _without_mounts(container: Mapping[str, Any], volumes: set[str]) -> dict[str, Any]:
    mounts = [each for each in container.get("volumeMounts", ()) if each["name"] not in volumes]
    kept = {key: value for key, value in container.items() if key != "volumeMounts"}
    return kept | ({"volumeMounts": mounts} if mounts else {})


def _if_unchanged(pod: Mapping[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    return _if_still(pod["metadata"]["uid"], pod["metadata"]["resourceVersion"], metadata)


def _if_still(uid: str, version: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": version, **metadata}}
