"""``--log-level`` and ``--log-format``, the same for agent and operator."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from topomend.runtime.log import FORMATS, LEVELS

_Command = TypeVar("_Command", bound=Callable[..., Any])


def log_flags(command: _Command) -> _Command:
    """Give a command both flags."""
    for name, choices, default, text in (
        ("format", FORMATS, "text", "The format of log lines."),
        ("level", LEVELS, "info", "The lowest level that is logged."),
    ):
        command = click.option(
            f"--log-{name}",
            type=click.Choice(choices),
            default=default,
            show_default=True,
            envvar=f"TOPOMEND_LOG_{name.upper()}",
            show_envvar=True,
            help=text,
        )(command)
    return command
