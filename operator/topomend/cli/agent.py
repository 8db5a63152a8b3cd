"""``agent``: publish this node's NodeTopology. Owns the flags; the work is left to the room ``agent``."""

from pathlib import Path
from typing import Any

import click

from topomend.agent import AgentSettings, run
from topomend.cli.log_flags import log_flags
from topomend.runtime.log import log_to_stderr

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.option(
    "--node-name", required=True, envvar="NODE_NAME", metavar="NAME", help="The Node this is. [env: NODE_NAME]"
)
@click.option("--kubelet-config", type=_FILE, metavar="FILE", help="The kubelet's configuration file.")
@click.option("--kubelet-config-dir", type=_FOLDER, metavar="DIR", help="Its drop-in folder, as --config-dir names it.")
@click.option(
    "--kubelet-flags", type=_FILE, metavar="FILE", help="A file that holds the kubelet's flags, as MicroK8s has."
)
@click.option("--pod-resources", type=_FILE, metavar="SOCKET", help="The kubelet's pod-resources socket.")
@click.option("--kubelet-state", type=_FOLDER, metavar="DIR", help="The kubelet's root directory.")
@click.option("--kubelet-version", metavar="VERSION", help="In place of the version that the Node object tells.")
@click.option(
    "--kubelet-address",
    metavar="HOST[:PORT]",
    help="Ask the kubelet there for the configuration it runs with (configz), at the port that the Node tells.",
)
@click.option("--kubelet-ca", type=_FILE, metavar="FILE", help="Its certificate's authority, if not the cluster's.")
@click.option(
    "--kubelet-tls-verify",
    type=click.Choice(["preferred", "required"]),
    default="preferred",
    show_default=True,
    help="What to do where its certificate cannot be verified: read the answer and say so, or ask nothing.",
)
@click.option(
    "--kubelet-reader",
    default=AgentSettings.kubelet_reader,
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="The service account whose token it is shown; it needs the right nodes/configz and no other.",
)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("/"),
    show_default=True,
    metavar="DIR",
    help="The folder that holds the host's sys/ and proc/.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=60.0),
    default=0.75,
    show_default=True,
    metavar="SECONDS",
    help="The time between two looks at the kubelet.",
)
@click.option("--metrics-address", metavar="HOST:PORT", help="Serve /metrics and /healthz there; off by default.")
@click.option(
    "--node-resource-topology",
    is_flag=True,
    help="Publish the node's NodeResourceTopology too, for schedulers that read it; off by default.",
)
@click.option("--once", is_flag=True, help="Publish once and end.")
@log_flags
def agent(*, log_level: str, log_format: str, **settings: Any) -> None:
    """Publish this node's NodeTopology, and keep it true.

    The cluster is the one that KUBECONFIG names, else the one this runs in. Ends with 3 if that cannot be asked.
    """
    log_to_stderr(log_level, log_format)
    click.get_current_context().exit(run(AgentSettings(**settings)))
