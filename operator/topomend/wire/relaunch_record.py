"""Convert the model's Relaunch to and from a Relaunch object (``topomend.io/v1alpha1``, namespaced, with a status).

Owns the object's layout. Leaves the protocol's rules to ``relaunch/protocol.py``. ``spec`` is written once, at
creation, and never changes. ``status`` is a subresource, so a new record has none and reads as ``Recorded``.

    apiVersion: topomend.io/v1alpha1
    kind: Relaunch
    metadata:
      namespace, name              # the refused pod's namespace; name <pod name>-<10 hex digits of its uid's SHA-256>
      finalizers                   # topomend.io/relaunch as long as the record may be the only copy of the pod
    spec:                          # immutable
      pod: {name, uid}             # strings, required: the refused pod, in the record's own namespace
      refusedBy: string            # required: name of the node whose kubelet refused it, or "scheduler"
      reason: string               # required: the kubelet's status.reason, such as TopologyAffinityError, or
                                   # "Unschedulable" of a pod that no scheduler bound to the nodes it was narrowed to
      message: string              # the kubelet's status.message, or those nodes; at most 1024 characters
      attempt: integer             # required, 1 to 1000
      replacementName: string      # the new pod's name, where it is not the refused pod's
      manifestHash: string         # hex SHA-256 of the new pod's manifest: relaunch/manifest.py:digest
    status:
      step: string                 # Recorded Committed Blocked Created Launched Cancelled Superseded
      manifest: {...}              # from Committed to the end, x-kubernetes-preserve-unknown-fields: metadata and spec
                                   # of the new pod
      newPod: {name, uid}          # strings: the one pod that may lose our scheduling gate
      candidates: [string]         # node names the new pod was narrowed to, best first; at most 16
      verdicts:                    # at most 10, list-map keyed by node
      - node: string               # required
        admitted: boolean          # required
        reason: string             # the kubelet's word where it would refuse
        explanation: string        # at most 1024 characters
      counts:                      # every node, by answer; at most 32, list-map keyed by reason
      - reason: string             # required: Admits, or why not, such as TopologyAffinityError, Taint, NodeSelector
        nodes: integer             # required
      startTime: date-time         # when the operator first saw the refusal
      launchedTime: date-time      # when the new pod's gate went
      conditions: [...]            # standard conditions, list-map keyed by type; Succeeded is the summary, and
                                   # NoNodeCanEverAdmit is True where no node admits the pod even when empty

Columns: POD .spec.pod.name, REFUSED-BY .spec.refusedBy, REASON .spec.reason, ATTEMPT .spec.attempt, STATUS
.status.conditions[?(@.type=="Succeeded")].reason, NEW-POD .status.newPod.name, AGE; wide: STEP .status.step, MESSAGE
.status.conditions[?(@.type=="Succeeded")].message. ``kubectl numa relaunches`` prints the same.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from topomend.base.plain_text import plain
from topomend.model.relaunch_record import NodeVerdict, Relaunch, Step
from topomend.wire.condition import condition_fields, read_condition
from topomend.wire.document import Document, without_empty
from topomend.wire.group import API_VERSION, RELAUNCH, RELAUNCH_FINALIZER

MAX_TEXT = 1024
MAX_VERDICTS = 10
MAX_CANDIDATES = 16
MAX_COUNTS = 32

_LONGEST_NAME = 253
_HASH_DIGITS = 10


def record_name(pod_name: str, pod_uid: str) -> str:
    """The record's name. It depends on the refused pod alone, so that creating its record twice cannot make two."""
    digits = sha256(pod_uid.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{pod_name[: _LONGEST_NAME - _HASH_DIGITS - 1].rstrip('-.')}-{digits}"


def relaunch_object(relaunch: Relaunch) -> dict[str, Any]:
    """The object to create: metadata and spec. ``relaunch_status`` is written through the subresource afterwards."""
    return {
        "apiVersion": API_VERSION,
        "kind": RELAUNCH,
        "metadata": {"namespace": relaunch.namespace, "name": relaunch.name}
        | ({"finalizers": [RELAUNCH_FINALIZER]} if relaunch.protected else {}),
        "spec": {
            "pod": {"name": relaunch.pod_name, "uid": relaunch.pod_uid},
            "refusedBy": relaunch.refused_by,
            "reason": relaunch.reason,
            "message": plain(relaunch.message, MAX_TEXT),
            "attempt": relaunch.attempt,
            "manifestHash": relaunch.manifest_hash,
        }
        | ({"replacementName": relaunch.own_name} if relaunch.own_name else {}),
    }


def relaunch_status(relaunch: Relaunch) -> dict[str, Any]:
    """The ``status`` of a record, with texts and lists cut to what the schema allows, and without the manifest.

    The manifest is written once and dropped once, and not repeated with everything else (``manifest_status``).
    """
    return without_empty(
        {
            "step": relaunch.step.value,
            "newPod": without_empty({"name": relaunch.new_name, "uid": relaunch.new_uid}),
            "candidates": list(relaunch.candidates[:MAX_CANDIDATES]),
            "verdicts": [_verdict_fields(verdict) for verdict in relaunch.verdicts[:MAX_VERDICTS]],
            "counts": [
                {"reason": reason, "nodes": nodes} for reason, nodes in list(relaunch.counts.items())[:MAX_COUNTS]
            ],
            "startTime": relaunch.start_time,
            "launchedTime": relaunch.launched_time,
            "conditions": [condition_fields(condition) for condition in relaunch.conditions],
        }
    )


def manifest_status(manifest: Mapping[str, Any] | None) -> dict[str, Any]:
    """The part of ``status`` that writes a manifest, as a merge patch; with None the part that drops it."""
    return {"manifest": None if manifest is None else dict(manifest)}


def read_relaunch(content: Any) -> Relaunch:
    """The Relaunch of a Relaunch object. Raises MalformedObject, which names the wrong field."""
    document = Document(content)
    if document["kind"].text(default=RELAUNCH) != RELAUNCH:
        raise document["kind"].wrong(RELAUNCH)
    metadata, spec, status = document["metadata"], document["spec"], document["status"]
    manifest = status["manifest"]
    if not isinstance(manifest.content, dict | None):
        raise manifest.wrong("the manifest of a pod")
    return Relaunch(
        namespace=metadata["namespace"].text(),
        name=metadata["name"].text(),
        pod_name=spec["pod"]["name"].text(),
        pod_uid=spec["pod"]["uid"].text(),
        refused_by=spec["refusedBy"].text(),
        reason=spec["reason"].text(),
        message=spec["message"].text(""),
        attempt=spec["attempt"].integer(least=1),
        manifest=manifest.content or {},
        step=_read_step(status["step"]),
        new_name=status["newPod"]["name"].text(""),
        new_uid=status["newPod"]["uid"].text(""),
        candidates=tuple(node.text() for node in status["candidates"]),
        verdicts=tuple(
            NodeVerdict(
                verdict["node"].text(),
                verdict["admitted"].boolean(),
                verdict["reason"].text(""),
                verdict["explanation"].text(""),
            )
            for verdict in status["verdicts"]
        ),
        counts={count["reason"].text(): count["nodes"].integer() for count in status["counts"]},
        start_time=status["startTime"].text(""),
        launched_time=status["launchedTime"].text(""),
        conditions=tuple(read_condition(condition) for condition in status["conditions"]),
        uid=metadata["uid"].text(""),
        version=metadata["resourceVersion"].text(""),
        creation_time=metadata["creationTimestamp"].text(""),
        manifest_hash=spec["manifestHash"].text(""),
        own_name=spec["replacementName"].text(""),
        protected=RELAUNCH_FINALIZER in (finalizer.text() for finalizer in metadata["finalizers"]),
        deleting=not metadata["deletionTimestamp"].absent,
    )


def _read_step(step: Document) -> Step:
    try:
        return Step(step.text(Step.RECORDED.value))
    except ValueError as error:
        raise step.wrong(f"one of {', '.join(known_step.value for known_step in Step)}") from error


def _verdict_fields(verdict: NodeVerdict) -> dict[str, Any]:
    return without_empty(
        {
            "node": verdict.node,
            "admitted": verdict.admitted,
            "reason": verdict.reason,
            "explanation": plain(verdict.explanation, MAX_TEXT),
        }
    )
