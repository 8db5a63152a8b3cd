"""Values computed from a node's state, kept exactly as long as the state lives.

The key is the identity of the object, not its content. A state is replaced, never changed, so both say the same, and
a hash of the content costs more than the answers it would find: 20 to 100 us a state (pods, devices and memory
anew after each change), against 9 us for a fit. States of different nodes are never equal, as they have names.
Machines and settings, which many nodes share, are keyed by content (``container_manager``).
"""

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

_Subject = TypeVar("_Subject")
_Value = TypeVar("_Value")


class _Reference(weakref.ref[_Subject], Generic[_Subject, _Value]):
    """A weak reference to a subject, with the value of that subject."""

    __slots__ = ("key", "value")

    key: int
    value: _Value


class IdentityCache(Generic[_Subject, _Value]):
    """One value for each subject, made on its first use. The value must not keep its subject alive."""

    def __init__(self, make: Callable[[], _Value]) -> None:
        self._make = make
        self._known: dict[int, _Reference[_Subject, _Value]] = {}

    def of(self, subject: _Subject) -> _Value:
        """The value of ``subject``: of this object, not of its equals."""
        known = self._known.get(id(subject))
        if known is None:
            known = self._known[id(subject)] = _Reference(subject, self._forget)
            known.key, known.value = id(subject), self._make()
        return known.value

    def __len__(self) -> int:
        return len(self._known)

    def _forget(self, reference: weakref.ref[_Subject]) -> None:
        # By its attribute, not its class: some end with the interpreter, and the class's name before them.
        self._known.pop(getattr(reference, "key", 0), None)
