"""``demo``: a refusal and its recovery on a sandbox, told as it happens.

Real kubelets, the real agents, the real operator, each its own process. Every step waits until the API says that it
is true; nothing is claimed that was not read there. Exits with 1 if the recovery did not happen.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from topomend.cli.failures import NO, CannotAsk
from topomend.kube.client import EVENTS, NODE_TOPOLOGIES, PODS, RELAUNCHES, Client, Resource, connect
from topomend.kube.errors import APIError, NotFound
from topomend.sandbox import NodeSpec, Sandbox, SandboxError

DEPLOYMENTS = Resource("apps/v1", "deployments")
NAMESPACE = "default"
PATIENCE = 60.0
POLL = 0.05

NODES = (
    ("worker-1", "sockets:1 numa:2 cores:8 memory:32Gi", "single-numa-node", "container"),
    ("worker-2", "sockets:2 numa:1 cores:8 threads:2 memory:32Gi device:vendor.com/gpu@0=2,1=2", "restricted", "pod"),
    ("worker-3", "sockets:1 numa:1 cores:4 memory:16Gi", "best-effort", "container"),
)

_Found = TypeVar("_Found")


class DidNotHappen(Exception):
    """What the story tells next was not seen in the API in time."""


@click.command()
@click.pass_context
def demo(context: click.Context, /) -> None:
    """Watch a refused pod get relaunched, on a sandbox of three NUMA machines.

    Takes about a minute; the first time some more, to build the sandbox.
    """
    console = Console(highlight=False, soft_wrap=True)
    try:
        with Stage(console) as stage:
            _tell(stage)
    except DidNotHappen as failure:
        console.print(f"[bold red]It did not happen:[/] {failure}")
        context.exit(NO)
    except (SandboxError, APIError) as error:
        raise CannotAsk(str(error)) from error


class Stage:
    """The sandbox, the processes of topomend on it, and the console: a context manager that ends them all."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Stage":
        nodes = [
            NodeSpec.of_shape(name, shape, topology_manager_policy=policy, topology_manager_scope=scope)
            for name, shape, policy, scope in NODES
        ]
        self.title("A control plane and three NUMA machines")
        self.sandbox = Sandbox.up(nodes, on_progress=self.say)
        self._environment = {**os.environ, "KUBECONFIG": str(self.sandbox.kubeconfig)}
        os.environ["KUBECONFIG"] = self._environment["KUBECONFIG"]
        self.client: Client = connect()
        return self

    def __exit__(self, *failure: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(timeout=20)
        self.client.close()
        self.sandbox.down()
        self.say("everything is taken down again")

    def title(self, text: str) -> None:
        """Open a chapter."""
        self._console.print(f"\n[bold cyan]{text}[/]  [dim]{time.monotonic() - self._began:.1f} s[/]")

    def say(self, text: str) -> None:
        """Tell one thing."""
        self._console.print(f"  {text}", markup=False)

    def run(self, command: list[str]) -> None:
        """Show a kubectl command, and what it prints."""
        self._console.print(f"  [green]$[/] [bold]{' '.join(command)}[/]")
        done = subprocess.run(
            [*self.sandbox.kubectl_prefix(), *command[1:]], capture_output=True, text=True, check=False
        )
        for line in (done.stdout + done.stderr).splitlines():
            self._console.print(f"    {line}", markup=False)

    def start(self, arguments: list[str], node: str = "") -> None:
        """Start a part of topomend, within the machine of ``node`` if one is named."""
        prefix = self.sandbox.exec_prefix(node) if node else []
        log = (self.sandbox.folder / "logs" / f"topomend-{arguments[0]}-{node or 'cluster'}.log").open("wb")
        with log:
            command = [*prefix, sys.executable, "-m", "topomend.cli", *arguments]
            self._processes.append(
                subprocess.Popen(command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def wait(self, what: str, look: Callable[[], _Found | None], patience: float = PATIENCE) -> _Found:
        """Look until something is found. Raises DidNotHappen."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            found = look()
            if found:
                return found
            for process in self._processes:
                if process.poll() is not None:
                    raise DidNotHappen(f"{what}: a process of topomend ended with {process.returncode}")
            time.sleep(POLL)
        raise DidNotHappen(f"{what}, within {patience:.0f} s")


def _tell(stage: Stage) -> None:
    _install(stage)
    _fragment(stage)
    refused_uid = _refusal(stage)
    _relaunch(stage, refused_uid)
    _deployment(stage)
    stage.title("At the end")
    stage.run(["kubectl", "get", "ntopo,relaunches,pods"])


def _install(stage: Stage) -> None:
    stage.title("topomend: one agent a node, one operator")
    stage.run(["kubectl", "apply", "--server-side", "-f", str(_crds())])
    for name, *_ in NODES:
        node = stage.sandbox.node(name)
        flags = {
            "--node-name": name,
            "--kubelet-config": node.kubelet_config,
            "--pod-resources": node.pod_resources,
            "--kubelet-state": node.kubelet_state,
        }
        stage.start(["agent", *(str(each) for flag in flags.items() for each in flag)], node=name)
    stage.start(["operator"])
    for name, *_ in NODES:
        stage.wait(f"{name} publishes its topology", lambda name=name: _ready_topology(stage, name))  # type: ignore[misc]
    stage.run(["kubectl", "get", "ntopo"])


def _fragment(stage: Stage) -> None:
    stage.title("Work arrives, and leaves free CPUs where nobody asked for them")
    for name, node, cpus in (("web-1", 0, 4), ("web-2", 0, 5), ("batch-1", 1, 16), ("batch-2", 1, 10)):
        stage.client.create(PODS, _pod(name, cpus, node=NODES[node][0]), NAMESPACE)
        stage.wait(f"pod {name} runs", lambda name=name: _running(stage, name))  # type: ignore[misc]
    for name, free in (("worker-1", "3,3"), ("worker-2", "5,0")):
        stage.wait(f"{name} publishes {free} free", lambda name=name, free=free: _cpus_free(stage, name) == free)  # type: ignore[misc]
    stage.run(["kubectl", "get", "ntopo"])
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
    stage.title("A Deployment: its controller would make ten failed pods a second")
    stage.client.create(DEPLOYMENTS, _deployment_of("serve", replicas=1, cpus=4), NAMESPACE)
    explained = stage.wait("its refusal is explained", lambda: _event(stage, "TopologyRefusalExplained", "serve-"))
    stage.say(f"topomend explains:  {explained}")
    stage.say("web-1 ends: worker-1 has a hole of 7 CPUs on NUMA 0")
    _end(stage, "web-1")
    running = stage.wait("the replica runs", lambda: _replica(stage, "serve"))
    stage.say(f"{running['metadata']['name']} runs on {running['spec']['nodeName']}")
    stage.wait("what failed is cleared away", lambda: not _failed(stage, "serve"))
    stage.say("every failed pod of the Deployment is cleared away; topomend created none, its ReplicaSet did")


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


def _ready_topology(stage: Stage, name: str) -> bool:
    conditions = _topology(stage, name).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _cpus_free(stage: Stage, name: str) -> str:
    return str(_topology(stage, name).get("summary", {}).get("cpusFree", ""))


def _cpus_of(stage: Stage, node: str, pod: str) -> str:
    held = [each for each in _topology(stage, node).get("pods", []) if each["name"] == pod]
    return "".join(container.get("cpus", "") for each in held for container in each["containers"])


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


def _end(stage: Stage, name: str) -> None:
    stage.client.delete(PODS, name, NAMESPACE, uid=stage.client.get(PODS, name, NAMESPACE)["metadata"]["uid"])


def _launched(stage: Stage, pod: str) -> dict[str, Any] | None:
    relaunches = stage.client.list(RELAUNCHES, namespace=NAMESPACE).items
    ours = [each for each in relaunches if each["spec"]["pod"]["name"] == pod]
    return next((each for each in ours if each.get("status", {}).get("step") == "Launched"), None)


def _event(stage: Stage, reason: str, pod: str) -> str:
    events = stage.client.list(EVENTS, namespace=NAMESPACE, fields=f"reason={reason}").items
    return next((str(each.get("note", "")) for each in events if each["regarding"]["name"].startswith(pod)), "")


def _crds() -> Path:
    """The folder of the CustomResourceDefinitions: in the installed package, else in the source tree."""
    installed = Path(__file__).parents[1] / "crds"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "crds"
