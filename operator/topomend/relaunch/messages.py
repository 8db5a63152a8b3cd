"""The requests and the answers of the relaunch protocol.

``protocol`` decides on the next request, and ``driver`` sends it to the API server and returns one answer. As in
``protocol``, P is the refused pod, N its replacement and W the Relaunch record. Every request is one API call, except
``Choose``, and except ``Stop`` and ``Pause``, which end an attempt.
"""

from dataclasses import dataclass

from topomend.model.pods.scheduling import WatchedPod
from topomend.model.relaunch_record import Relaunch, Step

# Requests


@dataclass(frozen=True)
class ReadPod:
    """GET the pod that has P's name now."""


@dataclass(frozen=True)
class ReadRecord:
    """GET W."""


@dataclass(frozen=True)
class ReadReplacement:
    """GET the pod that has N's name, where that differs from P's."""

    record: Relaunch


@dataclass(frozen=True)
class Claim:
    """PATCH P: our finalizer and W's name."""

    pod: WatchedPod


@dataclass(frozen=True)
class Record:
    """CREATE W with the digest of P's stripped manifest, and our finalizer."""

    pod: WatchedPod


@dataclass(frozen=True)
class Restore:
    """CREATE W again from N, which is still gated, after W was deleted."""

    pod: WatchedPod


@dataclass(frozen=True)
class Discard:
    """DELETE W, by uid and resourceVersion, before anything was done to P."""

    record: Relaunch


@dataclass(frozen=True)
class Protect:
    """PATCH W: add our finalizer, by W's resourceVersion."""

    record: Relaunch


@dataclass(frozen=True)
class Unprotect:
    """PATCH W: remove our finalizer, by W's resourceVersion. If W is being deleted, it then disappears."""

    record: Relaunch


@dataclass(frozen=True)
class Confirm:
    """PATCH nothing of W, by its uid and resourceVersion: it is still the W that was read."""

    record: Relaunch


@dataclass(frozen=True)
class Commit:
    """PATCH W's status to Committed, and P's manifest into it, by W's resourceVersion."""

    pod: WatchedPod
    record: Relaunch


@dataclass(frozen=True)
class Mark:
    """PATCH W's status to ``step``, by W's resourceVersion. ``why`` becomes the message of its condition.

    A step that ends the relaunch drops W's manifest.
    """

    record: Relaunch
    step: Step
    new_uid: str = ""
    nodes: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Delete:
    """DELETE this pod, by uid and resourceVersion."""

    pod: WatchedPod


@dataclass(frozen=True)
class Unclaim:
    """PATCH P: remove our finalizer, by uid and resourceVersion."""

    pod: WatchedPod


@dataclass(frozen=True)
class Create:
    """CREATE N from W's manifest, gated."""

    record: Relaunch


@dataclass(frozen=True)
class Choose:
    """Choose the nodes for N, and assume it on them. Not a request to the API server."""

    pod: WatchedPod
    record: Relaunch


@dataclass(frozen=True)
class Launch:
    """PATCH N: narrow it to ``nodes``, if there are any, and remove the gate, by uid and resourceVersion."""

    pod: WatchedPod
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Stop:
    """The relaunch has ended or does not start; ``outcome`` is the reason as text."""

    outcome: str


@dataclass(frozen=True)
class Pause:
    """Nothing can be done now: N waits for a node, or P is still terminating, or the API server rejects N."""

    waiting_for: str


Request = (
    ReadPod
    | ReadRecord
    | ReadReplacement
    | Claim
    | Record
    | Restore
    | Discard
    | Protect
    | Unprotect
    | Confirm
    | Commit
    | Mark
    | Delete
    | Unclaim
    | Create
    | Choose
    | Launch
    | Stop
    | Pause
)


# Answers


@dataclass(frozen=True)
class PodIs:
    """The pod of P's name as the API server has it, None where there is none; ``digest`` is that of its manifest."""

    pod: WatchedPod | None
    digest: str = ""


@dataclass(frozen=True)
class ReplacementIs:
    """The pod of N's own name as the API server has it; None where there is none."""

    pod: WatchedPod | None


@dataclass(frozen=True)
class RecordIs:
    """W as the API server has it; None where there is none."""

    record: Relaunch | None


@dataclass(frozen=True)
class NodesAre:
    """The chosen nodes by name, best first; empty where no node admits the pod now."""

    nodes: tuple[str, ...]


@dataclass(frozen=True)
class NotAsExpected:
    """A precondition failed, or no answer arrived: everything must be read again."""


@dataclass(frozen=True)
class Denied:
    """The API server rejects the object: a quota or a policy forbids it, or it is invalid."""

    why: str


@dataclass(frozen=True)
class NamespaceEnds:
    """The namespace is being deleted or gone: nothing can be created in it."""


Answer = PodIs | ReplacementIs | RecordIs | NodesAre | NotAsExpected | Denied | NamespaceEnds
