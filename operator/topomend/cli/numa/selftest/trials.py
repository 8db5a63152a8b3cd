"""Try pods on a node of the cluster, one after another, in a namespace that lives as long as the trials.

Owns what is created, waited for and deleted. Leaves which pods to ``selftest.cases`` and the judgement to
``selftest.compare``.

What a pod got is what the node's agent publishes of it, which the kubelet told the agent. No process runs in the pod to
look: the kubelet allocates before it pulls an image, so that the answer does not depend on one.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from topomend.check.facts import OwnPod
from topomend.check.installed_objects import read_own_pod
from topomend.cli.numa.check.cluster_facts import AGENTS
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.numa.cluster.states import snapshot_of
from topomend.cli.output.console import echo
from topomend.cli.output.failures import CannotAsk
from topomend.decide.diagnosis.filters import too_little_left
from topomend.kube.errors import (
    AlreadyExists,
    APIError,
    Forbidden,
    NotFound,
    Refused,
    ServerFailed,
    TooManyRequests,
    Unanswered,
    Untrusted,
    retry_after,
)
from topomend.kube.resources import NAMESPACES, NODE_TOPOLOGIES, NODES, PODS, UNENDED, Resource
from topomend.model.nodes.node_state import PodAllocation
from topomend.model.pods.bound_pod import BoundPod
from topomend.model.pods.pod import requests_of
from topomend.model.pods.scheduling import REFUSAL_PREFIX
from topomend.replay.admission import allocation_of
from topomend.selftest.cases import Case
from topomend.selftest.compare import (
    Agreement,
    Answer,
    Judgement,
    Prediction,
    Seen,
    is_held_as_predicted,
    judge,
    predict,
)
from topomend.selftest.manifest import namespace_manifest, pod_manifest
from topomend.wire.document import MalformedObject
from topomend.wire.node import read_node
from topomend.wire.pods.bound_pod import read_bound_pod

ATTEMPTS = 3
"""How often a case is tried that does not agree: what other pods disturb once, they rarely disturb again."""

POLL_SECONDS = 0.3

SETTLE_SECONDS = 3.0
"""How long what is published of a pod must stay the same to count, where it is not as predicted: agents look at their
kubelets more often, and one that looks while the kubelet allocates sees a part."""

CLEAN = "kubectl numa selftest --clean"

_NOT_FOR_LONG = (
    # Of a pod whose namespace is so new that it has no service account yet
    # (plugin/pkg/admission/serviceaccount/admission.go:Admit).
    "error looking up service account",
    # Of an API server that has just started (apiserver pkg/admission/plugin: WaitForReady of each plugin).
    "not yet ready to handle request",
)
"""In refusals of a pod that is let in some moments later."""

_LACKS_RIGHT = " cannot create resource "
"""In the refusal of a request for want of a right (apiserver pkg/endpoints/handlers/responsewriters/errors.go)."""

_STARTING = ("", "ContainerCreating", "PodInitializing")

_Result = TypeVar("_Result")


class NotKnown(Exception):
    """Nothing can be said of a trial, for the reason in the text."""


class NotYetKnown(NotKnown):
    """As the other, for a reason that may pass by itself: an agent that starts anew, a webhook that is away."""


_PASSING = (NotYetKnown, Unanswered, ServerFailed, TooManyRequests)


@dataclass(frozen=True)
class Outcome:
    """What became of a case. ``predicted`` and ``answer`` are None where it did not come to that."""

    case: Case
    judgement: Judgement
    predicted: Prediction | None = None
    answer: Answer | None = None


@dataclass
class _Shown:
    """What is published of a pod; since when it has been the same, in seconds; and the node when that was read last."""

    since: float
    held: PodAllocation | None = None
    after: Seen | None = None


class Trials:
    """Trials on the node ``node``. The pods have this ``image``; ``seconds`` is how long each step may take.

    A step waits as long for an API server or an agent that is away for a moment, and says so on stderr.
    """

    def __init__(  # noqa: PLR0913  what it tries, and the time that a test lets pass
        self,
        cluster: Cluster,
        node: str,
        image: str,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster, self._client = cluster, cluster.client
        self._node, self._image, self._seconds = node, image, seconds
        self._clock, self._pause = clock, pause
        self.namespace = ""
        """That of the pods; empty before it is created."""
        self.notes: list[str] = []
        """What the user should know beside the outcomes."""
        self.lost = ""
        """Why nothing was known of the node for as long as a step may take; empty where that did not happen."""
        self._has_started = False

    def look(self) -> Seen:
        """The node now. Raises NotYetKnown where its state is not published, or not to be relied on, and APIError."""
        try:
            content, topology = self._client.get(NODES, self._node), self._client.get(NODE_TOPOLOGIES, self._node)
        except NotFound as error:
            raise NotYetKnown(f"{self._node} or its NodeTopology is gone: {error}") from error
        try:
            picture = {NODES: [read_node(content)], NODE_TOPOLOGIES: self._cluster.read_published(topology)}
        except MalformedObject as error:
            raise NotYetKnown(f"Node {self._node} cannot be read: {error}") from error
        snapshot = snapshot_of({kind: tuple(values) for kind, values in picture.items()})
        if problem := snapshot.why_unknown(self._node):
            raise NotYetKnown(f"{self._node}: {problem}")
        pods = self._client.read(PODS, _bound, fields=f"spec.nodeName={self._node},{UNENDED}").items
        uids = frozenset(pod.pod.uid for pod in pods if pod.pod.namespace != self.namespace)
        return Seen(snapshot.nodes[self._node], snapshot.publications[self._node].state, pods, uids)

    @contextmanager
    def in_a_namespace(self) -> Iterator[None]:
        """Create the namespace, and delete it at the end with all that is in it, also after an interrupt."""
        made = self._client.create(NAMESPACES, namespace_manifest())
        self.namespace = made["metadata"]["name"]
        try:
            yield
        finally:
            self._remove(made)

    def _remove(self, made: Mapping[str, Any]) -> None:
        try:
            is_gone = self.delete_namespace(made)
        except APIError as error:
            self.notes.append(f"namespace {self.namespace} was not deleted ({error}): {CLEAN} deletes it")
        except KeyboardInterrupt:
            echo(f"namespace {self.namespace} may be left: {CLEAN} deletes it", err=True)
            raise
        else:
            if not is_gone:
                self.notes.append(f"namespace {self.namespace} is still being deleted after {self._seconds:.0f} s")

    def delete_namespace(self, content: Mapping[str, Any]) -> bool:
        """Delete a namespace and wait until it is gone; whether it is. Raises APIError."""
        name = content["metadata"]["name"]
        self._delete(NAMESPACES, content)

        def is_gone() -> bool | None:
            try:
                self._client.get(NAMESPACES, name)
            except NotFound:
                return True
            return None

        return bool(self._until(is_gone))

    def try_case(self, case: Case) -> Outcome:
        """Try a case, again where it does not agree: what differs counts if it differs every time.

        Raises APIError.
        """
        outcome = self._try_once(case)
        for _ in range(ATTEMPTS - 1):
            if outcome.judgement.agreement is Agreement.AGREES or outcome.answer is None:
                break
            outcome = self._try_once(case)
        return outcome

    def _try_once(self, case: Case) -> Outcome:
        predicted: Prediction | None = None
        try:
            seen = self._with_room(case)
            manifest = pod_manifest(case, seen.node, self.namespace, self._image)
            predicted = predict(seen, read_bound_pod(manifest))
            created = self._create(manifest)
            stored = read_bound_pod(created)
            if stored.pod.containers != case.pod.containers:
                self._note(f"the cluster changes new pods: {case.name} is compared as it was stored")
                predicted = predict(seen, stored)
            try:
                answer, after = self._answer(created, predicted)
            except NotKnown:
                self._delete(PODS, created)  # else it would be in the way of all others
                raise
            self._delete(PODS, created)
        except NotYetKnown as unknown:
            self.lost = f"{unknown}, for {self._seconds:.0f} s"
            return Outcome(case, Judgement(Agreement.UNSURE, (self.lost,)), predicted)
        except NotKnown as unknown:
            return Outcome(case, Judgement(Agreement.UNSURE, (str(unknown),)), predicted)
        return Outcome(case, judge(predicted, answer, after), predicted, answer)

    def _with_room(self, case: Case) -> Seen:
        """The node without a pod of ours, if it has enough left in total. Raises NotKnown."""
        seen = self._quiet()
        if lacking := too_little_left(seen.node, requests_of(case.pod), seen.used):
            raise NotKnown(f"not tried: too little {lacking} is left in total by now")
        return seen

    def _quiet(self) -> Seen:
        """The node without a pod of ours. Raises NotKnown."""

        def without_ours() -> Seen | None:
            seen = self.look()
            shown = {held.namespace for held in seen.state.pods} | {bound.pod.namespace for bound in seen.pods}
            return None if self.namespace in shown else seen

        seen = self._until(without_ours)
        if seen is None:
            raise NotKnown(f"an earlier pod of the test has not left {self._node} within {self._seconds:.0f} s")
        return seen

    def _create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create the pod. Raises NotKnown where the cluster refuses it, and APIError, also for want of a right."""

        def created() -> dict[str, Any] | None:
            try:
                return self._client.create(PODS, manifest, self.namespace)
            except AlreadyExists:  # an earlier request took effect, whose answer was lost
                return self._found(manifest["metadata"]["name"])
            except Forbidden as error:
                if any(words in error.message for words in _NOT_FOR_LONG):
                    return None
                if error.status != HTTPStatus.FORBIDDEN or _LACKS_RIGHT in error.message:
                    raise
                raise NotKnown(f"the cluster refused to create the pod: {error.message}") from error
            except (ServerFailed, TooManyRequests) as error:  # a webhook may have answered so
                raise NotYetKnown(f"the cluster cannot create the pod: {error.message}") from error
            except Refused as error:
                raise NotKnown(f"the cluster refused to create the pod: {error.message}") from error

        made = self._until(created)
        if made is None:
            raise NotKnown(f"the pod could not be created within {self._seconds:.0f} s")
        return made

    def _found(self, name: str) -> dict[str, Any] | None:
        """The pod, unless it is gone or being deleted."""
        with suppress(NotFound):
            pod = self._client.get(PODS, name, self.namespace)
            return None if pod["metadata"].get("deletionTimestamp") else pod
        return None

    def _answer(self, created: Mapping[str, Any], predicted: Prediction) -> tuple[Answer, Seen]:
        """What the kubelet says of the pod, and the node then. Raises NotKnown."""
        metadata = created["metadata"]
        pod = self._until(lambda: self._decided(metadata["name"]))
        if pod is None:
            raise NotKnown(f"the kubelet has not answered within {self._seconds:.0f} s")
        status = pod["status"]
        reason, message = status.get("reason", ""), status.get("message", "")
        if status.get("phase") == "Failed":
            if not message.startswith(REFUSAL_PREFIX):
                raise NotKnown(f"the pod failed: {reason}: {message}")
            return Answer(admitted=False, reason=reason, message=message), self._known()
        answer, after = self._held(predicted)
        if not self._has_started:
            self._has_started = True
            self._watch_start(metadata["name"])
        return answer, after

    def _decided(self, name: str) -> dict[str, Any] | None:
        """The pod, once its kubelet has refused it or begun with it."""
        try:
            pod = self._client.get(PODS, name, self.namespace)
        except NotFound as error:
            raise NotKnown("somebody deleted the pod") from error
        status = pod.get("status") or {}
        begun = status.get("containerStatuses") or status.get("initContainerStatuses")
        return pod if status.get("phase") == "Failed" or begun else None

    def _held(self, predicted: Prediction) -> tuple[Answer, Seen]:
        """What is published of an admitted pod: as soon as it is as predicted, otherwise once it stays the same.

        That a pod holds nothing is believed only after that time too.
        """
        namespace, name = predicted.verdict.namespace, predicted.verdict.name
        shown = _Shown(self._clock())

        def is_settled() -> bool:
            return self._clock() - shown.since >= SETTLE_SECONDS

        def settled() -> bool | None:
            since, shown.since = shown.since, self._clock()  # a time in which nothing is known does not count
            after = self.look()
            held = allocation_of(after.state, namespace, name, "")
            if held == shown.held:
                shown.since = since
            shown.held, shown.after = held, after
            if held and is_held_as_predicted(predicted, held):
                return True
            is_due = held is not None or predicted.allocation is None
            return True if is_due and is_settled() else None

        # In less than that nothing settles.
        is_known = self._until(settled, max(self._seconds, 2 * SETTLE_SECONDS)) or is_settled()
        if shown.after is None or not is_known:
            raise NotKnown(f"what is published of the pod has not stayed the same within {self._seconds:.0f} s")
        if shown.held is None and predicted.allocation and (trouble := self._until(self._trouble_of_agent)):
            raise NotYetKnown(f"{self._node}: nothing is published of the pod, and its agent is not ready: {trouble}")
        return Answer(admitted=True, allocation=shown.held), shown.after

    def _trouble_of_agent(self) -> str:
        """Why the node's agent is not ready, by its pod; empty where it is, and where the agent runs in no pod."""
        on_node = f"spec.nodeName={self._node},{UNENDED}"
        troubles = [pod.trouble for pod in self._client.read(PODS, _own, fields=on_node, labels=AGENTS).items]
        return troubles[0] if troubles and all(troubles) else ""

    def _watch_start(self, name: str) -> None:
        """Note why an admitted pod does not start: nothing of it has to run, but its user will want to know."""

        def started() -> str | None:
            status = (self._decided(name) or {}).get("status") or {}
            states = [
                each.get("state") or {}
                for kind in ("initContainerStatuses", "containerStatuses")
                for each in status.get(kind) or ()
            ]
            if any("running" in state or "terminated" in state for state in states):
                return "started"
            waiting = [state.get("waiting") or {} for state in states]
            failed = next((each for each in waiting if each.get("reason", "") not in _STARTING), None)
            return f"{failed.get('reason')}: {failed.get('message', '')}" if failed else None

        why = self._until(started)
        if why != "started":
            why = why or f"its image has not come within {self._seconds:.0f} s"
            self._note(
                f"the pods were admitted and do not start ({why}); the answers do not depend on that. "
                f"Name an image that {self._node} can pull with --image"
            )

    def _delete(self, resource: Resource, created: Mapping[str, Any]) -> None:
        metadata = created["metadata"]

        def deleted() -> bool:
            with suppress(NotFound):
                self._client.delete(resource, metadata["name"], metadata.get("namespace", ""), uid=metadata["uid"])
            return True

        self._until(deleted)

    def _note(self, words: str) -> None:
        if words not in self.notes:
            self.notes.append(words)

    def _known(self) -> Seen:
        """The node as soon as its state is known. Raises NotYetKnown, and APIError."""
        seen = self._until(self.look)
        assert seen is not None  # noqa: S101 - look returns one or raises
        return seen

    def _until(self, ask: Callable[[], _Result | None], seconds: float = 0.0) -> _Result | None:
        """The first answer that is not None; None after ``seconds``, by default those of a step.

        Where an agent or the API server is away, asks on and tells the user. Raises what it last failed by if that
        lasts, and at once what does not pass by itself.
        """
        deadline = self._clock() + (seconds or self._seconds)
        told = ""
        while True:
            pause = POLL_SECONDS
            try:
                if (answer := ask()) is not None:
                    return answer
                if self._clock() >= deadline:
                    return None
            except (NotYetKnown, APIError) as error:
                left = deadline - self._clock()
                if left <= 0 or not _may_pass(error, was_away=told != ""):
                    raise
                told = _tell(error, left, told)
                pause = max(pause, min(left, retry_after(error)))
            self._pause(pause)


