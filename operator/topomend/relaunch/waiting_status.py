"""What a refused pod waits for, kept where its user finds it: in the conditions of its record.

The record is the one that a relaunch begins with, written early. It does nothing as long as the pod is not claimed, and
a relaunch that begins later goes on with it (relaunch/protocol.py). Notes are a courtesy: one that the API server does
not take is left out.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from topomend.kube.client import RELAUNCHES, Client
from topomend.kube.errors import Conflict, Forbidden, Invalid, MethodNotAllowed, NotFound
from topomend.model.bounded_dict import BoundedDict
from topomend.model.relaunch import NodeVerdict, Relaunch, Step
from topomend.relaunch import conditions
from topomend.wire.relaunch import read_relaunch, relaunch_object, relaunch_status

REPEAT_SECONDS = 30.0
"""How long a note stands that says the same in other numbers."""

_REMEMBERED = 10_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Note:
    """One CamelCase word and one line; ``never`` where no node admits the pod even when empty."""

    reason: str
    message: str
    never: bool = False
    verdicts: tuple[NodeVerdict, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()


class Notes:
    """Writes notes. May be used by several threads, a pod each."""

    def __init__(self, client: Client, clock: Callable[[], float], now: Callable[[], str]) -> None:
        self._client, self._clock, self._now = client, clock, now
        self._written: BoundedDict[tuple[str, str], float] = BoundedDict(_REMEMBERED)
        self._lock = threading.Lock()

    def begin(self, draft: Relaunch, note: Note) -> None:
        """Write the record of a refused pod that has none yet, and why the pod waits."""
        try:
            created = read_relaunch(self._client.create(RELAUNCHES, relaunch_object(draft), draft.namespace))
        except (Conflict, Forbidden, Invalid, MethodNotAllowed, NotFound) as error:
            _log.debug("%s/%s: not noted: %s", draft.namespace, draft.name, error)
            return
        self.add(created, note)

    def add(self, record: Relaunch, note: Note) -> None:
        """Say in an open record why its pod waits, unless it says so already."""
        noted = conditions.waiting(record, note.reason, note.message, self._now(), never=note.never)
        if record.step not in (Step.RECORDED, Step.CREATED) or not self._is_news(record, noted):
            return
        status: dict[str, Any] = relaunch_status(
            replace(
                record,
                conditions=noted,
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

    def _is_news(self, record: Relaunch, noted: conditions.Conditions) -> bool:
        if noted == record.conditions:
            return False
        key, now = (record.namespace, record.name), self._clock()
        words = [(each.type, each.status, each.reason) for each in noted]
        with self._lock:
            is_fresh = now - self._written.get(key, -REPEAT_SECONDS) < REPEAT_SECONDS
            if is_fresh and words == [(each.type, each.status, each.reason) for each in record.conditions]:
                return False
            self._written[key] = now
        return True
