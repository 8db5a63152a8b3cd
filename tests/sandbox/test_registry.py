"""The lock of a sandbox where two processes want it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from topomend.sandbox import layout, registry
from topomend.sandbox.failures import SandboxBusy

NAME = "process-1-1"


class Waits:
    """The time as it passes while the lock is waited for; ``ends`` is called once it is ``end``."""

    def __init__(self, end: float, ends: Callable[[], None]) -> None:
        self.now, self._end, self._ends = 0.0, end, ends

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self._end:
            self._ends()


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    """The lock as another process has it until this is closed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with ExitStack() as held:
        held.enter_context(registry.lock(NAME))
        yield held


@pytest.mark.parametrize("seconds", [registry.LOOK * 2, registry.REMOVAL / 2])
def test_who_ends_a_sandbox_waits_for_another_process_that_removes_its_files(
    other: ExitStack, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one found the sandbox down, and takes it for abandoned."""
    waits = Waits(seconds, other.close)
    monkeypatch.setattr(registry, "time", SimpleNamespace(monotonic=lambda: waits.now, sleep=waits.sleep))
    registry.remove_files(NAME, registry.REMOVAL)
    assert not layout.lock_file(NAME).exists()


def test_a_sandbox_that_is_up_stays(other: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(registry.REMOVAL, other.close)
    monkeypatch.setattr(registry, "time", SimpleNamespace(monotonic=lambda: waits.now, sleep=waits.sleep))
    with pytest.raises(SandboxBusy, match="is up already"):
        registry.remove_files(NAME)
    assert layout.lock_file(NAME).exists()


@pytest.mark.usefixtures("other")
def test_the_sandboxes_that_are_up_are_those_whose_lock_is_held() -> None:
    layout.lock_file("ended").touch()
    with registry.lock("another"):
        assert registry.names_up() == ("another", NAME)
    assert registry.names_up() == (NAME,)
