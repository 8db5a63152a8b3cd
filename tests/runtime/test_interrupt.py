"""A signal ends the thread that it interrupts, at once or when it asks."""

import signal
from collections.abc import Iterator

import pytest
from tests.interrupts import interrupt_in_a_finalizer

from topomend.runtime.interrupt import Interrupt


class Ended(BaseException):
    """The error of these tests."""


@pytest.fixture
def interrupt() -> Iterator[Interrupt]:
    made = Interrupt(Ended)
    before = signal.signal(signal.SIGINT, made.came)
    yield made
    signal.signal(signal.SIGINT, before)


def test_a_signal_raises_the_error_where_it_comes(interrupt: Interrupt) -> None:
    interrupt.raise_if_lost()
    with pytest.raises(Ended):
        signal.raise_signal(signal.SIGINT)


def test_a_signal_that_a_finalizer_swallows_raises_it_at_the_next_question(interrupt: Interrupt) -> None:
    interrupt_in_a_finalizer()
    with pytest.raises(Ended):
        interrupt.raise_if_lost()
