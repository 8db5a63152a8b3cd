"""What was worked out about a node's state, remembered as long as the state lives and not a moment longer."""

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from topomend.model.node_state import NodeState

_Value = TypeVar("_Value")


class _Reference(weakref.ref[NodeState], Generic[_Value]):
    """A state, and what is remembered of it."""

    __slots__ = ("key", "value")

    key: int
    value: _Value


class Remembered(Generic[_Value]):
    """One value for each state, made when it is first asked for. The value must not keep its state alive."""

    def __init__(self, make: Callable[[], _Value]) -> None:
        self._make = make
        self._known: dict[int, _Reference[_Value]] = {}

    def of(self, state: NodeState) -> _Value:
        """What is remembered of ``state``: of this object, not of its equals."""
        known = self._known.get(id(state))
        if known is None:
            known = self._known[id(state)] = _Reference(state, self._forget)
            known.key, known.value = id(state), self._make()
        return known.value

    def __len__(self) -> int:
        return len(self._known)

    def _forget(self, reference: weakref.ref[NodeState]) -> None:
        # By its attribute, not its class: states also end when the interpreter does, and the class's name before them.
        self._known.pop(getattr(reference, "key", 0), None)
