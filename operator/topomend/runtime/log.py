"""The log of a long-running program, on its standard error: a line a record, as text or as JSON."""

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable

from topomend.base.bounded_dict import BoundedDict
from topomend.base.plain_text import plain, visible

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

MAX_MESSAGE = 4096
"""Characters of a line: what strangers write into a message is not to fill the log."""


def log_to_stderr(level: str, log_format: str, foreign: Iterable[str] = ()) -> None:
    """Log from ``level`` on. Of the ``foreign`` loggers, those of libraries, only warnings and errors are logged."""
    formatter = _JSONFormatter() if log_format == "json" else _OneLine("%(asctime)s %(levelname)s %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    if level != "debug":
        handler.addFilter(Repeats())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in foreign:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""For how long the same warning is not logged again: twice as long each time."""

MAX_WARNINGS = 1_000

_NUMBERS = re.compile(r"[0-9]+")
_OURS = "topomend."


class Repeats(logging.Filter):
    """Passes a warning that repeats ever more seldom.

    What cannot be reached is tried over and over by several threads, each of which says so. Libraries count their
    attempts, so their warnings are the same if they differ in numbers alone; ours may be about pods with numbers.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._quiet: BoundedDict[tuple[str, str], tuple[float, float]] = BoundedDict(MAX_WARNINGS)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be logged."""
        if record.levelno < logging.WARNING:
            return True
        now, message = self._clock(), record.getMessage()
        key = record.name, message if record.name.startswith(_OURS) else _NUMBERS.sub("#", message)
        until, pause = self._quiet.get(key, (0.0, 0.0))
        if now < until:
            return False
        is_over = now > until + LONGEST_PAUSE
        pause = FIRST_PAUSE if not pause or is_over else min(2 * pause, LONGEST_PAUSE)
        self._quiet[key] = now + pause, pause
        return True


def _message(record: logging.LogRecord) -> str:
    """The message in one line, an exception's words at its end instead of a traceback."""
    message = record.getMessage()
    if record.exc_info and record.exc_info[1]:
        message += f" ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
    return plain(message, MAX_MESSAGE)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """The lines of the record's traceback, at level debug alone. Each is marked: none can pass for a record."""
    if not record.exc_info or logging.getLogger().level > logging.DEBUG:
        return []
    return [f"  | {visible(line)}" for line in formatter.formatException(record.exc_info).split("\n")]


class _OneLine(logging.Formatter):
    """Tracebacks are for level debug."""

    def format(self, record: logging.LogRecord) -> str:
        one = logging.LogRecord(record.name, record.levelno, "", 0, _message(record), None, None)
        one.created, one.msecs = record.created, record.msecs
        return "\n".join([super().format(one), *_traceback(self, record)])


class _JSONFormatter(logging.Formatter):
    """An object with time, level and message; at level debug with the traceback too."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"time": self.formatTime(record), "level": record.levelname, "message": _message(record)}
        if lines := _traceback(self, record):
            fields["traceback"] = "\n".join(lines)
        return json.dumps(fields, ensure_ascii=False)
