"""Of which objects a list has something older than a watch."""

import pytest

from topomend.controller import newest_versions
from topomend.controller.newest_versions import NewestVersions

POD, OTHER = ("ns", "p"), ("ns", "q")


def test_an_object_is_newer_than_the_lists_read_before_its_latest_event_and_no_others() -> None:
    newest = NewestVersions()
    newest.note("pods", POD, "5")
    newest.note("pods", POD, "9")
    newest.note("pods", OTHER, "10")
    assert newest.newer_than("pods", "8") == {POD, OTHER}
    assert newest.newer_than("pods", "9") == {OTHER}
    assert newest.newer_than("pods", "10") == set()


def test_kinds_are_apart() -> None:
    newest = NewestVersions()
    newest.note("nodes", ("", "a"), "9")
    assert newest.newer_than("pods", "8") == set()
    assert newest.newer_than("nodes", "8") == {("", "a")}


def test_of_very_many_objects_those_of_the_latest_events_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_versions, "MAX_OBJECTS", 2)
    newest = NewestVersions()
    for name in ("p", "q", "p", "r"):
        newest.note("pods", ("ns", name), "9")
    assert newest.newer_than("pods", "8") == {("ns", "p"), ("ns", "r")}
