"""End the relaunches that have begun. The relaunch protocol does it, so no pod is lost and none runs twice.

Owns which relaunches are ended, and their lines in the journal.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from topomend.drain.journal import Journal
from topomend.drain.leftovers import Leftovers
from topomend.kube.client import Client
from topomend.kube.errors import APIError, NotFound, NotPermitted
from topomend.kube.resources import RELAUNCHES
from topomend.model.pods.scheduling import WatchedPod
from topomend.model.relaunch_record import Relaunch, Step
from topomend.relaunch import messages
from topomend.relaunch.driver import Chosen, Driver, NoProgress, Outcome
from topomend.runtime.timestamp import timestamp
from topomend.wire.document import MalformedObject
from topomend.wire.relaunch_record import read_relaunch


@dataclass(frozen=True)
class _Begun:
    """One relaunch. ``pod`` names the refused pod or its replacement, ``uid`` is the refused pod's."""

    namespace: str
    pod: str
    uid: str
    record: str

    def __str__(self) -> str:
        return f"relaunch {self.namespace}/{self.record}"


class Relaunches:
    """The open relaunches. ``unended`` has the uids of refused pods whose relaunch did not end at the last attempt."""

    def __init__(self, client: Client, journal: Journal) -> None:
        self._client, self._journal = client, journal
        self.unended: set[str] = set()

    def end_all(self) -> None:
        """End every relaunch whose record is open; none where the kind no longer exists.

        Raises APIError where they cannot be listed, NotPermitted where this process may write no more.
        """
        self.unended.clear()
        try:
            records = self._client.read(RELAUNCHES, self._open).items
        except NotFound:
            return
        for record, step in records:
            if self._journal.dry:
                self._journal.did("relaunches ended", f"{record}: {_planned(step)}")
            else:
                self._end(record)

    def end_waiting(self, replacement: Leftovers) -> bool:
        """End the relaunch of a replacement that waits behind our gate, even where its record is gone.

        Returns whether it ended, so that the pod may be cleaned.
        """
        begun = _Begun(replacement.namespace, replacement.name, replacement.replaces, replacement.record)
        return begun.uid not in self.unended and self._end(begun)

    def _open(self, content: dict[str, Any]) -> Iterable[tuple[_Begun, Step]]:
        """The relaunch of an open record and its step. The manifest is dropped: the driver reads it again later."""
        try:
            record = read_relaunch(content)
        except MalformedObject as error:
            metadata = content["metadata"]
            self._journal.report_remaining(
                f"relaunch {metadata['namespace']}/{metadata['name']}", f"it is malformed: {error}"
            )
            return []
        if not record.is_open:
            return []
        return [(_Begun(record.namespace, record.pod_name, record.pod_uid, record.name), record.step)]

    def _end(self, begun: _Begun) -> bool:
        driver = Driver(self._client, _never_choose, timestamp, draining=True)
        try:
            outcome = driver.run(begun.namespace, begun.pod, begun.uid, begun.record, may_start=False)
        except NotPermitted:
            raise
        except (APIError, NoProgress, MalformedObject) as error:
            return self._unfinished(begun, str(error))
        if outcome.launched:
            pod = outcome.launched
            self._journal.did(
                "replacements ungated", f"pod {pod.namespace}/{pod.name}: ungated, it replaces a refused pod"
            )
        if isinstance(outcome.last, messages.Pause):
            return self._unfinished(begun, outcome.last.waiting_for)
        self._report(begun, outcome)
        self._journal.resolve(str(begun))
        return True

    def _report(self, begun: _Begun, outcome: Outcome) -> None:
        record = outcome.record
        if record is None:
            return
        why = next((condition.message for condition in record.conditions if condition.type == "Succeeded"), "")
        line = f"{begun}: {record.step.value}" + (f", {why}" if why else "")
        self._journal.did("relaunches ended", line)

    def _unfinished(self, begun: _Begun, why: str) -> bool:
        self.unended.add(begun.uid)
        self._journal.report_remaining(
            str(begun),
            f"{why}; if its pod no longer exists, its manifest is in the record's status: "
            f"kubectl -n {begun.namespace} get relaunch {begun.record} -o yaml",
        )
        return False


def _planned(step: Step) -> str:
    match step:
        case Step.RECORDED:
            return "it was only recorded; the refused pod stays as it is"
        case Step.COMMITTED | Step.BLOCKED:
            return "the pod is recreated if it does not exist, and ungated"
        case Step.CREATED:
            return "the replacement is ungated"
    return "it has ended; the finalizer of its record is removed"


def _never_choose(pod: WatchedPod, record: Relaunch) -> Chosen:
    """The driver's ``choose``, which a draining protocol never calls: the scheduler places the replacements."""
    raise AssertionError(f"a drain must not choose a node for {pod.name} of {record.name}")
