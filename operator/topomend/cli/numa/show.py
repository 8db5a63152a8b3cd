"""``kubectl numa show``: the NUMA nodes of each node, and the containers with exclusive resources on them."""

import click

from topomend.cli.numa.cluster.cluster import Cluster, cluster_options
from topomend.cli.numa.cluster.completion import complete_published_nodes
from topomend.cli.output.failures import BadInput
from topomend.cli.output.formats import DOCUMENTS, NAME, WIDE, check_watch, output_option, watch_option
from topomend.picture.form import PICTURES

_EXAMPLES = """\b
Examples:
  kubectl numa show                    # every node
  kubectl numa show gpu-01 gpu-02
  kubectl numa show gpu-01 -o wide     # with a line for each container
  kubectl numa show gpu-01 --watch
  kubectl numa show --summary          # pools, and how fragmented they are
  kubectl numa show --summary -f pods.yaml
  kubectl numa show gpu-01 -o html > gpu-01.html
  kubectl numa show --summary -o svg > pools.svg
  kubectl numa show -o json | jq '.items[].status.summary'
"""


@click.command(epilog=_EXAMPLES)
@click.argument("nodes", nargs=-1, metavar="[NODE]...", shell_complete=complete_published_nodes)
@output_option(pictures=True)
@watch_option
@click.option(
    "--summary", is_flag=True, help="Show pools of nodes instead, and which share of what is free is unusable."
)
@click.option(
    "-f",
    "--filename",
    metavar="FILE",
    default="",
    type=click.Path(),
    help="With --summary: the typical pods, Pods and workloads; - is stdin. Default: those of the cluster.",
)
@cluster_options
def show(  # noqa: PLR0913  one for each flag
    *, cluster: Cluster, nodes: tuple[str, ...], output: str, watch: bool, summary: bool, filename: str
) -> None:
    """Draw the nodes: one character a core, one letter a container.

    -o json and yaml print the NodeTopology objects. -o svg and html draw packages, caches, cores, memory and devices as
    lstopo does, with who holds them. Exits with 3 if no node publishes one.

    With --summary, each pool of nodes: what is free, and the share of it that typical pods cannot use because the
    kubelets of the nodes where it is free would refuse them, by replay; the nodes where most of that is, and the pods
    without which there would be less. Typical pods are those that hold something there, that wait, or have ended.
    """
    check_watch(output, watch=watch)
    if summary:
        if watch or output == NAME:
            raise BadInput(
                f"--summary with {'--watch' if watch else '-o name'}: it is printed once, for no next command"
            )
        # What it needs is loaded where it is asked for.
        from topomend.cli.numa.cluster.arguments.pod_argument import pods_of_file  # noqa: PLC0415
        from topomend.cli.numa.shown import check  # noqa: PLC0415
        from topomend.cli.numa.summary import show_summary  # noqa: PLC0415

        show_summary(cluster, nodes, pods_of_file(filename, cluster) if filename else (), output, check)
        return
    if filename:
        raise BadInput("-f names the typical pods of --summary: give --summary too")
    # What draws is loaded where something is drawn.
    from topomend.cli.numa.shown import show_drawings, show_objects, show_picture  # noqa: PLC0415

    if output in DOCUMENTS or output == NAME:
        show_objects(cluster, nodes, output, watch=watch)
    elif output in PICTURES:
        show_picture(cluster, nodes, output)
    else:
        show_drawings(cluster, nodes, wide=output == WIDE, watch=watch)
