"""Run the steps of a drain in order: stop gating, stop the operators, end relaunches, clean pods, until none remains.

Owns the order and the repetition. Each step reads the cluster and does what is missing, so an interrupted drain is
simply run again. No step requires that the kinds, the operator or the policies still exist.
"""

import time

from topomend.drain.gating import Gating
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
        self._relaunches = Relaunches(client, journal)
        self._pods = Pods(client, self._relaunches, journal)

    def run(self) -> None:
        """Drain, or report what a drain would do. Raises APIError where a request fails: run the drain again then."""
        self._gating.stop()
        try:
            self._operators.stand_down()
            self._gating.forget()
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
            if (is_clean and begun > in_force) or begun > deadline:
                break
            time.sleep(PASS_SECONDS)
        if recreated := self._gating.recreated():
            self._journal.report_remaining(
                recreated,
                "an operator outside the Deployment created it again after it was deleted; stop that operator, then "
                "drain again",
            )
