"""``demo``: show a refusal and its recovery on a sandbox, step by step.

Kubelets, agents and operator are real, each in its own process. Every step waits until the API confirms it, and prints
only what it read there. Owns the story; the sandbox and the waiting are left to ``demo_environment``. Exits with 1 if
the recovery did not happen.
"""

from typing import Any

import click

from topomend.cli.output.console import echo_styled
from topomend.cli.output.failures import NO, CannotAsk
from topomend.cli.sandbox.demo_environment import DemoCluster, StepFailed
from topomend.kube.errors import APIError, NotFound
from topomend.kube.resources import EVENTS, NODE_TOPOLOGIES, PODS, RELAUNCHES, Resource
from topomend.sandbox import NodeSpec, SandboxError

DEPLOYMENTS = Resource("apps/v1", "deployments")
NAMESPACE = "default"

NODES = (
    ("worker-1", "sockets:1 numa:2 cores:8 memory:32Gi", "single-numa-node", "container"),
    ("worker-2", "sockets:2 numa:1 cores:8 threads:2 memory:8Gi device:vendor.com/gpu@0=2,1=2", "restricted", "pod"),
    ("worker-3", "sockets:1 numa:1 cores:4 memory:16Gi", "best-effort", "container"),
)
"""worker-2 has the least memory, so that kube-scheduler prefers worker-1: by their CPUs alone the two score alike
(NodeResourcesFit and NodeResourcesBalancedAllocation), and the operator's own pod tips the scale."""


_EXAMPLES = """\b
Examples:
  topomend demo
"""


@click.command(epilog=_EXAMPLES)
@click.pass_context
def demo(context: click.Context, /) -> None:
    """Show in a sandbox of three NUMA machines how a refused pod is relaunched.

    Takes about a minute. The first run also builds the sandbox, which takes about five minutes.
    """
    nodes = [
        NodeSpec.of_shape(name, shape, topology_manager_policy=policy, topology_manager_scope=scope)
        for name, shape, policy, scope in NODES
    ]
    try:
        with DemoCluster(nodes) as cluster:
            _run_story(cluster)
    except StepFailed as failure:
        echo_styled(("The demo failed:", {"fg": "red", "bold": True}), (f" {failure}", {}))
        context.exit(NO)
    except (SandboxError, APIError) as error:
        raise CannotAsk(str(error)) from error


def _run_story(cluster: DemoCluster) -> None:
    _install(cluster)
    _fragment(cluster)
    refused_uid = _refusal(cluster)
    _relaunch(cluster, refused_uid)
    _deployment(cluster)
    cluster.echo_heading("At the end")
    cluster.run(["kubectl", "get", "ntopo,relaunches,pods"])


def _install(cluster: DemoCluster) -> None:
    cluster.echo_heading("topomend: an agent for each node, and one operator")
    cluster.echo(
        "The sandbox's containers do nothing, so the agents and the operator run as processes on this machine,"
    )
    cluster.echo("each with the account and the token of its pod.")
    cluster.sandbox.install_topomend(cluster.echo)
    cluster.run(["kubectl", "get", "ntopo"])


def _fragment(cluster: DemoCluster) -> None:
    cluster.echo_heading("Pods start and leave the free CPUs scattered over NUMA nodes")
    for name, node, cpus in (("web-1", 0, 4), ("web-2", 0, 5), ("batch-1", 1, 16), ("batch-2", 1, 10)):
        cluster.client.create(PODS, _pod(name, cpus, node=NODES[node][0]), NAMESPACE)
        cluster.wait(f"pod {name} runs", lambda name=name: _running(cluster, name))  # type: ignore[misc]
    for name, free in (("worker-1", "3,3"), ("worker-2", "5,0")):
        cluster.wait(f"{name} publishes {free} free", lambda name=name, free=free: _cpus_free(cluster, name) == free)  # type: ignore[misc]
    cluster.run(["kubectl", "get", "ntopo"])
    cluster.run(["kubectl", "numa", "show", "worker-1"])
    cluster.echo("worker-1 has 6 CPUs free, 3 on each NUMA node; worker-2 has 5, all on one.")


def _refusal(cluster: DemoCluster) -> str:
    cluster.echo_heading("A pod asks for 4 CPUs; the scheduler counts totals and takes worker-1")
    created = cluster.client.create(PODS, _pod("train", 4), NAMESPACE)
    uid = str(created["metadata"]["uid"])
    explained = cluster.wait("the refusal is explained", lambda: _explained(cluster, uid))
    refused = cluster.wait("the kubelet's own event", lambda: _event(cluster, "TopologyAffinityError", "train"))
    cluster.echo(f"the kubelet says:   {refused}")
    cluster.echo(f"topomend explains:  {explained}")
    return uid


def _explained(cluster: DemoCluster, uid: str) -> str:
    """The explanation of the refusal of train. Raises StepFailed where a kubelet has admitted it."""
    explained = _event(cluster, "TopologyRefusalExplained", "train")
    admitted = _running(cluster, "train")
    if not explained and admitted and admitted["metadata"]["uid"] == uid:
        raise StepFailed(f"nothing to show: the scheduler took {admitted['spec']['nodeName']}, which admits the pod")
    return explained


