import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from topomend.runtime.log import log_to_stderr


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
