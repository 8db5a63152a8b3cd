"""The log of a long-running program, on its standard error: a line a record, as text or as JSON."""

import json
import logging
import sys
from collections.abc import Iterable

from topomend.model.plain_text import plain

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

MAX_MESSAGE = 4096
"""Characters of a line: what strangers write into a message is not to fill the log."""


def log_to_stderr(level: str, log_format: str, foreign: Iterable[str] = ()) -> None:
    """Log from ``level`` on. Of the ``foreign`` loggers, those of libraries, only warnings and errors are logged."""
    formatter = _JSONFormatter() if log_format == "json" else _OneLine("%(asctime)s %(levelname)s %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in foreign:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


def _message(record: logging.LogRecord) -> str:
    """The message in one line, an exception's words at its end instead of a traceback."""
    message = record.getMessage()
    if record.exc_info and record.exc_info[1]:
        message += f" ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
    return plain(message, MAX_MESSAGE)


class _OneLine(logging.Formatter):
    """Tracebacks are for level debug."""

    def format(self, record: logging.LogRecord) -> str:
        if logging.getLogger().level <= logging.DEBUG:
            return super().format(record)
        plain = logging.LogRecord(record.name, record.levelno, "", 0, _message(record), None, None)
        plain.created, plain.msecs = record.created, record.msecs
        return super().format(plain)


class _JSONFormatter(logging.Formatter):
    """An object with time, level and message; at level debug with the traceback too."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"time": self.formatTime(record), "level": record.levelname, "message": _message(record)}
        if record.exc_info and logging.getLogger().level <= logging.DEBUG:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)
