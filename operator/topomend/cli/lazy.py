"""A group of commands that imports a command's module only when it is called, so that ``--help`` stays quick.

Some commands need an extra of the package: the group names the extra if it is not installed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from topomend.base.plain_text import visible
from topomend.cli.input.did_you_mean import did_you_mean
from topomend.cli.output.failures import BadInput

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Extra(NamedTuple):
    """An extra of the package: its name in pyproject.toml, and the modules of its packages.

    ``in_image`` is whether the image of agent and operator has it.
    """

    name: str
    modules: tuple[str, ...]
    in_image: bool = True

    def missing(self) -> str:
        """The first of its modules that is not installed; empty if all are. Imports none of them."""
        return next((module for module in self.modules if not _is_installed(module)), "")


OPERATOR = Extra(
    "operator",
    (
        "aiohttp",
        "cryptography",
        "google.protobuf",
        "h2",
        "kopf",
        "kubernetes",
        "msgspec",
        "prometheus_client",
        "psutil",
        "pyudev",
        "urllib3",
        "xxhash",
    ),
)
PLUGIN = Extra("plugin", ("cryptography", "msgspec"))
SANDBOX = Extra("sandbox", ("grpc", *OPERATOR.modules, "topomend.sandbox"), in_image=False)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


@contextmanager
def _visible_errors() -> Iterator[None]:
    """Escape what click quotes of the command line. It breaks lines, and indents, by itself."""
    try:
        yield
    except click.UsageError as error:
        message = error.format_message()
        shown = "\n".join("\t".join(map(visible, line.split("\t"))) for line in message.split("\n"))
        if shown == message:
            raise
        raise click.UsageError(shown, error.ctx) from error


class LazyGroup(click.Group):
    """A click group of ``lazy`` (name -> module, attribute, one-line help); ``extras`` maps names to their extras."""

    def __init__(
        self,
        *arguments: Any,
        lazy: Mapping[str, tuple[str, str, str]],
        extras: Mapping[str, Extra] | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        self._lazy = lazy
        self._extras = extras or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands' names in the order of ``lazy``."""
        return [*super().list_commands(ctx), *self._lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command. Raises BadInput if its extra is not installed."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, attribute, _ = self._lazy[cmd_name]
        extra = self._extras.get(cmd_name)
        # Check before the command starts anything: processes that it starts import some of these modules.
        if extra and (missing := extra.missing()):
            nowhere = "" if extra.in_image else " and is in no image of topomend"
            raise BadInput(
                f"{cmd_name} needs {missing}, which is not installed here{nowhere}. "
                f"Install it with: pip install 'topomend[{extra.name}]'"
            )
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - the table names commands only
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that ``args`` begin with. Raises BadInput that suggests the nearest if there is none."""
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-") and not ctx.resilient_parsing:
            near = did_you_mean(name, self.list_commands(ctx))
            raise BadInput(f"no command {name}{near or f'; {ctx.command_path} -h lists them'}")
        return super().resolve_command(ctx, args)

    def make_context(self, *arguments: Any, **keywords: Any) -> click.Context:
        """Read the command line."""
        with _visible_errors():
            return super().make_context(*arguments, **keywords)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, whose own command line is read then."""
        with _visible_errors():
            return super().invoke(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        """The options and commands that begin with ``incomplete``. Imports no command."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415

        items = click.Command.shell_complete(self, ctx, incomplete)
        return items + [
            CompletionItem(name, help=help_text)
            for name, (_, _, help_text) in self._lazy.items()
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, _, help_text) in self._lazy.items()])
