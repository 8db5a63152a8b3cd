"""Make click options from ``Settings``: one for each field, with an environment variable ``TOPOMEND_<FLAG>``."""

from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any, TypeVar

import click

from topomend.reconcile.settings import FLAG, Flag, Settings

_Command = TypeVar("_Command", bound=Callable[..., Any])


def setting_flags(command: _Command) -> _Command:
    """Give a command the operator's flags; their values arrive as arguments named after the fields of ``Settings``."""
    for setting in reversed(fields(Settings)):
        command = _option(setting)(command)
    return command


def _option(setting: Field[Any]) -> Callable[[_Command], _Command]:
    flag: Flag = setting.metadata[FLAG]
    name = setting.name.replace("_", "-")
    is_switch = isinstance(setting.default, bool)
    return click.option(
        f"--{name}/--no-{name}" if is_switch else f"--{name}",
        setting.name,
        type=None if is_switch else _type_of(setting.default, flag),
        default=setting.default,
        metavar=flag.metavar,
        envvar=[f"TOPOMEND_{name.upper().replace('-', '_')}", *flag.environment],
        show_envvar=True,
        help=flag.help,
    )


def _type_of(default: object, flag: Flag) -> "click.ParamType[Any]":
    if isinstance(default, int):
        return click.IntRange(_whole(flag.minimum), _whole(flag.maximum), min_open=flag.min_open)
    if isinstance(default, float):
        return click.FloatRange(flag.minimum, flag.maximum, min_open=flag.min_open)
    return click.Choice(flag.choices) if flag.choices else click.STRING


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)
