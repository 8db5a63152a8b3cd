"""``kubectl numa what-if``: what becomes of the cluster's pods under another policy or scope, or with more nodes."""

import click

from topomend.cli.numa.cluster.arguments.pod_argument import pods_of_file
from topomend.cli.numa.cluster.cluster import Cluster, cluster_options
from topomend.cli.numa.cluster.pods.arrivals import arrivals_of, arrivals_of_file
from topomend.cli.numa.cluster.pods.stays import stays_of
from topomend.cli.numa.what_if.comparison import Question, question_options

_EXAMPLES = """\b
Examples:
  kubectl numa what-if --policy restricted                  # beside the policy as it is
  kubectl numa what-if --policy restricted,best-effort --scope container,pod
  kubectl numa what-if --policy single-numa-node -o json    # with every pod that would be refused
  kubectl numa what-if --add-nodes gpu=3                    # would these be enough for what waits?
  kubectl numa what-if --policy restricted --since 24h      # the pods of a day, also those that have ended
  kubectl numa what-if --policy restricted -f pods.yaml     # other pods than those of the cluster
"""


@click.command("what-if", epilog=_EXAMPLES)
@question_options
@cluster_options
def what_if_(*, cluster: Cluster, question: Question) -> None:
    """Say what the kubelets would answer to the cluster's pods under another policy, or if there were more nodes.

    All nodes are emptied in thought. Each pod that runs is admitted again by its own node, by replay and by the node's
    totals, in the order in which the pods started. Then the refused pods, and after them those that wait, by priority
    and age, go to the nodes that topomend would choose. Each line is such a simulation; the first is of settings and
    nodes as they are. Of a file, pods with a nodeName go to that node, and the others come in its order; a workload has
    its replicas, a DaemonSet one.

    \b
    ADMITTED   by the pod's own node, or without one by the best
    REFUSED    by the pod's own node, for REASONS; ELSEWHERE: so many of these another node admits
    WAITING    without a node, and none admits the pod
    ALIGNED    of the pods that run with exclusive CPUs or devices: each container on one NUMA node
    TOGETHER   of the same: all containers on one and the same NUMA node

    With --since each pod comes when it came, and runs for as long as it ran, as far as the API server still has it. One
    that its node refuses or that has none goes to another at once, or when a pod ends; WAITING: it never found any. A
    pod that its kubelet refused in truth is left out, for the one that came after it counts.

    Compare lines with the first one: it may refuse pods that run, where a pod that has ended since had left them other
    CPUs. Without --since nothing is known of pods that have ended or are to come; nor, in any case, of affinity between
    pods, spreading, host ports, volumes and preferences of the scheduler. A switch without a drain is not simulated.
    Pods that are being deleted do not count. Nothing is changed in the cluster.
    """
    source = question.filename
    asked = pods_of_file(source, cluster) if source else ()
    snapshot = cluster.snapshot()
    if question.since is not None:
        arrivals = stays_of(cluster, question.since)
    else:
        arrivals = arrivals_of_file(asked, source) if source else arrivals_of(cluster)
    question.answer(snapshot, arrivals)
