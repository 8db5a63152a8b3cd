"""``topomend``: the program's entry point. Owns the list of verbs only."""

import click

from topomend import __version__
from topomend.cli.lazy import Extra, LazyGroup

_COMMANDS = {
    "agent": ("topomend.cli.agent", "agent", "Publish this node's NodeTopology, and keep it true."),
    "operator": ("topomend.cli.operator", "operator", "Explain refused pods and relaunch them where they fit."),
    "discover": ("topomend.cli.discover", "discover", "Print this host, or a recorded one, as a NodeTopology."),
    "capture": ("topomend.cli.capture", "capture", "Pack what discover reads here, for a bug report."),
    "simulate": ("topomend.cli.simulate", "simulate", "Admit pods one after another as a node's kubelet would."),
    "sandbox": ("topomend.cli.sandbox", "sandbox", "Run a real cluster on made-up NUMA machines."),
    "demo": ("topomend.cli.demo", "demo", "Watch a refused pod get relaunched, on a sandbox."),
}

_SANDBOX = Extra("sandbox", ("grpc", "topomend.sandbox"))


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    extras={"sandbox": _SANDBOX, "demo": _SANDBOX},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="topomend")
def main() -> None:
    """Pods that a kubelet refused for their NUMA topology: explained, and running on a node that admits them."""
