import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from topomend.runtime.log import Repeats, log_to_stderr


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]


def _fail() -> None:
    try:
        Path("/none").read_text()
    except OSError:
        logging.getLogger("topomend.test").warning("it\nfailed", exc_info=True)


def test_a_record_is_one_line_of_text_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("info", "text")
    _fail()
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("WARNING it failed (FileNotFoundError: [Errno 2] No such file or directory: '/none')")


def test_a_record_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("info", "json")
    _fail()
    [line] = capsys.readouterr().err.splitlines()
    fields = json.loads(line)
    assert (fields["level"], fields["message"]) == (
        "WARNING",
        "it failed (FileNotFoundError: [Errno 2] No such file or directory: '/none')",
    )
    assert fields["time"]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_traceback_is_logged_at_level_debug(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("debug", log_format)
    _fail()
    assert "Traceback" in capsys.readouterr().err


def test_libraries_log_warnings_only(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("info", "text", ["library"])
    logging.getLogger("library").info("chatter")
    logging.getLogger("library").warning("important")
    assert "chatter" not in (text := capsys.readouterr().err)
    assert "important" in text


def test_a_warning_that_repeats_is_logged_ever_more_seldom() -> None:
    now = 0.0
    repeats = Repeats(lambda: now)

    def passes(message: str, level: int = logging.WARNING, name: str = "library") -> bool:
        return repeats.filter(logging.LogRecord(name, level, "", 0, message, None, None))

    logged = []
    for second in range(100):
        now = float(second)
        assert passes("information", logging.INFO)
        if passes(f"attempt {second} failed"):
            logged.append(second)
    assert logged == [0, 5, 15, 35, 75]
    assert passes("another failed")
    assert passes("web-1 failed", name="topomend.test")
    assert passes("web-2 failed", name="topomend.test"), "it is another pod"
    assert not passes("web-2 failed", name="topomend.test")
    now = 1000.0
    assert passes("attempt 1000 failed")
    now = 1005.0
    assert passes("attempt 1001 failed"), "after a long time without it, it is news again"


@pytest.mark.parametrize("level", ["info", "debug"])
def test_no_message_and_no_exception_forges_a_line_or_speaks_to_a_terminal(
    level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr(level, "text")
    forged = "pod a\n2026-11-25 19:00:00,000 CRITICAL all is lost \x1b[2J\u202e"
    try:
        int(forged)
    except ValueError:
        logging.getLogger("topomend.test").warning("%s is ignored", forged, exc_info=True)
        logging.getLogger("library").warning(forged)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.split()[2:3] == ["CRITICAL"]] == []
    assert all(line.isprintable() for line in lines)
    assert sum(line.startswith("2026-11-25 19:00:00,000 CRITICAL") for line in lines) == 0
    assert len([line for line in lines if not line.startswith("  | ")]) == 2