def _relaunch(cluster: DemoCluster, refused_uid: str) -> None:
    cluster.echo_heading("The relaunch")
    running = cluster.wait("the replacement runs", lambda: _running(cluster, "train", other_than=refused_uid))
    relaunch = cluster.wait("the record is complete", lambda: _launched(cluster, "train"))
    if running["spec"]["nodeName"] not in relaunch["status"]["candidates"]:
        raise StepFailed(f"train runs on {running['spec']['nodeName']}, which is not a candidate of its record")
    cluster.run(["kubectl", "get", "relaunches"])
    cluster.run(["kubectl", "get", "pod", "train", "-o", "wide"])
    cpus = cluster.wait("its CPUs are published", lambda: _cpus_of(cluster, running["spec"]["nodeName"], "train"))
    cluster.echo(f"train runs on {running['spec']['nodeName']} with CPUs {cpus}")


def _deployment(cluster: DemoCluster) -> None:
    cluster.echo_heading("A Deployment: without topomend, its ReplicaSet creates ten failed pods a second")
    cluster.client.create(DEPLOYMENTS, _deployment_of("serve", replicas=1, cpus=4), NAMESPACE)
    explained = cluster.wait("its refusal is explained", lambda: _event(cluster, "TopologyRefusalExplained", "serve-"))
    cluster.echo(f"topomend explains:  {explained}")
    waiting = cluster.wait("the next pod waits", lambda: _gated(cluster, "serve"))
    cluster.wait("the failed pods are deleted", lambda: not _failed(cluster, "serve"))
    cluster.echo(f"{_refusals(cluster, 'serve-')} refused and deleted; {waiting['metadata']['name']} is gated")
    cluster.run(["kubectl", "get", "pods", "-l", "app=serve"])
    cluster.echo("web-1 ends: worker-1 has 7 CPUs free on NUMA 0")
    _end(cluster, "web-1")
    running = cluster.wait("the replica runs", lambda: _replica(cluster, "serve"))
    if running["metadata"]["uid"] != waiting["metadata"]["uid"]:
        raise StepFailed(f"{running['metadata']['name']} runs instead of {waiting['metadata']['name']}")
    name, node = running["metadata"]["name"], running["spec"]["nodeName"]
    cpus = cluster.wait("its CPUs are published", lambda: _cpus_of(cluster, node, name))
    cluster.echo(f"{name} is ungated and runs on {node} with CPUs {cpus}")


def _pod(name: str, cpus: int, node: str = "") -> dict[str, Any]:
    selector = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**_template(cpus), **selector},
    }


def _template(cpus: int) -> dict[str, Any]:
    resources = {"limits": {"cpu": str(cpus), "memory": "1Gi"}}
    container = {"name": "main", "image": "registry.invalid/demo", "resources": resources}
    return {"terminationGracePeriodSeconds": 0, "containers": [container]}


def _deployment_of(name: str, replicas: int, cpus: int) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": _template(cpus)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def _cpus_free(cluster: DemoCluster, name: str) -> str:
    return str(_topology(cluster, name).get("summary", {}).get("cpusFree", ""))


def _cpus_of(cluster: DemoCluster, node: str, pod: str) -> str:
    allocations = [allocation for allocation in _topology(cluster, node).get("pods", []) if allocation["name"] == pod]
    return "".join(container.get("cpus", "") for allocation in allocations for container in allocation["containers"])


def _topology(cluster: DemoCluster, name: str) -> dict[str, Any]:
    try:
        status = cluster.client.get(NODE_TOPOLOGIES, name).get("status", {})
    except NotFound:
        return {}
    return dict(status)


def _running(cluster: DemoCluster, name: str, other_than: str = "") -> dict[str, Any] | None:
    try:
        pod = cluster.client.get(PODS, name, NAMESPACE)
    except NotFound:
        return None
    return pod if pod["status"].get("phase") == "Running" and pod["metadata"]["uid"] != other_than else None


def _replica(cluster: DemoCluster, app: str) -> dict[str, Any] | None:
    pods = cluster.client.list(PODS, namespace=NAMESPACE, labels=f"app={app}").items
    return next((pod for pod in pods if pod["status"].get("phase") == "Running"), None)


def _failed(cluster: DemoCluster, app: str) -> list[dict[str, Any]]:
    pods = cluster.client.list(PODS, namespace=NAMESPACE, labels=f"app={app}").items
    return [pod for pod in pods if pod["status"].get("phase") == "Failed"]


def _gated(cluster: DemoCluster, app: str) -> dict[str, Any] | None:
    pods = cluster.client.list(PODS, namespace=NAMESPACE, labels=f"app={app}").items
    return next((pod for pod in pods if pod["spec"].get("schedulingGates")), None)


def _refusals(cluster: DemoCluster, pods: str) -> int:
    """The number of pods that a kubelet refused, from the kubelets' own events."""
    events = cluster.client.list(EVENTS, namespace=NAMESPACE, fields="reason=TopologyAffinityError").items
    return len({event["regarding"]["uid"] for event in events if event["regarding"]["name"].startswith(pods)})


def _end(cluster: DemoCluster, name: str) -> None:
    cluster.client.delete(PODS, name, NAMESPACE, uid=cluster.client.get(PODS, name, NAMESPACE)["metadata"]["uid"])


def _launched(cluster: DemoCluster, pod: str) -> dict[str, Any] | None:
    relaunches = cluster.client.list(RELAUNCHES, namespace=NAMESPACE).items
    of_pod = [relaunch for relaunch in relaunches if relaunch["spec"]["pod"]["name"] == pod]
    return next((relaunch for relaunch in of_pod if relaunch.get("status", {}).get("step") == "Launched"), None)


def _event(cluster: DemoCluster, reason: str, pod: str) -> str:
    events = cluster.client.list(EVENTS, namespace=NAMESPACE, fields=f"reason={reason}").items
    return next((str(event.get("note", "")) for event in events if event["regarding"]["name"].startswith(pod)), "")
