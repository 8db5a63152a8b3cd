"""Tell Kueue that topomend's admission checks are answered no longer, and name the ClusterQueues that ask them.

To a ClusterQueue with an inactive check Kueue gives no quota, and says so in its status
(pkg/cache/scheduler/clusterqueue.go:inactiveReason). Else workloads would take quota, and keep it while they wait.
A workload that has quota already is admitted once its ClusterQueue does not ask the check any more
(pkg/controller/core/workload_controller.go:reconcileSyncAdmissionChecks). Leaves ClusterQueues to their owner.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from topomend.drain.journal import Journal
from topomend.kube.client import Client
from topomend.kube.errors import APIError, NotFound, NotPermitted
from topomend.kube.kueue import ADMISSION_CHECKS, CLUSTER_QUEUES, FIELD_MANAGER
from topomend.runtime.timestamp import timestamp
from topomend.wire.document import MalformedObject
from topomend.wire.queued_workload import asked_checks, counts_as_active, inactive_status, is_ours


class AdmissionChecks:
    """The AdmissionChecks of topomend's controller. A cluster without Kueue has none."""

    def __init__(self, client: Client, journal: Journal) -> None:
        self._client, self._journal = client, journal

    def retire(self) -> None:
        """Make them inactive, and report the ClusterQueues that name one. Call it once no operator answers any more.

        Reports what fails too: pods are drained whatever has become of Kueue. Raises NotPermitted.
        """
        try:
            if self._client.serves(ADMISSION_CHECKS):
                self._retire()
        except NotPermitted:
            raise
        except (APIError, MalformedObject) as error:
            self._journal.report_remaining("Kueue's admission checks", f"{error}; drain again")

    def _retire(self) -> None:
        ours = set[str]()
        for content in self._client.list(ADMISSION_CHECKS).items:
            with self._by_itself("AdmissionCheck", content):
                if is_ours(content):
                    ours.add(content["metadata"]["name"])
                    self._deactivate(content)
        queues = self._client.list(CLUSTER_QUEUES).items if ours else ()
        for queue in queues:
            with self._by_itself("ClusterQueue", queue):
                self._report_asked(queue, ours)

    @contextmanager
    def _by_itself(self, kind: str, content: dict[str, Any]) -> Iterator[None]:
        """One that cannot be read or written is reported, and stops no other. Raises NotPermitted."""
        try:
            yield
        except NotPermitted:
            raise
        except (APIError, MalformedObject) as error:
            self._journal.report_remaining(f"{kind} {content['metadata']['name']}", f"{error}; drain again")

    def _report_asked(self, queue: dict[str, Any], ours: set[str]) -> None:
        if asked := sorted(ours.intersection(asked_checks(queue))):
            self._journal.report_remaining(
                f"ClusterQueue {queue['metadata']['name']}",
                f"it asks admission check {', '.join(asked)}, which nobody answers without topomend, so that its "
                "workloads wait for ever; take the check out of its spec.admissionChecksStrategy, then drain again",
            )

    def _deactivate(self, content: dict[str, Any]) -> None:
        if not counts_as_active(content):
            return
        name = content["metadata"]["name"]
        try:
            if not self._journal.dry:
                status = inactive_status(content, timestamp())
                self._client.apply(ADMISSION_CHECKS, name, status, subresource="status", manager=FIELD_MANAGER)
        except NotFound:
            return  # somebody has deleted it meanwhile
        self._journal.did("admission checks ended", f"AdmissionCheck {name}: not active, so that Kueue gives no quota")
