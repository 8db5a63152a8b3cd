"""Values that another thread reads while a verb does something else: the server answers one list beside another."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class Ahead(Generic[_Value]):
    """What ``read`` returns, which begins at once. A verb that ends before does not wait for it."""

    def __init__(self, read: Callable[[], _Value]) -> None:
        self._future = Future[_Value]()
        Thread(target=self._run, args=(read,), name="ahead", daemon=True).start()

    def result(self) -> _Value:
        """The value. Waits for it, and raises what ``read`` raised."""
        return self._future.result()

    def _run(self, read: Callable[[], _Value]) -> None:
        try:
            self._future.set_result(read())
        except BaseException as error:  # noqa: BLE001 - it is raised where the value is asked for
            self._future.set_exception(error)
