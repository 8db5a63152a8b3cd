"""The failures of a command: one line on stderr, and an exit code that scripts can rely on."""

import click


class BadInput(click.ClickException):
    """The input cannot be used. The text names the wrong part and a valid form."""

    exit_code = 2


class CannotAsk(click.ClickException):
    """The cluster or the host could not be asked, so the answer is unknown."""

    exit_code = 3


YES = 0
"""The exit code for the answer yes."""

NO = 1
"""The exit code for the answer no: refused, does not fit, not ready."""

NOT_KNOWN = CannotAsk.exit_code
"""The exit code for a partial answer: the missing part could change it."""
