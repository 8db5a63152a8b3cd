"""What can be seen or done, each as a value that knows how it changes the view: ``fold(view, event) -> view``.

A re-list (``...Listed``) replaces all that was known of its kind, so what a gap in a watch hid is healed by the next
one; only what was written after ``version``, the list's resourceVersion, is newer than the list and stays. An event
that tells nothing new returns an equal view. Times are seconds of a clock that only goes forward.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from topomend.model.cluster import Node, WatchedPod
from topomend.model.node_state import NodeState, emptied
from topomend.model.pod import Pod
from topomend.model.relaunch import Relaunch
from topomend.watch.expected import after_binding, after_end, expecting, off_its_way, on_its_way, with_ended
from topomend.watch.view import ClusterView, Doubt, OnItsWay, Publication, Refusal, excluding, including, is_newer
from topomend.wire.group import FIT_GATE, RELAUNCH_GATE

UNPUBLISHED_SECONDS = 10.0
"""How long a pod that left the watch counts against its node without being published, and one that ended does not
though it is: five times what an agent takes at worst to publish a change."""

DOUBT_SECONDS = 600.0
"""How long a kubelet's disagreement with replay counts."""

SILENT_SECONDS = 1800.0
"""After this long without a heartbeat a node's agent is taken to be gone: two beats are late by then
(publish/publisher.py: HEARTBEAT_SECONDS and a quarter)."""

SILENT = "its agent has confirmed nothing for half an hour: does it run, and is its clock right?"

ENDED = ("Succeeded", "Failed")
"""The phases of pods of which no container runs, nor ever will: by then their kubelet gives what they held to others
(pkg/kubelet/kubelet_pods.go:filterOutInactivePods)."""

UNBOUND_SECONDS = 30.0
"""How long a released pod that no scheduler binds keeps its place."""

REFUSAL_PREFIX = "Pod was rejected: "
"""What a kubelet writes before the reason why it did not admit a pod (pkg/kubelet/kubelet.go:HandlePodAdditions)."""


class Event(Protocol):
    """Anything that changes the view."""

    def onto(self, view: ClusterView) -> ClusterView:
        """The view after this."""


def fold(view: ClusterView, event: Event) -> ClusterView:
    """The view after ``event``."""
    return event.onto(view)


def is_refusal(pod: WatchedPod) -> bool:
    """Whether a kubelet did not admit this pod, for whatever reason."""
    return pod.phase == "Failed" and pod.message.startswith(REFUSAL_PREFIX)


# Pods


@dataclass(frozen=True)
class PodSeen:
    """A pod is there, or has changed."""

    pod: WatchedPod
    now: float

    def onto(self, view: ClusterView) -> ClusterView:
        """Remember it if it was refused or waits behind a gate of ours; a bound one takes its place on its node, one
        that has ended gives it back."""
        pod, key = self.pod, (self.pod.namespace, self.pod.name)
        is_gated = RELAUNCH_GATE in pod.gates or FIT_GATE in pod.gates
        known = view.gated.get(key)
        since = view.gated_since[key] if known and known.uid == pod.uid else self.now
        view = replace(
            view,
            refused=self._refused(view.refused),
            gated=including(view.gated, key, pod) if is_gated else excluding(view.gated, key),
            gated_since=including(view.gated_since, key, since) if is_gated else excluding(view.gated_since, key),
        )
        if pod.phase == "Pending":
            return after_binding(view, key, pod) if pod.node else view
        going = view.on_their_way.get(key)
        if going and going.pod.uid == pod.uid:
            view = off_its_way(view, key)
        return after_end(view, pod, self.now) if pod.phase in ENDED and not is_refusal(pod) else view

    def _refused(self, refused: Mapping[str, Refusal]) -> Mapping[str, Refusal]:
        if not is_refusal(self.pod):
            return excluding(refused, self.pod.uid)
        known = refused.get(self.pod.uid)
        if known is None:
            return including(refused, self.pod.uid, Refusal(self.pod, self.pod.version, self.now))
        # A controller that is deleted may leave its failed pods behind: it had replaced them, and they stay its own.
        pod = self.pod if self.pod.owner else replace(self.pod, owner=known.pod.owner)
        return including(refused, pod.uid, Refusal(pod, known.version, known.seen))


@dataclass(frozen=True)
class PodGone:
    """A pod was deleted or began to run: the watch on pods that do not run cannot tell these two apart."""

    namespace: str
    name: str
    uid: str
    now: float

    def onto(self, view: ClusterView) -> ClusterView:
        """Forget it; if it was on its way it keeps its place until a publication shows it, for a while."""
        key = (self.namespace, self.name)
        view = replace(view, refused=excluding(view.refused, self.uid))
        gated, going = view.gated.get(key), view.on_their_way.get(key)
        if gated and gated.uid == self.uid:
            view = replace(view, gated=excluding(view.gated, key), gated_since=excluding(view.gated_since, key))
        if going is None or going.pod.uid != self.uid or going.departed:
            return view
        late = replace(going, expires=self.now + UNPUBLISHED_SECONDS, departed=True)
        return replace(view, on_their_way=including(view.on_their_way, key, late))


