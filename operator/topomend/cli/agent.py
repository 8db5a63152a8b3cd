"""``agent``: publish this node's NodeTopology. Owns the flags; the work is left to the room ``agent``."""

from pathlib import Path
from typing import Any

import click

from topomend.agent import AgentSettings, run
from topomend.cli.flags.log_flags import log_flags
from topomend.runtime.log import log_to_stderr

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


_EXAMPLES = """\b
Examples:
  topomend agent --node-name gpu-01 --kubelet-address 127.0.0.1 \\
      --pod-resources /var/lib/kubelet/pod-resources/kubelet.sock
  topomend agent --node-name gpu-01 --kubelet-config /var/lib/kubelet/config.yaml --once
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--node-name",
    required=True,
    envvar="NODE_NAME",
    metavar="NAME",
    help="The name of this node's Node object. [env: NODE_NAME]",
)
@click.option("--kubelet-config", type=_FILE, metavar="FILE", help="The kubelet's configuration file.")
@click.option("--kubelet-config-dir", type=_FOLDER, metavar="DIR", help="The kubelet's --config-dir.")
@click.option("--kubelet-flags", type=_FILE, metavar="FILE", help="A file with the kubelet's flags, as on MicroK8s.")
@click.option("--pod-resources", type=_FILE, metavar="SOCKET", help="The kubelet's pod-resources socket.")
@click.option("--kubelet-state", type=_FOLDER, metavar="DIR", help="The kubelet's root directory.")
@click.option(
    "--kubelet-root-dir",
    metavar="DIR",
    help="How the host names that directory, where the agent sees it elsewhere. Default: --kubelet-state.",
)
@click.option("--kubelet-version", metavar="VERSION", help="Overrides the kubelet version in the Node.")
@click.option(
    "--kubelet-address",
    metavar="HOST[:PORT]",
    help="Ask the kubelet at this address for its configuration (configz). Default port: the one in the Node's status.",
)
@click.option(
    "--kubelet-ca", type=_FILE, metavar="FILE", help="The CA of the kubelet's certificate. Default: the cluster's."
)
@click.option(
    "--kubelet-tls-verify",
    type=click.Choice(["preferred", "required"]),
    default="preferred",
    show_default=True,
    help="If the kubelet's certificate cannot be verified: preferred asks and reports it, required does not ask.",
)
@click.option(
    "--kubelet-reader",
    default=AgentSettings.kubelet_reader,
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="The service account whose token the agent sends to the kubelet. It needs the right nodes/configz only.",
)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("/"),
    show_default=True,
    metavar="DIR",
    help="The folder that contains the host's sys/ and proc/.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=60.0),
    default=0.75,
    show_default=True,
    metavar="SECONDS",
    help="The time between two polls of the kubelet.",
)
@click.option(
    "--health-address",
    metavar="HOST:PORT",
    help="Serve /healthz and /readyz for probes at this address; in a pod, the pod's IP. Off by default.",
)
@click.option(
    "--metrics-address",
    metavar="HOST:PORT",
    help="Serve /metrics, /healthz and /readyz at this address. Off by default.",
)
@click.option(
    "--node-resource-topology",
    is_flag=True,
    help="Also publish the node's NodeResourceTopology, for schedulers that read it. Off by default.",
)
@click.option(
    "--node-features",
    metavar="NAMESPACE",
    help="Also publish the node's NodeFeature in this namespace, for Node Feature Discovery. Off by default.",
)
@click.option("--once", is_flag=True, help="Publish once and exit.")
@log_flags
def agent(*, log_level: str, log_format: str, **settings: Any) -> None:
    """Publish this node's NodeTopology and keep it up to date.

    Connects to the cluster of KUBECONFIG, or to the one that it runs in. Exits with 3 if that fails.
    """
    log_to_stderr(log_level, log_format)
    click.get_current_context().exit(run(AgentSettings(**settings)))
