"""Work beside the work that a program measures or tries. What is done there is its owner's business."""

import threading
from abc import ABC, abstractmethod
from typing import Self


class Background(ABC):
    """A context manager that works in its own thread until it exits."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self.run, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._thread.join()

    @abstractmethod
    def run(self) -> None:
        """Work until ``ended`` is set."""
