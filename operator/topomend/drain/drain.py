"""Run the steps of a drain in order: stop gating, stop the operators, end admission checks and relaunches, clean pods,
until none remains.

Owns the order and the repetition. Each step reads the cluster and does what is missing, so an interrupted drain is
simply run again. No step requires that the kinds, the operator or the policies still exist.
"""

import time

from topomend.drain.admission_checks import AdmissionChecks
from topomend.drain.gating import Gating, Recreated
from topomend.drain.journal import Journal
from topomend.drain.operators import Operators
from topomend.drain.pods import Pods
from topomend.drain.relaunches import Relaunches
from topomend.kube.client import Client

IN_FORCE_SECONDS = 7.0
"""An API server notices within a second that a policy's binding is gone, and may gate pods until then. The rest of the
time is for an operator that still runs: it recreates the parameter objects (``gating/parameters.py``), which the
drain then reports."""

PASS_SECONDS = 1.0


class Drain:
    """One drain. ``namespace`` is the operator's. ``seconds`` bounds the wait for its pods, and again the cleaning."""

    def __init__(self, client: Client, namespace: str, journal: Journal, seconds: float) -> None:
        self._journal, self._seconds = journal, seconds
        self._gating = Gating(client, namespace, journal)
        self._operators = Operators(client, namespace, journal, seconds)
        self._admission_checks = AdmissionChecks(client, journal)
        self._relaunches = Relaunches(client, journal)
        self._pods = Pods(client, self._relaunches, journal)

    def run(self) -> None:
        """Drain, or report what a drain would do. Raises APIError where a request fails: run the drain again then."""
        self._gating.stop()
        try:
            self._operators.stand_down()
            self._gating.forget()
            self._admission_checks.retire()
            self._clean(time.monotonic() + IN_FORCE_SECONDS)
        finally:
            self._operators.stand_by()

    def _clean(self, in_force: float) -> None:
        """Repeat passes until one finds nothing to do. The last one starts after ``in_force``.

        ``in_force`` is when no pod can be gated any more, on the monotonic clock.
        """
        deadline = in_force + self._seconds
        while True:
            begun, count_before = time.monotonic(), self._journal.count()
            self._relaunches.end_all()
            self._pods.clean_all()
            if self._journal.dry:
                return
            is_clean = self._journal.count() == count_before and not self._relaunches.unended
            if self._ends_late():
                in_force = time.monotonic() + IN_FORCE_SECONDS
            if (is_clean and begun > in_force) or begun > deadline:
                break
            time.sleep(PASS_SECONDS)
        if recreated := self._gating.recreated():
            self._journal.report_remaining(recreated.name, self._why_recreated(recreated))

    def _ends_late(self) -> bool:
        """Whether the operator that recreated an object has ended or is ending, such as one of a rollout.

        The garbage collector deletes the object with that operator's pod. Until then pods may be gated.
        """
        recreated = self._gating.recreated()
        return recreated is not None and bool(recreated.pods) and not self._operators.staying(recreated.pods)

    def _why_recreated(self, recreated: Recreated) -> str:
        if not recreated.pods:
            return (
                "an operator outside the Deployment created it again after it was deleted; stop that operator, then "
                "drain again"
            )
        pods, running = " and ".join(recreated.pods), self._operators.staying(recreated.pods)
        if running:
            return (
                f"the operator in pod {pods} created it again after the Deployment was scaled to 0; find out who "
                "scales it up or runs that pod, then drain again"
            )
        return f"the operator in pod {pods} created it again and is still ending; drain again once the pod is gone"