@dataclass(frozen=True)
class PodsListed:
    """Every pod that neither runs nor succeeded."""

    pods: tuple[WatchedPod, ...]
    version: str
    now: float

    def onto(self, view: ClusterView) -> ClusterView:
        """What is not listed is gone; the rest is as listed."""
        listed = {pod.uid for pod in self.pods}
        known = [*(each.pod for each in view.refused.values()), *view.gated.values()]
        bound = [(key, each.pod.uid) for key, each in view.on_their_way.items() if each.expires is None]
        gone = [(each.namespace, each.name, each.uid) for each in known if not is_newer(each.version, self.version)]
        for namespace, name, uid in [*gone, *((*key, uid) for key, uid in bound)]:
            if uid not in listed:
                view = PodGone(namespace, name, uid, self.now).onto(view)
        for pod in self.pods:
            view = PodSeen(pod, self.now).onto(view)
        return view


# Nodes and what their agents publish


@dataclass(frozen=True)
class NodeSeen:
    """A node is there, or has changed."""

    node: Node

    def onto(self, view: ClusterView) -> ClusterView:
        """Remember it as it is now."""
        return replace(view, nodes=including(view.nodes, self.node.name, self.node))


@dataclass(frozen=True)
class NodeGone:
    """A node was deleted."""

    name: str

    def onto(self, view: ClusterView) -> ClusterView:
        """Forget it."""
        return replace(view, nodes=excluding(view.nodes, self.name))


@dataclass(frozen=True)
class NodesListed:
    """Every node."""

    nodes: tuple[Node, ...]
    version: str

    def onto(self, view: ClusterView) -> ClusterView:
        """These are the nodes."""
        newer = {name: node for name, node in view.nodes.items() if is_newer(node.version, self.version)}
        nodes = {node.name: node for node in self.nodes} | newer
        return view if nodes == view.nodes else replace(view, nodes=nodes)


@dataclass(frozen=True)
class Heartbeat:
    """When an agent last confirmed what it published: its own word for it, and seconds by the observer's clock.

    ``age`` is how long ago that is if both clocks agree, ``now`` when it was seen.
    """

    time: str
    age: float
    now: float


@dataclass(frozen=True)
class Published:
    """A node's agent published a state; ``problem`` says why it is not to be relied on."""

    state: NodeState
    version: str
    problem: str = ""
    heartbeat: Heartbeat | None = None

    def onto(self, view: ClusterView) -> ClusterView:
        """Take the state, and drop from those on their way the pods that it shows.

        A state that is merely confirmed stays the publication that it was, its version included.
        """
        name = self.state.name
        known = view.publications.get(name)
        if known and not is_newer(self.version, known.confirmed or known.version):
            return view
        heard, problem = self._heard(known), self.problem
        if self.heartbeat and not problem and heard + SILENT_SECONDS <= self.heartbeat.now:
            problem = SILENT
        time = self.heartbeat.time if self.heartbeat else ""
        if known and (problem, self.state) == (known.problem, known.state):
            confirmed = replace(known, confirmed=self.version, heartbeat=time, heard=heard)
            view = replace(view, publications=including(view.publications, name, confirmed))
            return with_ended(view, name, {}) if known.ended else view
        published = Publication(self.state, self.version, {}, (), problem, self.version, time, heard)
        shown = published.shown
        arrived = {key: each for key, each in view.on_their_way.items() if name in each.nodes and key in shown}
        if name in view.doubts and (arrived or (known and emptied(known.state) != emptied(self.state))):
            view = replace(view, doubts=excluding(view.doubts, name))
        view = replace(
            view,
            publications=including(view.publications, name, published),
            unreadable=excluding(view.unreadable, name),
            on_their_way={key: each for key, each in view.on_their_way.items() if key not in arrived},
        )
        return expecting(view, {name}.union(*(each.nodes for each in arrived.values())))

    def _heard(self, known: Publication | None) -> float:
        """A heartbeat that is seen to come is new whatever the agent's clock says; else the clock is all there is."""
        if self.heartbeat is None:
            return 0.0
        if known is None or not known.heartbeat:
            return self.heartbeat.now - max(0.0, self.heartbeat.age)
        return known.heard if known.heartbeat == self.heartbeat.time else self.heartbeat.now


@dataclass(frozen=True)
class Unreadable:
    """A node's published object is malformed."""

    name: str
    problem: str

    def onto(self, view: ClusterView) -> ClusterView:
        """Remember what is wrong, and no longer rely on what was published before."""
        return replace(
            view,
            unreadable=including(view.unreadable, self.name, self.problem),
            publications=excluding(view.publications, self.name),
        )


