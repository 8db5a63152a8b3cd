"""How a command says that it failed: one line on stderr and an exit code that scripts can rely on."""

import click


class BadInput(click.ClickException):
    """What was given cannot be used: which part, and what would be right."""

    exit_code = 2


class CannotAsk(click.ClickException):
    """The cluster or the host could not be asked, so the answer is not known."""

    exit_code = 3


YES = 0
"""Exit code of an answered question whose answer is yes."""

NO = 1
"""Exit code of an answered question whose answer is no: refused, does not fit, not ready."""

NOT_KNOWN = CannotAsk.exit_code
"""Exit code of a question that was answered in part: what is missing could change the answer."""
