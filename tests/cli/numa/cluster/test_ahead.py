"""What another thread reads arrives where it is asked for, as a value or as its error."""

from threading import Event

import pytest

from topomend.cli.numa.cluster.ahead import Ahead


def test_reading_begins_before_the_value_is_asked_for() -> None:
    begun = Event()

    def read() -> int:
        begun.set()
        return 7

    ahead = Ahead(read)
    assert begun.wait(60)
    assert ahead.result() == ahead.result() == 7


def test_an_error_is_raised_where_the_value_is_asked_for() -> None:
    def read() -> None:
        raise ValueError("no")

    ahead = Ahead(read)
    with pytest.raises(ValueError, match="no"):
        ahead.result()
