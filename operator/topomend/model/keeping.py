"""Frozen values that keep what is worked out of them: it lives as long as the value, and belongs to nobody else.

What is kept has to follow from the value alone: then it does not matter who worked it out first. It must not refer to
the value. A changed copy (``dataclasses.replace``) begins without any.
"""

from typing import Any, TypeVar

_Kept = TypeVar("_Kept")


class Keeping:
    """A frozen value that keeps one object of each class that is asked for. Several threads may ask."""

    def kept(self, kind: type[_Kept]) -> _Kept:
        """The value's own object of class ``kind``, made without arguments when it is first asked for."""
        own = vars(self)
        objects: dict[type, Any] = own.get("_kept") or own.setdefault("_kept", {})
        known: _Kept | None = objects.get(kind)
        return objects.setdefault(kind, kind()) if known is None else known
