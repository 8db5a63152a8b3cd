"""One relaunch: the refused pod, its replacement, and the steps of the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from topomend.model.condition import Condition

UNSCHEDULABLE = "Unschedulable"
"""The reason in the record of a pod that no scheduler binds, as in its condition ``PodScheduled``. No kubelet refuses a
pod with it."""

SCHEDULER = "scheduler"
"""Who refused such a pod, in the place of a node."""


class Step(Enum):
    """The last completed step of a relaunch. ``relaunch/protocol.py`` says which steps may follow."""

    RECORDED = "Recorded"
    COMMITTED = "Committed"
    BLOCKED = "Blocked"
    CREATED = "Created"
    LAUNCHED = "Launched"
    CANCELLED = "Cancelled"
    SUPERSEDED = "Superseded"

    @property
    def ended(self) -> bool:
        """Whether the relaunch has ended, so that the record is only history."""
        return self in (Step.LAUNCHED, Step.CANCELLED, Step.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """The verdict of one node. ``reason`` is the kubelet's reason, ``explanation`` one line for people."""

    node: str
    admitted: bool
    reason: str = ""
    explanation: str = ""


@dataclass(frozen=True)
class Relaunch:
    """The write-ahead record of one refused pod, or of one that no scheduler binds to the nodes it was ungated for.

    ``pod_uid`` is the refused pod's. ``own_name`` is the replacement's name, where it is not the refused pod's.
    ``manifest_hash`` is the digest of the pod to create, without the fields that the API server and the kubelet added.
    ``manifest`` is that pod as long as the record may be its only copy, and empty before and after.
    ``new_uid`` is the uid of the only pod that may be ungated.
    ``version`` is the record's resourceVersion, empty if it was not read from the API. Times are in RFC 3339, empty
    until they are reached. ``protected`` is whether topomend's finalizer keeps the record, ``deleting`` whether it is
    being deleted.
    """

    namespace: str
    name: str
    pod_name: str
    pod_uid: str
    refused_by: str
    reason: str
    message: str
    attempt: int
    manifest: Mapping[str, Any] = field(default_factory=dict)
    step: Step = Step.RECORDED
    new_name: str = ""
    new_uid: str = ""
    candidates: tuple[str, ...] = ()
    verdicts: tuple[NodeVerdict, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    start_time: str = ""
    launched_time: str = ""
    conditions: tuple[Condition, ...] = ()
    uid: str = ""
    version: str = ""
    creation_time: str = ""
    manifest_hash: str = ""
    own_name: str = ""
    protected: bool = False
    deleting: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the relaunch has not ended, or its record still has topomend's finalizer."""
        return self.protected or not self.step.ended

    @property
    def is_of_unbound(self) -> bool:
        """Whether the pod was not refused by a kubelet: no scheduler binds it to the nodes it was narrowed to."""
        return self.reason == UNSCHEDULABLE

    @property
    def refusals(self) -> int:
        """The attempts that count for the replacement: how often a kubelet has refused it or its predecessors."""
        return self.attempt - self.is_of_unbound

    @property
    def replacement_name(self) -> str:
        """The name that the new pod has or will have."""
        return self.own_name or self.pod_name

    @property
    def keeps_name(self) -> bool:
        """Whether the new pod has the refused pod's name. It can then be created only after the refused pod's end."""
        return self.replacement_name == self.pod_name

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type."""
        return next((condition for condition in self.conditions if condition.type == kind), None)
