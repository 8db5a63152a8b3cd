"""The order of a drain: gating ends, operators stand down, relaunches end, pods are cleaned, until nothing is left.

Each part looks at what is there and does what is missing, so a drain that ended anywhere is simply run again. What the
kinds, the operator or the policies would tell may be gone: every part goes without.
"""

import time

from topomend.drain.gating import Gating
from topomend.drain.journal import Journal
from topomend.drain.operators import Operators
from topomend.drain.pods import Pods
from topomend.drain.relaunches import Relaunches
from topomend.kube.client import Client

IN_FORCE_SECONDS = 7.0
"""An API server sees within a second that a policy's binding is gone; for so long pods may still be gated, and for as
long as an operator needs to make again what it reads (reconcile/parameters.py), it may be found to run."""

PASS_SECONDS = 1.0


class Drain:
    """One drain. ``namespace`` is the operator's own; ``seconds`` bounds the wait for its pods, and for the rest."""

    def __init__(self, client: Client, namespace: str, journal: Journal, seconds: float) -> None:
        self._journal, self._seconds = journal, seconds
        self._gating = Gating(client, namespace, journal)
        self._operators = Operators(client, namespace, journal, seconds)
        self._relaunches = Relaunches(client, journal)
        self._pods = Pods(client, self._relaunches, journal)

    def run(self) -> None:
        """Drain, or say what would be done. Raises APIError where the cluster cannot be asked: run it again then."""
        self._gating.stop()
        try:
            self._operators.stand_down()
            self._gating.forget()
            self._clean(time.monotonic() + IN_FORCE_SECONDS)
        finally:
            self._operators.stand_by()

    def _clean(self, in_force: float) -> None:
        """Pass after pass, the last one once no pod can have been gated since."""
        deadline = in_force + self._seconds
        while True:
            begun, before = time.monotonic(), self._journal.count()
            self._relaunches.end_all()
            self._pods.clean_all()
            if self._journal.dry:
                return
            is_clean = self._journal.count() == before and not self._relaunches.unended
            if (is_clean and begun > in_force) or begun > deadline:
                break
            time.sleep(PASS_SECONDS)
        if remade := self._gating.remade():
            self._journal.leave(
                remade,
                "it was deleted and is there again: an operator runs outside the Deployment; stop it, drain again",
            )
