"""``demo``: show a refusal and its recovery on a sandbox, step by step.

Kubelets, agents and operator are real, each in its own process. Every step waits until the API confirms it, and prints
only what it read there. Owns the story; the sandbox and the waiting are left to ``demo_environment``. Exits with 1 if
the recovery did not happen.
"""

from typing import Any

import click

from topomend.cli.demo_environment import DidNotHappen, Stage
from topomend.cli.failures import NO, CannotAsk
from topomend.kube.client import EVENTS, NODE_TOPOLOGIES, PODS, RELAUNCHES, Resource
from topomend.kube.errors import APIError, NotFound
from topomend.sandbox import NodeSpec, SandboxError

DEPLOYMENTS = Resource("apps/v1", "deployments")
NAMESPACE = "default"

NODES = (
    ("worker-1", "sockets:1 numa:2 cores:8 memory:32Gi", "single-numa-node", "container"),
    ("worker-2", "sockets:2 numa:1 cores:8 threads:2 memory:32Gi device:vendor.com/gpu@0=2,1=2", "restricted", "pod"),
    ("worker-3", "sockets:1 numa:1 cores:4 memory:16Gi", "best-effort", "container"),
)


@click.command()
@click.pass_context
def demo(context: click.Context, /) -> None:
    """Watch a refused pod get relaunched, on a sandbox of three NUMA machines.

    Takes about a minute; the first time some more, to build the sandbox.
    """
    nodes = [
        NodeSpec.of_shape(name, shape, topology_manager_policy=policy, topology_manager_scope=scope)
        for name, shape, policy, scope in NODES
    ]
    try:
        with Stage(nodes) as stage:
            _run_story(stage)
    except DidNotHappen as failure:
        click.echo(f"{click.style('It did not happen:', fg='red', bold=True)} {failure}")
        context.exit(NO)
    except (SandboxError, APIError) as error:
        raise CannotAsk(str(error)) from error


def _run_story(stage: Stage) -> None:
    _install(stage)
    _fragment(stage)
    refused_uid = _refusal(stage)
    _relaunch(stage, refused_uid)
    _deployment(stage)
    stage.title("At the end")
    stage.run(["kubectl", "get", "ntopo,relaunches,pods"])


def _install(stage: Stage) -> None:
    stage.title("topomend: one agent a node, one operator")
    stage.say("The sandbox's containers do nothing, so the agents and the operator run as processes here, each under")
    stage.say("the account and the token of its pod.")
    stage.sandbox.install_topomend(stage.say)
    stage.run(["kubectl", "get", "ntopo"])


def _fragment(stage: Stage) -> None:
    stage.title("Work arrives, and leaves free CPUs where nobody asked for them")
    for name, node, cpus in (("web-1", 0, 4), ("web-2", 0, 5), ("batch-1", 1, 16), ("batch-2", 1, 10)):
        stage.client.create(PODS, _pod(name, cpus, node=NODES[node][0]), NAMESPACE)
        stage.wait(f"pod {name} runs", lambda name=name: _running(stage, name))  # type: ignore[misc]
    for name, free in (("worker-1", "3,3"), ("worker-2", "5,0")):
        stage.wait(f"{name} publishes {free} free", lambda name=name, free=free: _cpus_free(stage, name) == free)  # type: ignore[misc]
    stage.run(["kubectl", "get", "ntopo"])
    stage.run(["kubectl", "numa", "show", "worker-1"])
    stage.say("worker-1 has 6 CPUs free, 3 on each NUMA node; worker-2 has 5, all on one.")


def _refusal(stage: Stage) -> str:
    stage.title("A pod asks for 4 CPUs; the scheduler counts totals and takes worker-1")
    created = stage.client.create(PODS, _pod("train", 4), NAMESPACE)
    uid = str(created["metadata"]["uid"])
    explained = stage.wait("the refusal is explained", lambda: _event(stage, "TopologyRefusalExplained", "train"))
    refused = stage.wait("the kubelet's own event", lambda: _event(stage, "TopologyAffinityError", "train"))
    stage.say(f"the kubelet said:   {refused}")
    stage.say(f"topomend explains:  {explained}")
    return uid


def _relaunch(stage: Stage, refused_uid: str) -> None:
    stage.title("The relaunch")
    running = stage.wait("the replacement runs", lambda: _running(stage, "train", other_than=refused_uid))
    relaunch = stage.wait("the record is complete", lambda: _launched(stage, "train"))
    if running["spec"]["nodeName"] not in relaunch["status"]["candidates"]:
        raise DidNotHappen(f"train runs on {running['spec']['nodeName']}, which the replay did not name")
    stage.run(["kubectl", "get", "relaunches"])
    stage.run(["kubectl", "get", "pod", "train", "-o", "wide"])
    cpus = stage.wait("its CPUs are published", lambda: _cpus_of(stage, running["spec"]["nodeName"], "train"))
    stage.say(f"train runs on {running['spec']['nodeName']} with CPUs {cpus}")


