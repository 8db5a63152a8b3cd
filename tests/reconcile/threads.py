"""Calls from several threads at once, which switch so often that an update that is not atomic is lost."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

SWITCH_SECONDS = 1e-6


@contextmanager
def _switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def at_once(actions: Sequence[Callable[[], object]]) -> None:
    """Call every action in a thread of its own, all beginning together; waits until all have returned."""
    together = threading.Barrier(len(actions))

    def run(action: Callable[[], object]) -> None:
        together.wait(60)
        action()

    threads = [threading.Thread(target=run, args=(action,), daemon=True) for action in actions]
    with _switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
