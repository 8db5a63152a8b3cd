"""Write the reason why a refused pod waits into the conditions of its record, where its user can read it.

The record is the one that a relaunch starts with, written early. It has no effect while the pod is unclaimed, and a
later relaunch continues with it (``relaunch/protocol.py``). A note that the API server refuses is dropped. Leaves the
reasons to the caller.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from topomend.base.bounded_dict import BoundedDict
from topomend.kube.client import Client
from topomend.kube.errors import Conflict, Forbidden, Invalid, MethodNotAllowed, NotFound
from topomend.kube.resources import RELAUNCHES
from topomend.model.relaunch_record import NodeVerdict, Relaunch, Step
from topomend.relaunch import conditions
from topomend.wire.relaunch_record import read_relaunch, relaunch_object, relaunch_status

REPEAT_SECONDS = 30.0
"""How long a note stays before one that differs only in its message replaces it."""

_REMEMBERED = 10_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Note:
    """Why a pod waits: ``reason`` is one CamelCase word, ``message`` one line.

    ``never`` is whether no node would admit the pod even when empty. ``verdicts`` and ``counts`` say what the nodes
    answered; ``counts`` is nodes by reason.
    """

    reason: str
    message: str
    never: bool = False
    verdicts: tuple[NodeVerdict, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()


class WaitingStatus:
    """Writes notes. ``clock`` counts seconds, ``now`` returns the time as RFC 3339.

    Several threads may use it at once, each for another pod.
    """

    def __init__(self, client: Client, clock: Callable[[], float], now: Callable[[], str]) -> None:
        self._client, self._clock, self._now = client, clock, now
        self._written: BoundedDict[tuple[str, str], float] = BoundedDict(_REMEMBERED)
        self._lock = threading.Lock()

    def begin(self, draft: Relaunch, note: Note) -> None:
        """Create the record of a refused pod that has none yet, then add the note.

        Raises APIError where no answer arrived; a refusal is only logged.
        """
        try:
            record = read_relaunch(self._client.create(RELAUNCHES, relaunch_object(draft), draft.namespace))
        except (Conflict, Forbidden, Invalid, MethodNotAllowed, NotFound) as error:
            _log.debug("%s/%s: not noted: %s", draft.namespace, draft.name, error)
            return
        self.add(record, note)

    def add(self, record: Relaunch, note: Note) -> None:
        """Write the note into an open record, unless the record already says so.

        Raises APIError where no answer arrived; a refusal is only logged.
        """
        new_conditions = conditions.waiting(record, note.reason, note.message, self._now(), never=note.never)
        if record.step not in (Step.RECORDED, Step.CREATED) or not self._is_new(record, new_conditions):
            return
        status: dict[str, Any] = relaunch_status(
            replace(
                record,
                conditions=new_conditions,
                start_time=record.start_time or self._now(),
                verdicts=note.verdicts or record.verdicts,
                counts=dict(note.counts) or record.counts,
            )
        )
        patch = {"metadata": {"resourceVersion": record.version}, "status": status}
        try:
            self._client.merge(RELAUNCHES, record.name, patch, record.namespace, subresource="status")
        except (Conflict, Forbidden, Invalid, MethodNotAllowed, NotFound) as error:
            _log.debug("%s/%s: not noted: %s", record.namespace, record.name, error)

    def _is_new(self, record: Relaunch, new_conditions: conditions.Conditions) -> bool:
        if new_conditions == record.conditions:
            return False
        key, now = (record.namespace, record.name), self._clock()
        summary = [(condition.type, condition.status, condition.reason) for condition in new_conditions]
        with self._lock:
            is_recent = now - self._written.get(key, -REPEAT_SECONDS) < REPEAT_SECONDS
            if is_recent and summary == [
                (condition.type, condition.status, condition.reason) for condition in record.conditions
            ]:
                return False
            self._written[key] = now
        return True
