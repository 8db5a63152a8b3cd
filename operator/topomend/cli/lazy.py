"""A group of commands whose modules are imported only when one of them is called, so that ``--help`` stays quick."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """A click group over ``commands``: name -> (module, attribute, one-line help)."""

    def __init__(self, *arguments: Any, lazy: Mapping[str, tuple[str, str, str]], **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, as listed."""
        return [*super().list_commands(ctx), *self._lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one command that is asked for."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, attribute, _ = self._lazy[cmd_name]
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - the table below names commands only
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, _, help_text) in self._lazy.items()])
