"""Shell completion of ``topomend``, by click's scripts, and of ``kubectl numa``, by kubectl's own completion.

In every shell with kubectl's completion, kubectl calls ``kubectl_complete-numa`` to complete its plugin.
"""

import sys

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from topomend.base.plain_text import visible
from topomend.cli.kubectl_numa import numa
from topomend.cli.output.console import echo, echo_data

SHELLS = ("bash", "zsh", "fish")

NO_FILES, FILES = 4, 0
"""cobra's directives: whether the shell offers files as well (cobra completions.go:ShellCompDirective)."""

_EXAMPLES = """\b
Examples:
  source <(topomend completion bash)
  topomend completion zsh > "${fpath[1]}/_topomend"
  topomend completion fish > ~/.config/fish/completions/topomend.fish
"""


@click.command(epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the shell completion script of topomend.

    kubectl numa needs no script: kubectl's own completion calls kubectl_complete-numa, a program that is installed
    with it.
    """
    # Imported here: the programs are modules of their own, and each lists this command.
    from topomend.cli.main import main  # noqa: PLC0415

    completer = get_completion_class(shell)
    assert completer is not None  # noqa: S101 - click knows all of SHELLS
    echo_data(completer(main, {}, "topomend", "_TOPOMEND_COMPLETE").source(), nl=False)


def kubectl_complete() -> None:
    """The program ``kubectl_complete-numa``: its arguments are those after ``kubectl numa``, the last one unfinished.

    Prints a completion a line with its help after a tab, then cobra's directive.
    """
    *arguments, incomplete = sys.argv[1:] or [""]
    items = ShellComplete(numa, {}, "kubectl numa", "").get_completions(arguments, incomplete)
    for item in items:
        if item.type == "plain":
            echo_data("\t".join(visible(text) for text in (item.value, item.help) if text))
    echo(f":{FILES if any(map(_is_file, items)) else NO_FILES}")


def _is_file(item: "CompletionItem[str]") -> bool:
    return item.type in ("file", "dir")
