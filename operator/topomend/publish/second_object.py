"""Publish one object beside the NodeTopology, if asked to: on each change, and only if no other program writes it.

Owns when it is written, and the condition in the NodeTopology that says whether it is. Leaves content and layout to the
caller. A refusal of this object never delays the NodeTopology.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from topomend.kube.errors import Conflict, Forbidden, NotFound, Refused, ServerFailed, TooManyRequests
from topomend.model.condition import Condition
from topomend.publish.publisher import FIELD_MANAGER, NodeFacts
from topomend.publish.recheck import Recheck
from topomend.wire.condition import condition_fields


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

    After a refusal, or where somebody else writes the object, the next attempt waits for the next re-check.
    """

    def __init__(self, kind: SecondKind, name: str, monotonic: Callable[[], float]) -> None:
        self._kind, self._name = kind, name
        self._recheck = Recheck(monotonic)
        self._published: tuple[object, object] | None = None
        self._server: Mapping[str, Any] | None = None
        self._condition = Condition(kind.condition, "Unknown", "NotTried", "")
        self._is_refused = False
        self._status: tuple[Mapping[str, Any], Condition, dict[str, Any]] | None = None

    def publish(self, wanted: Callable[[], Mapping[str, Any]], source: object, key: object) -> None:
        """Publish ``wanted``, computed only where ``source`` is another object than before or ``key`` not equal.

        Raises APIError where no answer arrived.
        """
        self._look_again()
        if self._is_refused or (self._published and self._published[0] is source and self._published[1] == key):
            return
        self._condition = self._attempt(wanted())
        self._published = source, key

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
            return self._write(wanted)
        except (ServerFailed, TooManyRequests):
            self._server = None
            raise
        except Refused as error:
            self._server, self._is_refused = None, True
            return self._failure_of(error)

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
