"""A command that takes its time says so on a terminal, and nothing of that is left."""

import queue
import threading
from functools import partial

import pytest

from topomend.cli.output import waiting
from topomend.cli.output.waiting import Terminal, Waiting


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "EACH_SECONDS", 3600.0)


def asking() -> str:
    return "asking"


class Screen:
    """What is drawn, and when the first is."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.drawn = threading.Event()

    def draw(self, line: str) -> None:
        self.lines.append(line)
        self.drawn.set()


def test_the_line_comes_and_is_taken_away_once() -> None:
    screen = Screen()
    line = Waiting(screen.draw, asking, clock=iter([10.0, 13.0]).__next__)
    line.begin()
    assert screen.drawn.wait(30)
    line.end()
    line.end()
    assert screen.lines == ["asking, 3 s", ""]


def test_what_was_not_drawn_is_not_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 3600.0)
    screen = Screen()
    line = Waiting(screen.draw, asking)
    line.begin()
    line.end()
    assert screen.lines == []


def test_nothing_is_drawn_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    screen, terminal = Screen(), Terminal()
    with terminal.waiting(screen.draw, asking):
        assert terminal._waiting is None
    terminal.clear()
    assert screen.lines == []


def test_what_is_printed_ends_it_and_so_does_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    screen, terminal = Screen(), Terminal()
    with terminal.waiting(screen.draw, asking):
        assert screen.drawn.wait(30)
        terminal.clear()
        assert screen.lines[-1] == ""
        drawn = len(screen.lines)
        terminal.clear()
    assert len(screen.lines) == drawn


def test_a_block_within_another_says_its_own_words_on_the_same_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "EACH_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    terminal, far = Terminal(), iter(range(1, 1_000_000_000))

    def next_of(words: str) -> str:
        return next(line for line in iter(partial(said.get, timeout=30), None) if line.startswith(words))

    with terminal.waiting(said.put, asking):
        next_of("asking, ")
        with terminal.waiting(said.put, lambda: f"{next(far)} of them"):
            next_of("1 of them, ")
            next_of("2 of them, ")
        next_of("asking, ")
    assert terminal._waiting is None
