"""Send the protocol's requests to the API server and return the answers to it, until it stops or pauses.

Owns how a request looks on the wire and what an error means to the protocol. Leaves every decision to ``protocol`` and
the choice of nodes to its caller. Each request is one API call. A lost answer (``Unanswered``, ``ServerFailed``, 429)
ends the attempt with that error; the next attempt reads everything again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from topomend.kube.client import Client
from topomend.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NamespaceTerminating,
    NotFound,
)
from topomend.kube.resources import PODS, RELAUNCHES
from topomend.model.narrowing import ANYWHERE, Narrowing
from topomend.model.pods.scheduling import WatchedPod
from topomend.model.relaunch_record import NodeVerdict, Relaunch, Step
from topomend.relaunch import conditions, manifest, messages, protocol
from topomend.relaunch.preflight import Preflight
from topomend.relaunch.records import recorded
from topomend.wire.document import MalformedObject
from topomend.wire.group import RELAUNCH, RELAUNCH_FINALIZER
from topomend.wire.pods.scheduling import read_watched_pod
from topomend.wire.relaunch_record import manifest_status, read_relaunch, record_name, relaunch_object, relaunch_status

MAX_REQUESTS = 60
"""Far more than any path of the protocol takes. An attempt that reaches it starts again later."""


@dataclass(frozen=True)
class Chosen:
    """The nodes for a replacement.

    ``nodes`` are node names, best first, and empty where no node admits the pod now. ``narrowing`` is what to
    narrow the replacement to. ``verdicts`` and ``counts`` say what all nodes answered; ``counts`` is nodes by reason.
    """

    nodes: tuple[str, ...] = ()
    narrowing: Narrowing = ANYWHERE
    verdicts: tuple[NodeVerdict, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended.

    ``record`` is the refused pod's own record, None where it has none. ``launched`` is the replacement that this
    attempt ungated, None where another attempt did or none has yet.
    """

    last: messages.Stop | messages.Pause
    record: Relaunch | None
    launched: WatchedPod | None = None
    chosen: Chosen = Chosen()


class NoProgress(Exception):
    """The protocol did not end within MAX_REQUESTS: something changes the pod faster than it can be relaunched."""