def _may_pass(error: NotYetKnown | APIError, *, was_away: bool) -> bool:
    """Whether a failure may pass by itself."""
    if isinstance(error, Forbidden):  # an API server that has just started may not have read roles and accounts yet
        return was_away
    return isinstance(error, _PASSING) and not isinstance(error, Untrusted)


def _tell(error: NotYetKnown | APIError, left: float, told: str) -> str:
    """Tell the user what is waited for, for ``left`` seconds at most, unless he was ``told``. Returns what he is told.

    The API server's own words differ from request to request: he is told the first.
    """
    what = str(error) if isinstance(error, NotYetKnown) else "the API server"
    if what != told:
        echo(f"waiting up to {left:.0f} s: {error}", err=True)
    return what


def check_node(cluster: Cluster, name: str) -> dict[str, Any]:
    """The Node object. Raises BadInput or CannotAsk for a node that cannot be tried, and APIError."""
    try:
        content = cluster.client.get(NODES, name)
    except NotFound as error:
        raise cluster.no_node(name, cluster.names(NODES)) from error
    try:
        node = read_node(content)
    except MalformedObject as error:
        raise CannotAsk(f"Node {name} cannot be read: {error}") from error
    if node.labels.get("kubernetes.io/os", "linux") != "linux":
        raise CannotAsk(f"{name} does not run Linux: its kubelet has no policies for NUMA nodes")
    if not node.ready:
        raise CannotAsk(f"{name} is not Ready: its kubelet would not answer")
    try:
        cluster.client.get(NODE_TOPOLOGIES, name)
    except NotFound as error:
        raise CannotAsk(f"{name} has no NodeTopology to predict from: see kubectl numa check") from error
    return content


def _own(content: dict[str, Any]) -> Iterator[OwnPod]:
    """A pod of topomend, unless it cannot be read."""
    with suppress(MalformedObject):
        yield read_own_pod(content)


def _bound(content: dict[str, Any]) -> Iterator[BoundPod]:
    """The pod, unless topomend cannot read it."""
    with suppress(MalformedObject):
        yield read_bound_pod(content)
