"""Publish one object beside the NodeTopology, if asked to: on each change, and only if no other program writes it.

Owns when it is written, and the condition in the NodeTopology that says whether it is. Leaves content and layout to the
caller. Whatever the API server answers about this object, the NodeTopology is published.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from topomend.kube.errors import (
    APIError,
    Conflict,
    Forbidden,
    NotFound,
    Refused,
    ServerFailed,
    TooManyRequests,
    retry_after,
)
from topomend.model.condition import Condition
from topomend.publish.publisher import FIELD_MANAGER, NodeFacts
from topomend.publish.recheck import Recheck
from topomend.runtime.backoff import Exponential, Retry
from topomend.wire.condition import condition_fields

DELAYS = Exponential(1.0, 60.0, jitter=0.5)
"""After failures of the server. Few requests: a conversion webhook that is gone fails for every node, for hours."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SecondKind:
    """The kind of the object, and how the node's own is read and written.

    ``get`` returns it, ``apply`` applies it without force; both raise APIError. ``content_of`` are its fields that
    count, ``other_writer`` names a field manager other than the given one that writes them. ``flag`` is the agent's,
    ``rights`` the manifests that allow it.
    """

    kind: str
    condition: str
    flag: str
    rights: str
    get: Callable[[], Mapping[str, Any]]
    apply: Callable[[Mapping[str, Any], str], Mapping[str, Any]]
    content_of: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    other_writer: Callable[[Mapping[str, Any], str], str]


class SecondObject:
    """The object of the node ``name``. ``monotonic`` is a clock in seconds.

    After a refusal, or where somebody else writes the object, the next attempt waits for the next re-check; after a
    failure of the server for its own back-off.
    """

    def __init__(self, kind: SecondKind, name: str, monotonic: Callable[[], float]) -> None:
        self._kind, self._name = kind, name
        self._recheck, self._monotonic, self._retry = Recheck(monotonic), monotonic, Retry(DELAYS)
        self._published: tuple[object, object] | None = None
        self._server: Mapping[str, Any] | None = None
        self._condition = Condition(kind.condition, "Unknown", "NotTried", "")
        self._is_refused = False
        self._status: tuple[Mapping[str, Any], Condition, dict[str, Any]] | None = None

    def publish(self, wanted: Callable[[], Mapping[str, Any]], source: object, key: object) -> None:
        """Publish ``wanted``, computed only where ``source`` is another object than before or ``key`` not equal.

        Never raises APIError: the condition says what failed.
        """
        self._look_again()
        if self._is_refused or self._monotonic() < self._retry.until:
            return
        if self._published and self._published[0] is source and self._published[1] == key:
            return
        content = wanted()
        self._published = source, key
        self._condition = self._attempt(content)

    def withhold(self, reason: str, message: str) -> None:
        """Publish nothing now: the last published object stays."""
        self._look_again()
        self._condition = self._failed(reason, message)
        self._published = None

    def with_condition(self, status: Mapping[str, Any]) -> Mapping[str, Any]:
        """``status`` with the condition that says whether it is published: the same object as long as both are."""
        if self._status is None or self._status[0] is not status or self._status[1] != self._condition:
            conditions = [*status["conditions"], condition_fields(self._condition)]
            self._status = (status, self._condition, {**status, "conditions": conditions})
        return self._status[2]

    def owner(self, node: NodeFacts) -> dict[str, str]:
        """An ownerReference to the Node."""
        return {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": node.uid}

    def _look_again(self) -> None:
        if self._recheck.due():
            self._server, self._published, self._is_refused = None, None, False

    def _attempt(self, wanted: Mapping[str, Any]) -> Condition:
        try:
            condition = self._write(wanted)
        except APIError as error:
            self._server = None
            if not isinstance(error, Refused) or isinstance(error, (ServerFailed, TooManyRequests)):
                return self._again_after(error)
            self._is_refused, condition = True, self._failure_of(error)
        self._retry.succeeded()
        return condition

    def _again_after(self, error: APIError) -> Condition:
        """Try again soon: the server failed, asks to wait, or did not answer.

        The condition has none of the server's words: they may differ with each attempt, and each change of the
        condition is a write of the NodeTopology.
        """
        self._published = None
        delay = self._retry.failed(self._monotonic(), retry_after(error))
        _log.warning("the %s is not published, trying again in %.0f s: %s", self._kind.kind, delay, error)
        does = f"answers {error.status}" if isinstance(error, Refused) else "gives no answer"
        message = f"the API server {does} for the {self._kind.kind}; it is tried again, and the agent's log says more"
        return self._failed("ServerFailed", message)

    def _write(self, wanted: Mapping[str, Any]) -> Condition:
        kind = self._kind
        if self._server is None:
            self._server = self._get()
        if self._server and (other := kind.other_writer(self._server, FIELD_MANAGER)):
            self._is_refused = True
            return self._failed(
                "OtherWriter",
                f"{other} writes the {kind.kind} {self._name}, so the agent does not; stop one of the two; "
                "if that is the other one, delete its object too",
            )
        if not self._server or kind.content_of(self._server) != kind.content_of(wanted):
            self._server = kind.apply(wanted, FIELD_MANAGER)
        return Condition(kind.condition, "True", "Published", "")

    def _get(self) -> Mapping[str, Any]:
        try:
            return self._kind.get()
        except NotFound:
            return {}

    def _failed(self, reason: str, message: str) -> Condition:
        return Condition(self._kind.condition, "False", reason, message)

    def _failure_of(self, error: Refused) -> Condition:
        kind = self._kind
        if isinstance(error, NotFound):
            message = f"the cluster has no kind {kind.kind}: install it, or remove {kind.flag}"
            return self._failed("KindNotInstalled", message)
        if isinstance(error, Forbidden):
            return self._failed("Forbidden", f"{error}; apply {kind.rights}")
        if isinstance(error, Conflict):
            return self._failed("OtherWriter", str(error))
        return self._failed("Refused", str(error))


def ready_of(status: Mapping[str, Any]) -> str:
    """The status of the condition Ready."""
    return next((str(condition["status"]) for condition in status["conditions"] if condition["type"] == "Ready"), "")
