"""``kubectl numa``: the plugin's entry point. Owns the list of verbs only."""

import gc

import click

from topomend import __version__
from topomend.cli.lazy import PLUGIN, LazyGroup
from topomend.cli.quick_end import quick_end

GARBAGE = 2_000_000
"""So many objects are made before Python looks for garbage: nearly all that is read of a cluster stays to the end."""

_VERBS = {
    "show": ("topomend.cli.numa.show", "show", "Draw the NUMA nodes of each node and the containers on them."),
    "explain": (
        "topomend.cli.numa.explain.explain",
        "explain",
        "Explain why a node refuses a pod, and name nodes that would admit it.",
    ),
    "aligned": ("topomend.cli.numa.aligned", "aligned", "Show which running containers use a single NUMA node."),
    "fit": ("topomend.cli.numa.fit", "fit", "Count the replicas of a pod that fit now."),
    "make-room": (
        "topomend.cli.numa.make_room",
        "make_room_",
        "Name the fewest pods that have to go before a pod fits. Ends nobody.",
    ),
    "defragment": (
        "topomend.cli.numa.defragment",
        "defragment_",
        "Name the few pods to move so that typical pods fit. Moves nobody.",
    ),
    "what-if": (
        "topomend.cli.numa.what_if.what_if",
        "what_if_",
        "Say what the kubelets would answer under another policy. Changes nothing.",
    ),
    "simulate": ("topomend.cli.simulate.simulate", "simulate", "Predict a kubelet's answer to each pod of a list."),
    "relaunches": ("topomend.cli.numa.relaunches", "relaunches", "List the relaunches of refused pods."),
    "export": ("topomend.cli.numa.export", "export", "Print the contents of a bug report, without secrets."),
    "drain": ("topomend.cli.numa.drain", "drain", "Ungate all pods and remove everything of topomend from them."),
    "selftest": (
        "topomend.cli.numa.selftest.selftest",
        "selftest",
        "Try pods on a node, and compare its kubelet with what is predicted.",
    ),
    "check": ("topomend.cli.numa.check.check", "check", "Say what is wrong with topomend, nodes and workloads."),
}

_EXTRAS = {verb: PLUGIN for verb in _VERBS if verb != "simulate"}
"""Which of them ask a cluster."""


@click.group(
    "kubectl numa",
    cls=LazyGroup,
    lazy=_VERBS,
    extras=_EXTRAS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="kubectl numa")
def numa() -> None:
    """Show the NUMA nodes of a cluster, explain refused pods, and find nodes that would admit a pod."""


def main() -> None:
    """The program ``kubectl-numa``, called as ``kubectl numa``."""
    gc.set_threshold(GARBAGE)
    with quick_end():
        numa(prog_name="kubectl numa")
