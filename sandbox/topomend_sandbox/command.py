"""``topomend-sandbox``: the commands of ``topomend sandbox`` as a program of its own."""

import click

from topomend import __version__
from topomend.cli.sandbox.sandbox import sandbox


@click.group(
    help=sandbox.help,
    commands=sandbox.commands,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="topomend-sandbox")
def main() -> None:
    """The group ``sandbox``, which is below another one elsewhere, as the first one."""
