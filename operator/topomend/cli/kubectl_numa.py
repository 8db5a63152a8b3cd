"""``kubectl numa``: the plugin's entry point. Owns the list of verbs only."""

import click

from topomend import __version__
from topomend.cli.lazy import LazyGroup

_VERBS = {
    "show": ("topomend.cli.numa.show", "show", "Draw the nodes, and who holds what on them."),
    "explain": ("topomend.cli.numa.explain", "explain", "Say why a node refuses a pod, and where it would fit."),
    "fit": ("topomend.cli.numa.fit", "fit", "Say how many replicas of a pod fit now."),
    "simulate": ("topomend.cli.simulate", "simulate", "Admit pods one after another as a node's kubelet would."),
    "relaunches": ("topomend.cli.numa.relaunches", "relaunches", "List what was done about refused pods."),
    "export": ("topomend.cli.numa.export", "export", "Print what a bug report needs, without secrets."),
    "drain": ("topomend.cli.numa.drain", "drain", "Leave nothing of topomend on any pod, before it is deleted."),
    "check": ("topomend.cli.numa.check", "check", "Say what is not as it should be."),
}


@click.group("kubectl numa", cls=LazyGroup, lazy=_VERBS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kubectl numa")
def numa() -> None:
    """NUMA nodes of a cluster: who holds what, why a pod was refused, and where it would fit."""


def main() -> None:
    """The program ``kubectl-numa``, called as ``kubectl numa``."""
    numa(prog_name="kubectl numa")
