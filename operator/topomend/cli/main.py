"""``topomend``: the program's entry point. Owns the list of verbs only."""

import click

from topomend import __version__
from topomend.cli.lazy import OPERATOR, SANDBOX, LazyGroup

_COMMANDS = {
    "agent": ("topomend.cli.agent", "agent", "Publish this node's NodeTopology and keep it up to date."),
    "operator": (
        "topomend.cli.operator",
        "operator",
        "Explain refused pods and relaunch them on nodes that admit them.",
    ),
    "discover": ("topomend.cli.discover", "discover", "Print this host, or a recorded one, as a NodeTopology."),
    "capture": ("topomend.cli.capture", "capture", "Pack this machine's topology for a bug report."),
    "machines": (
        "topomend.cli.machines",
        "machines",
        "List the machines that simulate, lint and sandbox know by name.",
    ),
    "lint": ("topomend.cli.lint", "lint", "Say whether a kubelet starts with a configuration, and name traps."),
    "simulate": ("topomend.cli.simulate.simulate", "simulate", "Predict a kubelet's answer to each pod of a list."),
    "what-if": (
        "topomend.cli.numa.what_if.offline",
        "what_if_offline",
        "Say what the kubelets of a recorded cluster would answer under another policy.",
    ),
    "sandbox": ("topomend.cli.sandbox.sandbox", "sandbox", "Run a real cluster of made-up NUMA machines."),
    "completion": ("topomend.cli.completion", "completion", "Print the shell completion script of topomend."),
    "demo": ("topomend.cli.sandbox.demo", "demo", "Show in a sandbox how a refused pod is relaunched."),
}

_EXTRAS = {"agent": OPERATOR, "operator": OPERATOR, "discover": OPERATOR, "sandbox": SANDBOX, "demo": SANDBOX}
"""All other commands run with the package alone."""


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    extras=_EXTRAS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="topomend")
def main() -> None:
    """Explain pods that a kubelet refused for their NUMA topology, and relaunch them on a node that admits them."""
