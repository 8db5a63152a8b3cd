"""What ``explain`` asks about one pod, and what was read to answer it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.numa.cluster.devices.device_claims import Devices
from topomend.cli.numa.explain.pod_state import State, state_of
from topomend.cli.numa.explain.resize import is_pending
from topomend.cli.numa.explain.waiting_pod.surroundings import Surroundings
from topomend.decide.diagnosis.totals import Requests
from topomend.model.relaunch_record import Relaunch


@dataclass(frozen=True)
class Question:
    """The pod ``running``, the pod ``desired`` of a file, or a resize of the one to the other.

    ``node`` is the one that the user named, or empty.
    """

    running: RequestedPod | None
    desired: RequestedPod | None = None
    node: str = ""

    @property
    def asked(self) -> RequestedPod:
        """The pod as it is to be."""
        asked = self.desired or self.running
        assert asked is not None  # noqa: S101 - a question is about one of them at least
        return asked

    @property
    def bound(self) -> str:
        """The node that the pod is bound to, or empty."""
        return str((self.running or self.asked).content.get("spec", {}).get("nodeName", ""))

    @property
    def chosen(self) -> str:
        """The node whose answer counts: the one that the user named, or the pod's own; all nodes where it is empty."""
        return self.node or self.bound

    @property
    def is_resize(self) -> bool:
        """Whether it is about a resize of the pod: the user asks for one, or one is pending."""
        if self.running is None or self.chosen != self.bound or self.is_over:
            return False
        return bool(self.desired) or is_pending(self.running)

    @property
    def is_over(self) -> bool:
        """Whether the pod has ended or is being deleted, so that nothing is to be admitted."""
        return self.state is State.ENDED

    @property
    def state(self) -> State | None:
        """What the pod does; None where the question is about more than that: a file, or a node that is named."""
        return state_of(self.running.content) if self.running and not (self.desired or self.node) else None


RequestsOn = Callable[[Collection[str]], Mapping[str, Requests] | None]
"""What the pods on some nodes request, by node; None where the user may not list them."""


@dataclass(frozen=True)
class Facts:
    """What was read: the nodes with what they publish, and the relaunches of the pods' namespaces."""

    cluster: Cluster
    snapshot: Snapshot
    relaunches: Sequence[Relaunch]
    around: Surroundings
    devices: Devices