@dataclass(frozen=True)
class Unpublished:
    """A node's published object is gone."""

    name: str

    def onto(self, view: ClusterView) -> ClusterView:
        """Forget it."""
        return replace(
            view,
            unreadable=excluding(view.unreadable, self.name),
            publications=excluding(view.publications, self.name),
        )


@dataclass(frozen=True)
class PublicationsListed:
    """Every published object, readable or not."""

    publications: tuple[Published | Unreadable, ...]
    version: str

    def onto(self, view: ClusterView) -> ClusterView:
        """What is not listed is gone; the rest is as listed."""
        listed = {each.name if isinstance(each, Unreadable) else each.state.name for each in self.publications}
        newer = {name for name, each in view.publications.items() if is_newer(each.version, self.version)}
        for name in (view.publications.keys() | view.unreadable.keys()) - listed - newer:
            view = Unpublished(name).onto(view)
        for each in self.publications:
            view = each.onto(view)
        return view


# Records


@dataclass(frozen=True)
class RelaunchSeen:
    """A record is there, or has changed."""

    relaunch: Relaunch

    def onto(self, view: ClusterView) -> ClusterView:
        """Remember it while it is open."""
        key = (self.relaunch.namespace, self.relaunch.name)
        if not self.relaunch.is_open:
            return replace(view, relaunches=excluding(view.relaunches, key))
        return replace(view, relaunches=including(view.relaunches, key, self.relaunch))


@dataclass(frozen=True)
class RelaunchGone:
    """A record was deleted."""

    namespace: str
    name: str

    def onto(self, view: ClusterView) -> ClusterView:
        """Forget it."""
        return replace(view, relaunches=excluding(view.relaunches, (self.namespace, self.name)))


@dataclass(frozen=True)
class RelaunchesListed:
    """Every record."""

    relaunches: tuple[Relaunch, ...]
    version: str

    def onto(self, view: ClusterView) -> ClusterView:
        """These are the records."""
        newer = {key: each for key, each in view.relaunches.items() if is_newer(each.version, self.version)}
        still_open = {(each.namespace, each.name): each for each in self.relaunches if each.is_open}
        return replace(view, relaunches=still_open | newer)


# What we do ourselves


@dataclass(frozen=True)
class Released:
    """A pod is about to be let go to one of ``nodes``: from now on its place there is taken.

    ``pod.uid`` is empty for a replacement that is still to be created.
    """

    pod: Pod
    nodes: tuple[str, ...]
    now: float

    def onto(self, view: ClusterView) -> ClusterView:
        """Take the place on each of the nodes until a scheduler has chosen one."""
        going = OnItsWay(self.pod, self.nodes, self.now + UNBOUND_SECONDS)
        return on_its_way(view, (self.pod.namespace, self.pod.name), going)


@dataclass(frozen=True)
class Withdrawn:
    """A pod that was to be released is not."""

    namespace: str
    name: str

    def onto(self, view: ClusterView) -> ClusterView:
        """Its place is free again."""
        return off_its_way(view, (self.namespace, self.name))


@dataclass(frozen=True)
class Disagreed:
    """A node's kubelet refused the pod of this uid, which replay of its published state admits."""

    node: str
    uid: str
    now: float

    def onto(self, view: ClusterView) -> ClusterView:
        """Doubt the node, until it admits a pod as predicted, its topology changes, or time passes."""
        before = view.doubts.get(self.node)
        pods = before.pods if before else frozenset()
        if self.uid in pods:
            return view
        return replace(view, doubts=including(view.doubts, self.node, Doubt(pods | {self.uid}, self.now)))


@dataclass(frozen=True)
class TimePassed:
    """Nothing happened but time."""

    now: float

    def onto(self, view: ClusterView) -> ClusterView:
        """Free the places that were kept long enough, forget old doubts, and cease to believe silent agents."""
        for key, going in view.on_their_way.items():
            if going.expires is not None and going.expires <= self.now:
                view = off_its_way(view, key)
        for node, doubt in view.doubts.items():
            if doubt.since + DOUBT_SECONDS <= self.now:
                view = replace(view, doubts=excluding(view.doubts, node))
        for name, each in view.publications.items():
            still = {key: seen for key, seen in each.ended.items() if seen + UNPUBLISHED_SECONDS > self.now}
            if len(still) < len(each.ended):
                view = with_ended(view, name, still)
        silent = {
            name: replace(each, problem=SILENT)
            for name, each in view.publications.items()
            if each.heartbeat and not each.problem and each.heard + SILENT_SECONDS <= self.now
        }
        return replace(view, publications={**view.publications, **silent}) if silent else view
