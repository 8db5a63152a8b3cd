"""A thread that dies is reported by its name."""

import threading

import pytest

from topomend.runtime.threads import watched


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_death_of_any_thread_is_reported_with_its_name_and_error() -> None:
    died: list[str] = []

    def fail() -> None:
        raise ImportError("no module named ssl")

    with watched(died.append):
        for target, name in ((fail, "watch-pods"), (lambda: None, "other")):
            thread = threading.Thread(target=target, name=name)
            thread.start()
            thread.join()
    assert died == ["thread watch-pods has died: ImportError: no module named ssl"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_afterwards_threads_are_not_watched() -> None:
    died: list[str] = []
    before = threading.excepthook
    with watched(died.append):
        assert threading.excepthook is not before
    assert threading.excepthook is before
