"""No thread dies unseen: the process ends with it, and another replica takes over.

Source of the rule: controller-runtime pkg/manager/runnable_group.go, where a runnable that fails ends the manager.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ThreadDied(Exception):
    """A thread ended by an exception that it should have handled. The text names both."""


@contextmanager
def watched(died: Callable[[str], None]) -> Iterator[None]:
    """Have ``died`` called, by the thread itself, when an exception ends any thread of the process.

    It gets a sentence that names the thread and its exception. The traceback is printed as ever.
    """
    before = threading.excepthook

    def report(ended: threading.ExceptHookArgs) -> None:
        before(ended)
        # At exit the interpreter takes modules away from daemon threads: that is no fault of theirs.
        if not sys.is_finalizing():
            name = ended.thread.name if ended.thread else "unknown"
            died(f"thread {name} has died: {ended.exc_type.__name__}: {ended.exc_value}")

    threading.excepthook = report
    try:
        yield
    finally:
        threading.excepthook = before
