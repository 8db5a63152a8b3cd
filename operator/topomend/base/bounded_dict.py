"""A dictionary of bounded size, for caches."""

from collections import OrderedDict
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class BoundedDict(OrderedDict[_Key, _Value]):
    """A dictionary of at most ``most`` keys. Inserting a further one with ``[]`` removes the oldest."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _Key, value: _Value) -> None:
        super().__setitem__(key, value)
        while len(self) > self._most:
            self.popitem(last=False)
