"""Relaunches that have begun, brought to an end by the protocol itself (relaunch/protocol.py): none makes two."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from topomend.drain.journal import Journal
from topomend.kube.client import RELAUNCHES, Client
from topomend.kube.errors import APIError, NotFound
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import Relaunch, Step
from topomend.relaunch import protocol, records
from topomend.relaunch.driver import Chosen, Driver, NoProgress, Outcome
from topomend.wire.document import MalformedObject
from topomend.wire.leftovers import Leftovers
from topomend.wire.relaunch import read_relaunch


@dataclass(frozen=True)
class _Begun:
    """One relaunch: the refused pod, or its replacement where that has a name of its own, and the record's name."""

    namespace: str
    pod: str
    uid: str
    record: str

    def __str__(self) -> str:
        return f"relaunch {self.namespace}/{self.record}"


class Relaunches:
    """Ends them. ``unended`` are the uids of the refused pods whose relaunch could not be ended when last tried."""

    def __init__(self, client: Client, journal: Journal) -> None:
        self._client, self._journal = client, journal
        self.unended: set[str] = set()

    def end_all(self) -> None:
        """End every relaunch that is open by its record; none where the kind is gone. Raises APIError."""
        self.unended.clear()
        try:
            records = self._client.read(RELAUNCHES, self._open).items
        except NotFound:
            return
        for record, step in records:
            if self._journal.dry:
                self._journal.did("relaunches ended", f"{record}: {_intended(step)}")
            else:
                self._end(record)

    def end_waiting(self, replacement: Leftovers) -> bool:
        """End the relaunch of a replacement that waits behind our gate, whatever became of its record. Whether it is
        ended, so that the pod is nobody's any more."""
        begun = _Begun(replacement.namespace, replacement.name, replacement.replaces, replacement.record)
        return begun.uid not in self.unended and self._end(begun)

    def _open(self, content: dict[str, Any]) -> Iterable[tuple[_Begun, Step]]:
        """What is to be done by a record: its manifest is read again when it is its turn."""
        try:
            record = read_relaunch(content)
        except MalformedObject as error:
            metadata = content["metadata"]
            self._journal.leave(f"relaunch {metadata['namespace']}/{metadata['name']}", f"it is malformed: {error}")
            return []
        if not record.is_open:
            return []
        return [(_Begun(record.namespace, record.pod_name, record.pod_uid, record.name), record.step)]

    def _end(self, begun: _Begun) -> bool:
        driver = Driver(self._client, _unasked, _now, partial(records.record_that_made, self._client), draining=True)
        try:
            outcome = driver.run(begun.namespace, begun.pod, begun.uid, begun.record, may_start=False)
        except (APIError, NoProgress, MalformedObject) as error:
            return self._left(begun, str(error))
        if outcome.launched:
            pod = outcome.launched
            self._journal.did(
                "replacements let go", f"pod {pod.namespace}/{pod.name}: let go, it replaces a refused pod"
            )
        if isinstance(outcome.last, protocol.Pause):
            return self._left(begun, outcome.last.waiting_for)
        self._tell(begun, outcome)
        self._journal.settle(str(begun))
        return True

    def _tell(self, begun: _Begun, outcome: Outcome) -> None:
        record = outcome.record
        if record is None:
            return
        why = next((condition.message for condition in record.conditions if condition.type == "Succeeded"), "")
        line = f"{begun}: {record.step.value}" + (f", {why}" if why else "")
        self._journal.did("relaunches ended", line)

    def _left(self, begun: _Begun, why: str) -> bool:
        self.unended.add(begun.uid)
        self._journal.leave(
            str(begun),
            f"{why}; where its pod is gone, its manifest is in the record: "
            f"kubectl -n {begun.namespace} get relaunch {begun.record} -o yaml",
        )
        return False


def _intended(step: Step) -> str:
    match step:
        case Step.RECORDED:
            return "nothing was done yet; the refused pod stays as it is"
        case Step.COMMITTED | Step.BLOCKED:
            return "the pod is created anew, unless it is there, and let go"
        case Step.CREATED:
            return "the replacement is let go"
    return "it has ended; the record is given back"


def _unasked(pod: WatchedPod, record: Relaunch) -> Chosen:
    """A drain lets replacements go to wherever their scheduler has them."""
    raise AssertionError(f"nobody chooses a node for {pod.name} of {record.name}")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
