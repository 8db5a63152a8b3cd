"""Ctrl-C in this process: heeded, whoever runs the tests, and where Python drops the exception of its handler."""

import io
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def heeded() -> Iterator[None]:
    """A shell's background job ignores interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Interrupting(io.BufferedIOBase):
    def close(self) -> None:
        if not self.closed:
            signal.raise_signal(signal.SIGINT)
        super().close()


def interrupt_in_a_finalizer() -> None:
    """Send SIGINT to this thread where an answer of http.client is finalized."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.unraisablehook", lambda _: None)  # from 3.13 on Python says what it drops there
        answer = _Interrupting()
        del answer
