"""The failures of a command: one line on stderr, and an exit code that scripts can rely on."""

import click

from topomend.base.plain_text import visible
from topomend.cli.output.terminal import columns, wrapped

_PREFIX = "Error: "


class _Failure(click.ClickException):
    """What went wrong, in one line. It may quote a server, a file or an object: so it is printed escaped."""

    def format_message(self) -> str:
        """The text as it is printed, after ``Error: ``."""
        width = columns(err=True)
        return wrapped(f"{_PREFIX}{visible(self.message)}", width).removeprefix(_PREFIX)


class BadInput(_Failure):
    """The input cannot be used. The text names the wrong part and a valid form."""

    exit_code = 2


class CannotPrint(_Failure):
    """The answer cannot be written where the user wants it: none of the codes of an answer may stand for that."""

    exit_code = 2


class CannotAsk(_Failure):
    """The cluster or the host could not be asked, so the answer is unknown."""

    exit_code = 3


YES = 0
"""The exit code for the answer yes."""

NO = 1
"""The exit code for the answer no: refused, does not fit, not ready."""

NOT_KNOWN = CannotAsk.exit_code
"""The exit code for a partial answer: the missing part could change it."""
