"""An amount that remembers for which other amounts a computation would have run in the same way.

Admission reads an amount of memory only by adding, subtracting and comparing. So the amount carries how it depends on
the one that is varied, and each comparison narrows the range in which all comparisons so far come out the same. One
replay then answers for the whole range.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

_ALL_ONES = (1 << 64) - 1


class NotLinear(Exception):
    """The computation did something else with the amount; its answer holds for this one amount only."""


@dataclass(slots=True)
class Range:
    """The amounts from ``least`` to ``most`` for which everything so far came out the same; None is no bound."""

    least: int | None = None
    most: int | None = None

    def keep(self, slope: int, offset: int, holds: bool) -> None:
        """Narrow the range to the amounts for which ``slope * amount + offset >= 0`` is ``holds``."""
        if slope == 0:
            return
        if not holds:  # integers: not (y >= 0) is -y - 1 >= 0
            slope, offset = -slope, -offset - 1
        if slope > 0:
            least = -(offset // slope)
            self.least = least if self.least is None else max(self.least, least)
        else:
            most = offset // -slope
            self.most = most if self.most is None else min(self.most, most)


class TrackedAmount(int):
    """``slope * amount + offset``, an int to whoever computes with it."""

    _slope: int
    _offset: int
    _range: Range

    @classmethod
    def of(cls, amount: int, slope: int, seen: Range) -> "TrackedAmount":
        """``slope`` times the varied amount, which now is ``amount``; ``seen`` gets the comparisons."""
        return cls._made(amount, slope, 0, seen)

    @classmethod
    def _made(cls, amount: int, slope: int, offset: int, seen: Range) -> "TrackedAmount":
        made = cls(slope * amount + offset)
        made._slope, made._offset, made._range = slope, offset, seen
        return made

    def _linear(self, number: int, slope: int, offset: int) -> "TrackedAmount":
        made = TrackedAmount(number)
        made._slope, made._offset, made._range = slope, offset, self._range
        return made

    def __add__(self, other: int) -> "TrackedAmount":
        slope, offset = _parts(other)
        return self._linear(int.__add__(self, other), self._slope + slope, self._offset + offset)

    __radd__ = __add__

    def __sub__(self, other: int) -> "TrackedAmount":
        slope, offset = _parts(other)
        return self._linear(int.__sub__(self, other), self._slope - slope, self._offset - offset)

    def __rsub__(self, other: int) -> "TrackedAmount":
        return -self + other

    def __neg__(self) -> "TrackedAmount":
        return self._linear(int.__neg__(self), -self._slope, -self._offset)

    def __abs__(self) -> "TrackedAmount":
        return self if self >= 0 else -self

    def __floordiv__(self, other: int) -> "TrackedAmount":
        if self._slope % other or self._offset % other:
            raise NotLinear
        return self._linear(int.__floordiv__(self, other), self._slope // other, self._offset // other)

    def __mod__(self, other: int) -> int:
        if self._slope % other:
            raise NotLinear
        return self._offset % other

    def __and__(self, other: int) -> "TrackedAmount":
        if other != _ALL_ONES or not self >= 0 or not self <= other:
            raise NotLinear
        return self

    def _at_least(self, other: int, more: int = 0) -> bool:
        """Whether this is at least ``other + more``."""
        slope, offset = _parts(other)
        holds = int.__ge__(int.__sub__(self, other), more)
        self._range.keep(self._slope - slope, self._offset - offset - more, holds)
        return holds

    def __ge__(self, other: int) -> bool:
        return self._at_least(other)

    def __gt__(self, other: int) -> bool:
        return self._at_least(other, 1)

    def __lt__(self, other: int) -> bool:
        return not self._at_least(other)

    def __le__(self, other: int) -> bool:
        return not self._at_least(other, 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and self._at_least(other) and not self._at_least(other, 1)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self != 0

    __hash__ = int.__hash__

    def _refuse(self, *_: Any) -> NoReturn:
        raise NotLinear

    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __divmod__ = __pow__ = _refuse
    __lshift__ = __rshift__ = __rlshift__ = __rrshift__ = __or__ = __ror__ = __xor__ = __rand__ = _refuse
    __invert__ = __int__ = __float__ = bit_count = bit_length = _refuse


def _parts(number: int) -> tuple[int, int]:
    """The slope and the offset of a number."""
    if isinstance(number, TrackedAmount):
        return number._slope, number._offset
    return 0, number
