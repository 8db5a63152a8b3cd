"""What the webhook answers: the patch that the policy of the same name would make of the same pod.

The API server has checked the webhook's conditions before it asks, so this checks only what a condition cannot: the
parameter objects, and the annotation of the pod's namespace. A pod that is patched twice is patched once: a gate that
is there is not added.
"""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from topomend.gating.definitions import BRAKE, CHANGES, CREATOR, STEER
from topomend.wire.group import (
    CHANGED_ANNOTATION,
    CREATOR_ANNOTATION,
    FIT_GATE,
    GROUP,
    LABEL_PREFIX,
    RELAUNCH_ANNOTATION,
    UNREVIEWABLE,
)

_Patch = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """What is known of one parameter object: whether it exists, until when it is valid, and the controllers it lists.

    ``valid_until`` is a time as the API server writes it, empty for no limit.
    """

    exists: bool = False
    valid_until: str = ""
    owners: frozenset[str] = field(default_factory=frozenset)

    def is_valid(self, now: datetime) -> bool:
        """Whether pods are to be gated at ``now``, which has a time zone."""
        return self.exists and (not self.valid_until or now < datetime.fromisoformat(self.valid_until))


def answered(
    review: Mapping[str, Any],
    definition: str,
    parameter: Parameter,
    now: datetime,
    opted_out: Callable[[str], bool],
) -> dict[str, Any]:
    """The answer to an AdmissionReview (admission.k8s.io/v1): always allowed, perhaps with a patch.

    ``opted_out`` says whether a namespace opted out of gating. Raises KeyError, TypeError, AttributeError or ValueError
    if ``review`` is none.
    """
    request = review["request"]
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    if patch := _patch(request, definition, parameter, now, opted_out):
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}


def _patch(
    request: Mapping[str, Any],
    definition: str,
    parameter: Parameter,
    now: datetime,
    opted_out: Callable[[str], bool],
) -> _Patch:
    pod = request["object"]
    if definition in (STEER, BRAKE):
        is_due = parameter.is_valid(now) and (definition == STEER or _controller(pod) in parameter.owners)
        has_own = RELAUNCH_ANNOTATION in _annotations(pod["metadata"])
        return _gate(pod) if is_due and (has_own or not opted_out(request["namespace"])) else []
    if definition == CREATOR:
        return _annotate(pod, CREATOR_ANNOTATION, stamp(request["userInfo"]))
    if definition == CHANGES and (changed := _changed(request["oldObject"], pod)):
        return _annotate(pod, CHANGED_ANNOTATION, changed)
    return []


def _gate(pod: Mapping[str, Any]) -> _Patch:
    gates = pod["spec"].get("schedulingGates")
    if gates is None:
        return [{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": FIT_GATE}]}]
    if any(gate["name"] == FIT_GATE for gate in gates):
        return []
    return [{"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": FIT_GATE}}]


def _controller(pod: Mapping[str, Any]) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(owner.get("uid")) for owner in owners if owner.get("controller")), "")


def stamp(user: Mapping[str, Any]) -> str:
    """The stamp of a pod that this user creates; see ``CREATOR_ANNOTATION`` and the policy topomend-creator."""
    name = user["username"]
    names = [name, *(user.get("groups") or ())]
    is_reviewable = not any("\n" in entry for entry in names) and all(
        key.startswith("authentication.kubernetes.io/") for key in user.get("extra") or ()
    )
    if not is_reviewable:
        return UNREVIEWABLE
    if name.startswith("system:serviceaccount:"):
        return str(name)
    return "\n".join(entry for entry in names if entry != "system:authenticated")


def _changed(before: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    """The note of all keys that were written since the pod's creation; empty if this write adds none."""
    old, new = before["metadata"], pod["metadata"]
    noted = (_annotations(old).get(CHANGED_ANNOTATION) or "").split()
    known = frozenset(noted)  # a stranger may send hundreds of thousands
    written = [
        key
        for key, value in _annotations(new).items()
        if not key.startswith(f"{GROUP}/") and _annotations(old).get(key) != value
    ]
    old_labels = old.get("labels") or {}
    written += [LABEL_PREFIX + key for key, value in (new.get("labels") or {}).items() if old_labels.get(key) != value]
    fresh = [key for key in written if key not in known]
    return " ".join([*noted, *fresh]) if fresh else ""


def _annotations(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    return metadata.get("annotations") or {}


def _annotate(pod: Mapping[str, Any], key: str, value: str) -> _Patch:
    annotations = _annotations(pod["metadata"])
    if annotations.get(key) == value:
        return []
    if not annotations:
        return [{"op": "add", "path": "/metadata/annotations", "value": {key: value}}]
    escaped = key.replace("~", "~0").replace("/", "~1")
    return [{"op": "add", "path": f"/metadata/annotations/{escaped}", "value": value}]
