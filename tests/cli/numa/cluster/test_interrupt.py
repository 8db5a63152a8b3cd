"""Ctrl-C ends a watch whenever it comes, and the command goes on behind it."""

import signal
from collections.abc import Iterator

import pytest
from tests.interrupts import heeded, interrupt_in_a_finalizer

from topomend.cli.numa.cluster.interrupt import until_interrupted


@pytest.fixture(autouse=True)
def heeding() -> Iterator[None]:
    with heeded():
        yield


def interrupt() -> None:
    """In this thread, and before it goes on."""
    signal.raise_signal(signal.SIGINT)


def test_one_that_comes_while_an_item_is_used_counts_once_that_is_done() -> None:
    used = []
    for number in until_interrupted(iter([1, 2, 3])):
        if number == 2:
            interrupt()
        used.append(number)
    assert used == [1, 2]


def test_one_that_comes_while_the_next_is_waited_for_ends_it_at_once() -> None:
    def items() -> Iterator[int]:
        yield 1
        interrupt()
        pytest.fail("it went on")

    assert list(until_interrupted(items())) == [1]


def test_one_that_a_finalizer_swallows_ends_it_after_the_next_item() -> None:
    def items() -> Iterator[int]:
        interrupt_in_a_finalizer()
        yield 1
        yield 2

    assert list(until_interrupted(items())) == [1]


def test_a_second_one_ends_the_command() -> None:
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  the loop is what is tried
        for _ in until_interrupted(iter([1, 2])):
            interrupt()
            interrupt()


def test_afterwards_an_interrupt_is_again_what_it_was() -> None:
    assert list(until_interrupted(iter([1, 2]))) == [1, 2]
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_an_error_of_the_items_passes_through_and_leaves_nothing() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        list(until_interrupted(items()))
    with pytest.raises(KeyboardInterrupt):
        interrupt()
