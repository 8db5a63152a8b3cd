"""What was worked out about a node's state or its machine, remembered as long as that lives and not a moment longer."""

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

_Subject = TypeVar("_Subject")
_Value = TypeVar("_Value")


class _Reference(weakref.ref[_Subject], Generic[_Subject, _Value]):
    """A subject, and what is remembered of it."""

    __slots__ = ("key", "value")

    key: int
    value: _Value


class IdentityCache(Generic[_Subject, _Value]):
    """One value for each subject, made when it is first asked for. The value must not keep its subject alive."""

    def __init__(self, make: Callable[[], _Value]) -> None:
        self._make = make
        self._known: dict[int, _Reference[_Subject, _Value]] = {}

    def of(self, subject: _Subject) -> _Value:
        """What is remembered of ``subject``: of this object, not of its equals."""
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