class Driver:
    """One attempt at relaunching one pod.

    ``choose`` returns the nodes for a replacement and assumes the pod on them. ``now`` returns the time as RFC 3339.
    ``renames`` is whether a new record gives the replacement a name of its own. ``draining`` is whether topomend is
    leaving the cluster.
    """

    def __init__(
        self,
        client: Client,
        choose: Callable[[WatchedPod, Relaunch], Chosen],
        now: Callable[[], str],
        *,
        renames: bool = False,
        draining: bool = False,
    ) -> None:
        self._client, self._choose, self._now = client, choose, now
        self._preflight, self._renames, self._draining = Preflight(client), renames, draining
        self._pod: dict[str, Any] = {}
        self._manifest: dict[str, Any] = {}
        self._replacement: dict[str, Any] = {}
        self._record: Relaunch | None = None
        self._record_object: dict[str, Any] = {}
        self._chosen = Chosen()
        self._launched: WatchedPod | None = None

    def run(self, namespace: str, name: str, uid: str, record_name: str, *, may_start: bool) -> Outcome:
        """Relaunch the refused pod of this name and uid as far as possible now.

        ``record_name`` is the name of its record, present or not. ``may_start`` is whether a pod without a record may
        be relaunched. Raises APIError where an answer did not arrive or a request was refused, MalformedObject,
        NoProgress.
        """
        self._namespace, self._name, self._uid, self._record_name = namespace, name, uid, record_name
        progress, request = protocol.begin(uid, record_name, may_start=may_start, draining=self._draining)
        for _ in range(MAX_REQUESTS):
            if isinstance(request, messages.Stop | messages.Pause):
                own_record = self._record if self._record and self._record.pod_uid == uid else None
                return Outcome(request, own_record, self._launched, self._chosen)
            progress, request = protocol.step(progress, self._send(request))
        raise NoProgress(f"{namespace}/{name} changes faster than it can be relaunched")

    def _send(self, request: messages.Request) -> messages.Answer:
        try:
            return self._answer(request)
        except NotFound as error:
            return self._not_found(request, error)
        except (AlreadyExists, Conflict):
            return messages.NotAsExpected()
        except (Forbidden, Invalid, MethodNotAllowed) as error:
            if not isinstance(request, messages.Create | messages.Record | messages.Restore):
                raise
            return messages.NamespaceEnds() if isinstance(error, NamespaceTerminating) else messages.Denied(str(error))

    def _not_found(self, request: messages.Request, error: NotFound) -> messages.Answer:
        match request:
            case messages.ReadPod():
                return messages.PodIs(None)
            case messages.ReadRecord():
                return self._record_is(None)
            case messages.ReadReplacement():
                return messages.ReplacementIs(None)
            case messages.Create():
                return messages.NamespaceEnds()  # the namespace is gone
            case messages.Record() | messages.Restore():
                return messages.Denied(str(error))  # the namespace or the kind is gone
        return messages.NotAsExpected()

    def _answer(self, request: messages.Request) -> messages.Answer:
        match request:
            case messages.ReadPod():
                return self._pod_is(self._client.get(PODS, self._name, self._namespace))
            case messages.ReadRecord():
                return self._record_is(self._client.get(RELAUNCHES, self._record_name, self._namespace))
            case messages.Choose(pod, record):
                self._chosen = self._choose(pod, record)
                return messages.NodesAre(self._chosen.nodes)
            case messages.Record(pod):
                return self._create_record(self._new_record(pod))
            case messages.Restore(pod):
                return self._create_record(self._restored_record(pod))
        return self._answer_about_record(request)

    def _answer_about_record(self, request: messages.Request) -> messages.Answer:
        match request:
            case messages.Discard(record):
                return self._discard(record)
            case messages.Protect():
                return self._record_is(self._patch_record(manifest.protect(self._record_object)))
            case messages.Unprotect(record):
                patched = self._patch_record(manifest.unprotect(self._record_object))
                return self._record_is(None if record.deleting else patched)
            case messages.Confirm():
                return self._record_is(self._patch_record(manifest.confirm(self._record_object)))
            case messages.Commit(record=record):
                return self._commit(record)
            case messages.Mark():
                return self._mark(request, manifest_status(None) if request.step.ended else {})
        return self._answer_about_pod(request)

    def _answer_about_pod(self, request: messages.Request) -> messages.Answer:
        match request:
            case messages.ReadReplacement(record):
                return self._replacement_is(self._client.get(PODS, record.replacement_name, self._namespace))
            case messages.Claim():
                return self._pod_is(self._patch(self._name, manifest.claim(self._pod, self._record_name)))
            case messages.Unclaim(pod):
                unclaimed = self._patch(self._name, manifest.unclaim(self._pod))
                return messages.PodIs(None) if pod.deleting else self._pod_is(unclaimed)
            case messages.Delete(pod):
                return self._delete(pod)
            case messages.Create(record):
                return self._create(record)
            case messages.Launch():
                return self._launch(self._chosen)
        raise AssertionError(f"{type(request).__name__} is not to be sent")

    def _pod_is(self, content: dict[str, Any]) -> messages.PodIs:
        self._pod = content
        try:
            pod = read_watched_pod(content)
        except MalformedObject:
            if not self._holds_up_deletion(content["metadata"]):
                raise
            self._patch(self._name, manifest.unclaim(content))
            return messages.PodIs(None)
        if pod.uid != self._uid:
            return messages.PodIs(pod)
        self._manifest = manifest.stripped(content)
        return messages.PodIs(pod, manifest.digest(self._manifest))

    def _holds_up_deletion(self, metadata: dict[str, Any]) -> bool:
        """Whether nothing but our finalizer keeps the pod, which its user made unreadable after it was claimed.

        Where it was deleted for its replacement, the record has its manifest; else its user wants no other.
        """
        is_deleted = metadata.get("uid") == self._uid and bool(metadata.get("deletionTimestamp"))
        return is_deleted and RELAUNCH_FINALIZER in metadata.get("finalizers", [])

    def _replacement_is(self, content: dict[str, Any]) -> messages.ReplacementIs:
        self._replacement = content
        return messages.ReplacementIs(read_watched_pod(content))

    def _record_is(self, content: dict[str, Any] | None) -> messages.RecordIs:
        self._record_object = content or {}
        self._record = None if content is None else _credible(read_relaunch(content))
        if self._record and self._record.pod_uid == self._uid:
            self._name = self._record.pod_name
        return messages.RecordIs(self._record)

    def _patch(self, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        return self._client.merge(PODS, name, patch, self._namespace)

    def _patch_record(self, patch: dict[str, Any]) -> dict[str, Any]:
        return self._client.merge(RELAUNCHES, self._record_name, patch, self._namespace)

    def _discard(self, record: Relaunch) -> messages.RecordIs:
        answer = self._client.delete(RELAUNCHES, record.name, record.namespace, uid=record.uid, version=record.version)
        return self._record_is(answer if record.protected and answer.get("kind") == RELAUNCH else None)

    def _create_record(self, record: Relaunch) -> messages.RecordIs:
        return self._record_is(self._client.create(RELAUNCHES, relaunch_object(record), self._namespace))

    def _new_record(self, pod: WatchedPod) -> Relaunch:
        return replace(
            recorded(pod, self._record_name, self._manifest, renames=self._renames),
            protected=True,
        )

    def _restored_record(self, pod: WatchedPod) -> Relaunch:
        """A deleted record, rebuilt from the annotations and the spec of its replacement.

        The node and the reason of the refusal are lost.
        """
        names = manifest.replaced_names(pod.name, pod.attempt)
        pod_name = next((name for name in names if record_name(name, self._uid) == self._record_name), pod.name)
        return Relaunch(
            namespace=pod.namespace,
            name=self._record_name,
            pod_name=pod_name,
            pod_uid=self._uid,
            refused_by="unknown",
            reason="RecordDeleted",
            message="somebody deleted the record; it was written again from the gated replacement",
            attempt=max(1, pod.attempt),
            manifest_hash=manifest.digest(manifest.stripped(self._pod)),
            own_name=pod.name if pod.name != pod_name else "",
        )

    def _create(self, record: Relaunch) -> messages.Answer:
        """Create the replacement, unless the recorded manifest was edited or the pod's creator has lost the right."""
        if not record.manifest:
            return messages.Denied("the record's manifest is not the one that was recorded")
        problem = self._preflight.creator_problem(record)
        if problem:
            return messages.Denied(problem)
        return self._new_pod_is(self._client.create(PODS, manifest.replacement(record), self._namespace))

    def _new_pod_is(self, content: dict[str, Any]) -> messages.PodIs | messages.ReplacementIs:
        """The answer to a request about the replacement: a pod of the old name, or one of a name of its own."""
        return self._pod_is(content) if self._keeps_name() else self._replacement_is(content)

    def _keeps_name(self) -> bool:
        return self._record is None or self._record.keeps_name

    def _commit(self, record: Relaunch) -> messages.RecordIs:
        """Commit the record, or first drop a manifest of another's making: a patch would merge the two."""
        if not record.manifest and "manifest" in self._record_object.get("status", {}):
            return self._patch_status(record, manifest_status(None))
        has_its_manifest = manifest.digest(self._manifest) == record.manifest_hash
        written = manifest_status(self._manifest) if has_its_manifest else {}
        return self._mark(messages.Mark(record, Step.COMMITTED), written)

    def _mark(self, mark: messages.Mark, manifest_patch: dict[str, Any]) -> messages.RecordIs:
        return self._patch_status(mark.record, relaunch_status(self._record_at_step(mark)) | manifest_patch)

    def _patch_status(self, record: Relaunch, status: dict[str, Any]) -> messages.RecordIs:
        patch = {"metadata": {"resourceVersion": record.version}, "status": status}
        return self._record_is(
            self._client.merge(RELAUNCHES, record.name, patch, record.namespace, subresource="status")
        )

    def _record_at_step(self, mark: messages.Mark) -> Relaunch:
        now = self._now()
        record = mark.record
        launched = mark.step is Step.LAUNCHED
        message = mark.why or (f"on {', '.join(mark.nodes)}" if launched and mark.nodes else "")
        return replace(
            record,
            step=mark.step,
            new_name=record.replacement_name if mark.new_uid or record.new_uid else "",
            new_uid=mark.new_uid or record.new_uid,
            candidates=mark.nodes or record.candidates,
            verdicts=self._chosen.verdicts or record.verdicts,
            counts=dict(self._chosen.counts) or record.counts,
            start_time=record.start_time or now,
            launched_time=now if launched else record.launched_time,
            conditions=conditions.at_step(record, mark.step, message, now),
        )

    def _delete(self, pod: WatchedPod) -> messages.PodIs | messages.NotAsExpected:
        answer = self._client.delete(PODS, pod.name, pod.namespace, uid=pod.uid, version=pod.version)
        if pod.name != self._name:
            return messages.NotAsExpected()
        if answer.get("kind") == "Pod" and answer["metadata"].get("finalizers"):
            return self._pod_is(answer)
        return messages.PodIs(None)

    def _launch(self, chosen: Chosen) -> messages.PodIs | messages.ReplacementIs:
        gated = read_watched_pod(self._pod if self._keeps_name() else self._replacement)
        patch = manifest.launch(gated, chosen.narrowing) if chosen.nodes else manifest.ungate(gated)
        answer = self._new_pod_is(self._patch(gated.name, patch))
        self._launched = answer.pod
        return answer


def _credible(record: Relaunch) -> Relaunch:
    """The record without a manifest that is not the recorded one: whoever may write a status may write any."""
    return record if manifest.digest(record.manifest) == record.manifest_hash else replace(record, manifest={})