def _deployment(stage: Stage) -> None:
    stage.title("A Deployment: left to itself, its ReplicaSet makes ten failed pods a second")
    stage.client.create(DEPLOYMENTS, _deployment_of("serve", replicas=1, cpus=4), NAMESPACE)
    explained = stage.wait("its refusal is explained", lambda: _event(stage, "TopologyRefusalExplained", "serve-"))
    stage.say(f"topomend explains:  {explained}")
    waiting = stage.wait("the next pod waits", lambda: _gated(stage, "serve"))
    stage.wait("what failed is cleared away", lambda: not _failed(stage, "serve"))
    stage.say(
        f"{_refusals(stage, 'serve-')} refused and cleared away; {waiting['metadata']['name']} waits behind a gate"
    )
    stage.run(["kubectl", "get", "pods", "-l", "app=serve"])
    stage.say("web-1 ends: worker-1 has a hole of 7 CPUs on NUMA 0")
    _end(stage, "web-1")
    running = stage.wait("the replica runs", lambda: _replica(stage, "serve"))
    if running["metadata"]["uid"] != waiting["metadata"]["uid"]:
        raise DidNotHappen(f"another pod than {waiting['metadata']['name']} runs")
    name, node = running["metadata"]["name"], running["spec"]["nodeName"]
    cpus = stage.wait("its CPUs are published", lambda: _cpus_of(stage, node, name))
    stage.say(f"{name} is ungated and runs on {node} with CPUs {cpus}")


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


def _cpus_free(stage: Stage, name: str) -> str:
    return str(_topology(stage, name).get("summary", {}).get("cpusFree", ""))


def _cpus_of(stage: Stage, node: str, pod: str) -> str:
    allocations = [allocation for allocation in _topology(stage, node).get("pods", []) if allocation["name"] == pod]
    return "".join(container.get("cpus", "") for allocation in allocations for container in allocation["containers"])


def _topology(stage: Stage, name: str) -> dict[str, Any]:
    try:
        status = stage.client.get(NODE_TOPOLOGIES, name).get("status", {})
    except NotFound:
        return {}
    return dict(status)


def _running(stage: Stage, name: str, other_than: str = "") -> dict[str, Any] | None:
    try:
        pod = stage.client.get(PODS, name, NAMESPACE)
    except NotFound:
        return None
    return pod if pod["status"].get("phase") == "Running" and pod["metadata"]["uid"] != other_than else None


def _replica(stage: Stage, app: str) -> dict[str, Any] | None:
    pods = stage.client.list(PODS, namespace=NAMESPACE, labels=f"app={app}").items
    return next((pod for pod in pods if pod["status"].get("phase") == "Running"), None)


def _failed(stage: Stage, app: str) -> list[dict[str, Any]]:
    pods = stage.client.list(PODS, namespace=NAMESPACE, labels=f"app={app}").items
    return [pod for pod in pods if pod["status"].get("phase") == "Failed"]


def _gated(stage: Stage, app: str) -> dict[str, Any] | None:
    pods = stage.client.list(PODS, namespace=NAMESPACE, labels=f"app={app}").items
    return next((pod for pod in pods if pod["spec"].get("schedulingGates")), None)


def _refusals(stage: Stage, pods: str) -> int:
    """The number of pods that a kubelet refused, from the kubelets' own events."""
    events = stage.client.list(EVENTS, namespace=NAMESPACE, fields="reason=TopologyAffinityError").items
    return len({event["regarding"]["uid"] for event in events if event["regarding"]["name"].startswith(pods)})


def _end(stage: Stage, name: str) -> None:
    stage.client.delete(PODS, name, NAMESPACE, uid=stage.client.get(PODS, name, NAMESPACE)["metadata"]["uid"])


def _launched(stage: Stage, pod: str) -> dict[str, Any] | None:
    relaunches = stage.client.list(RELAUNCHES, namespace=NAMESPACE).items
    of_pod = [relaunch for relaunch in relaunches if relaunch["spec"]["pod"]["name"] == pod]
    return next((relaunch for relaunch in of_pod if relaunch.get("status", {}).get("step") == "Launched"), None)


def _event(stage: Stage, reason: str, pod: str) -> str:
    events = stage.client.list(EVENTS, namespace=NAMESPACE, fields=f"reason={reason}").items
    return next((str(event.get("note", "")) for event in events if event["regarding"]["name"].startswith(pod)), "")
