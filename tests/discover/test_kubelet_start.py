import time

import pytest

from topomend.discover.kubelet_start import SECONDS, KubeletStart, Mark


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def start(clock: Clock) -> KubeletStart:
    return KubeletStart(clock)


def _socket(age: float = 0.0) -> Mark:
    return (7, int((time.time() - age) * 1e9), 0)


def test_a_kubelet_has_started_recently_until_its_time_is_over(start: KubeletStart, clock: Clock) -> None:
    socket = _socket()
    assert start.is_recent(socket)
    clock.now += SECONDS - 1.0
    assert start.is_recent(socket)
    clock.now += 2.0
    assert not start.is_recent(socket)
    assert start.is_recent(_socket())


@pytest.mark.parametrize(("age", "is_recent"), [(SECONDS - 5.0, True), (SECONDS + 1.0, False), (-3600.0, True)])
def test_a_socket_is_as_old_as_it_says(age: float, is_recent: bool, start: KubeletStart) -> None:
    assert start.is_recent(_socket(age)) is is_recent


def test_a_socket_from_the_future_is_new_for_no_longer_than_another(start: KubeletStart, clock: Clock) -> None:
    socket = _socket(-3600.0)
    assert start.is_recent(socket)
    clock.now += SECONDS + 1.0
    assert not start.is_recent(socket)


def test_a_start_is_over_once_everything_is_listed(start: KubeletStart) -> None:
    socket = _socket()
    assert start.is_recent(socket)
    start.is_over()
    assert not start.is_recent(socket)


def test_the_time_counts_from_when_the_managers_start(start: KubeletStart, clock: Clock) -> None:
    socket = _socket()
    clock.now += SECONDS + 60.0
    start.is_at_its_begin(socket)
    clock.now += SECONDS - 1.0
    assert start.is_recent(socket)
