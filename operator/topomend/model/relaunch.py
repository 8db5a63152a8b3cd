"""One relaunch: what was refused, what replaces it, and how far the protocol has come."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Step(Enum):
    """How far a relaunch has come. The protocol in ``relaunch/protocol.py`` says what each one allows."""

    RECORDED = "Recorded"
    COMMITTED = "Committed"
    BLOCKED = "Blocked"
    CREATED = "Created"
    LAUNCHED = "Launched"
    CANCELLED = "Cancelled"
    SUPERSEDED = "Superseded"

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do but to keep the record as history."""
        return self in (Step.LAUNCHED, Step.CANCELLED, Step.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What replay said of one node. ``reason`` is the kubelet's word, ``explanation`` one line for people."""

    node: str
    admitted: bool
    reason: str = ""
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class RelaunchCondition:
    """One standard condition with its time as the API writes it (RFC 3339)."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str = ""


@dataclass(frozen=True)
class Relaunch:
    """The write-ahead record of one refused pod.

    ``pod_uid`` is the refused pod's; ``manifest`` is the pod to create, already stripped of what the API server and
    the kubelet had added, and ``manifest_hash`` its digest. ``new_uid`` is the uid of the one pod that may lose our
    gate. ``version`` is the record's resourceVersion, empty where it was not read from the API. Times are RFC 3339
    texts, empty where not reached. ``protected`` is whether our finalizer keeps the record, ``deleting`` whether
    somebody deleted it.
    """

    namespace: str
    name: str
    pod_name: str
    pod_uid: str
    refused_by: str
    reason: str
    message: str
    attempt: int
    manifest: Mapping[str, Any]
    step: Step = Step.RECORDED
    new_name: str = ""
    new_uid: str = ""
    candidates: tuple[str, ...] = ()
    verdicts: tuple[NodeVerdict, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    start_time: str = ""
    launched_time: str = ""
    conditions: tuple[RelaunchCondition, ...] = ()
    uid: str = ""
    version: str = ""
    creation_time: str = ""
    manifest_hash: str = ""
    protected: bool = False
    deleting: bool = False

    @property
    def is_open(self) -> bool:
        """Whether there is something left to do: the relaunch itself, or our finalizer on its record."""
        return self.protected or not self.step.ended

    @property
    def replacement_name(self) -> str:
        """The name that the new pod has or will have."""
        return str(self.manifest.get("metadata", {}).get("name") or self.pod_name)

    @property
    def keeps_name(self) -> bool:
        """Whether the new pod has the refused one's name, and can be created only after its end."""
        return self.replacement_name == self.pod_name

    def condition(self, kind: str) -> RelaunchCondition | None:
        """The condition of this type."""
        return next((condition for condition in self.conditions if condition.type == kind), None)
