"""Sends the protocol's requests to the API server and hands the answers back, until nothing is left to do now.

Every request is one call; nothing is decided here but how a request looks on the wire and what an error means to the
protocol. An answer that did not come (``Unanswered``, ``ServerFailed``, 429) ends the attempt with that error: the
next attempt reads everything anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from topomend.kube.client import PODS, RELAUNCHES, Client
from topomend.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import NodeVerdict, Relaunch, RelaunchCondition, Step
from topomend.relaunch import manifest, protocol
from topomend.wire.cluster import read_watched_pod
from topomend.wire.relaunch import read_relaunch, relaunch_object, relaunch_status

MAX_REQUESTS = 60
"""Far more than any path of the protocol takes; an attempt that reaches it starts anew later."""

_SUCCEEDED = {
    Step.RECORDED: ("Unknown", "Recorded"),
    Step.COMMITTED: ("Unknown", "Committed"),
    Step.BLOCKED: ("Unknown", "Blocked"),
    Step.CREATED: ("Unknown", "Created"),
    Step.LAUNCHED: ("True", "Launched"),
    Step.CANCELLED: ("False", "Cancelled"),
    Step.SUPERSEDED: ("False", "Superseded"),
}


@dataclass(frozen=True)
class Chosen:
    """Where the replacement goes: node names and their hostname labels, best first, and all nodes' answers."""

    nodes: tuple[str, ...] = ()
    hostnames: tuple[str, ...] = ()
    verdicts: tuple[NodeVerdict, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended. ``launched`` is the replacement that this very attempt let go."""

    last: protocol.Stop | protocol.Pause
    record: Relaunch | None
    launched: WatchedPod | None = None
    chosen: Chosen = Chosen()


class NoProgress(Exception):
    """The protocol asked and asked: something changes the pod faster than it can be relaunched."""


class Driver:
    """One attempt at relaunching one pod.

    ``choose`` decides where a replacement can go now, and takes its place there; ``now`` is the time as RFC 3339.
    """

    def __init__(
        self,
        client: Client,
        choose: Callable[[WatchedPod, Relaunch], Chosen],
        now: Callable[[], str],
        previous: Relaunch | None = None,
    ) -> None:
        self._client, self._choose, self._now, self._previous = client, choose, now, previous
        self._pod: dict[str, Any] = {}
        self._record: Relaunch | None = None
        self._chosen = Chosen()
        self._launched: WatchedPod | None = None

    def run(self, namespace: str, name: str, uid: str, record_name: str, *, may_start: bool) -> Outcome:
        """Go as far as is possible now. Raises APIError where an answer did not come, MalformedObject, NoProgress."""
        self._namespace, self._name, self._record_name = namespace, name, record_name
        progress, request = protocol.begin(uid, record_name, may_start=may_start)
        for _ in range(MAX_REQUESTS):
            if isinstance(request, protocol.Stop | protocol.Pause):
                return Outcome(request, self._record, self._launched, self._chosen)
            progress, request = protocol.step(progress, self._send(request))
        raise NoProgress(f"{namespace}/{name} changes faster than it can be relaunched")

    def _send(self, request: protocol.Request) -> protocol.Answer:
        try:
            return self._ask(request)
        except NotFound as error:
            return self._not_found(request, error)
        except (AlreadyExists, Conflict):
            return protocol.NotAsExpected()
        except (Forbidden, Invalid) as error:
            if isinstance(request, protocol.Create):
                return protocol.Denied(str(error))
            raise

    def _not_found(self, request: protocol.Request, error: NotFound) -> protocol.Answer:
        match request:
            case protocol.ReadPod():
                return protocol.PodIs(None)
            case protocol.ReadRecord():
                return self._record_is(None)
            case protocol.Create():
                return protocol.Denied(str(error))  # the namespace itself is gone
        return protocol.NotAsExpected()

    def _ask(self, request: protocol.Request) -> protocol.Answer:
        match request:
            case protocol.ReadPod():
                return self._pod_is(self._client.get(PODS, self._name, self._namespace))
            case protocol.ReadRecord():
                return self._record_is(self._client.get(RELAUNCHES, self._record_name, self._namespace))
            case protocol.Choose(pod, record):
                self._chosen = self._choose(pod, record)
                return protocol.NodesAre(self._chosen.nodes)
            case protocol.Record(pod):
                return self._create_record(pod)
            case protocol.Mark():
                return self._mark(request)
        return self._ask_about_pod(request)

    def _ask_about_pod(self, request: protocol.Request) -> protocol.Answer:
        match request:
            case protocol.Claim():
                return self._patch_pod(manifest.claim(self._pod, self._record_name))
            case protocol.Unclaim(pod):
                self._patch_pod(manifest.unclaim(self._pod))
                return protocol.PodIs(None) if pod.deleting else protocol.NotAsExpected()
            case protocol.Delete(pod):
                return self._delete(pod)
            case protocol.Create(record):
                return self._pod_is(self._client.create(PODS, manifest.replacement(record), self._namespace))
            case protocol.Launch():
                return self._launch(self._chosen.hostnames)
        raise AssertionError(f"{type(request).__name__} is not to be sent")

    def _pod_is(self, content: dict[str, Any]) -> protocol.PodIs:
        self._pod = content
        return protocol.PodIs(read_watched_pod(content))

    def _record_is(self, content: dict[str, Any] | None) -> protocol.RecordIs:
        self._record = None if content is None else read_relaunch(content)
        return protocol.RecordIs(self._record)

    def _patch_pod(self, patch: dict[str, Any]) -> protocol.PodIs:
        return self._pod_is(self._client.merge(PODS, self._name, patch, self._namespace))

    def _create_record(self, pod: WatchedPod) -> protocol.RecordIs:
        record = Relaunch(
            namespace=pod.namespace,
            name=self._record_name,
            pod_name=pod.name,
            pod_uid=pod.uid,
            refused_by=pod.node,
            reason=pod.reason,
            message=pod.message,
            attempt=pod.attempt + 1,
            manifest=manifest.stripped(self._pod, self._previous),
        )
        return self._record_is(self._client.create(RELAUNCHES, relaunch_object(record), pod.namespace))

    def _mark(self, mark: protocol.Mark) -> protocol.RecordIs:
        marked = self._marked(mark)
        patch = {"metadata": {"resourceVersion": mark.record.version}, "status": relaunch_status(marked)}
        return self._record_is(
            self._client.merge(RELAUNCHES, mark.record.name, patch, mark.record.namespace, subresource="status")
        )

    def _marked(self, mark: protocol.Mark) -> Relaunch:
        now = self._now()
        status, reason = _SUCCEEDED[mark.step]
        record = mark.record
        before = next((each for each in record.conditions if each.type == "Succeeded"), None)
        since = before.last_transition_time if before and before.status == status else now
        launched = mark.step is Step.LAUNCHED
        message = mark.why or (f"on {', '.join(mark.nodes)}" if launched and mark.nodes else "")
        return replace(
            record,
            step=mark.step,
            new_name=record.pod_name if mark.new_uid or record.new_uid else "",
            new_uid=mark.new_uid or record.new_uid,
            candidates=mark.nodes or record.candidates,
            verdicts=self._chosen.verdicts or record.verdicts,
            counts=dict(self._chosen.counts) or record.counts,
            start_time=record.start_time or now,
            launched_time=now if launched else record.launched_time,
            conditions=(RelaunchCondition("Succeeded", status, reason, message, since),),
        )

    def _delete(self, pod: WatchedPod) -> protocol.PodIs | protocol.NotAsExpected:
        answer = self._client.delete(PODS, pod.name, pod.namespace, uid=pod.uid, version=pod.version)
        if answer.get("kind") == "Pod" and answer["metadata"].get("finalizers"):
            return self._pod_is(answer)
        return protocol.PodIs(None)

    def _launch(self, hostnames: Sequence[str]) -> protocol.PodIs:
        answer = self._patch_pod(manifest.launch(self._pod, hostnames))
        self._launched = answer.pod
        return answer
