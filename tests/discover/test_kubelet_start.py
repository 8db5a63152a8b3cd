import pytest
from tests.clock import Clock

from topomend.discover.kubelet_start import SECONDS, SETTLED_SECONDS, KubeletStart, Mark

ABSENT: Mark = (0, 0, 0)
OLD: Mark = (7, 1, 0)
NEW: Mark = (7, 2, 0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def start(clock: Clock) -> KubeletStart:
    return KubeletStart(clock)


def test_a_socket_that_was_there_from_the_first_is_no_start(start: KubeletStart) -> None:
    assert not start.is_recent()
    start.saw(OLD)
    assert not start.is_recent()


@pytest.mark.parametrize("before", [[OLD], [OLD, ABSENT], [ABSENT]], ids=["replaced", "gone for a while", "late"])
def test_a_new_socket_is_a_start_for_a_while(before: list[Mark], start: KubeletStart, clock: Clock) -> None:
    for mark in before:
        start.saw(mark)
        assert not start.is_recent()
    start.saw(NEW)
    clock.advance(SECONDS - 0.1)
    start.saw(NEW)
    assert start.is_recent()
    clock.advance(0.2)
    assert not start.is_recent()


def test_a_start_is_over_once_all_is_told(start: KubeletStart) -> None:
    start.saw(OLD)
    start.saw(NEW)
    start.end()
    start.saw(NEW)
    assert not start.is_recent()
    start.saw(OLD)
    assert start.is_recent()


def test_a_list_has_settled_that_stays_the_same_with_a_pod_that_is_not_from_a_file(
    start: KubeletStart, clock: Clock
) -> None:
    static, other = ("kube-system", "etcd-node-1"), ("default", "p")
    for listed, settles in (((), False), ((static,), False), ((static, other), True), ((other,), True)):
        assert not start.has_settled(listed, "Node-1")
        clock.advance(SETTLED_SECONDS)
        assert start.has_settled(listed, "Node-1") is settles


def test_a_list_settles_anew_after_a_start(start: KubeletStart, clock: Clock) -> None:
    start.saw(OLD)
    listed = [("default", "p")]
    assert not start.has_settled(listed, "n")
    clock.advance(SETTLED_SECONDS)
    start.saw(NEW)
    assert not start.has_settled(listed, "n")
