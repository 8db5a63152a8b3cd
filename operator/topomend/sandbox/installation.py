"""topomend itself in a sandbox: what is installed, which programs run it, and when it does its work.

A sandbox's containers do nothing. So an agent for each node and one operator run as programs of the sandbox's
supervisor, each under the account and a token of the pod that the manifests make for it. The tokens are
``pod_tokens``' business, starting and restarting is the supervisor's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topomend.sandbox import layout
from topomend.sandbox.api import API
from topomend.sandbox.control_plane import HOST
from topomend.wire.group import API_VERSION

AGENTS = "topomend-agent"
"""The agents' namespace and their account in it."""

OPERATORS, OPERATOR_ACCOUNT = "topomend-system", "topomend-operator"

TOKENS_PROGRAM = "topomend-tokens"

MOST_RESTARTS = 3
"""A program of topomend that ended so often while it was being started will not come up."""

_BRAKE = f"/apis/{API_VERSION}/namespaces/{OPERATORS}/brakes/topomend-brake"


@dataclass(frozen=True)
class Component:
    """One program of topomend, and the pod whose place it takes: any of the account's where ``node`` is empty."""

    program: str
    namespace: str
    account: str
    node: str
    arguments: tuple[str, ...]
    metrics_port: int

    @property
    def command(self) -> tuple[str, ...]:
        """The arguments of ``topomend``."""
        return (*self.arguments, f"--metrics-address={HOST}:{self.metrics_port}")

    @property
    def metrics(self) -> str:
        """Where its metrics are, for Prometheus."""
        return f"http://{HOST}:{self.metrics_port}/metrics"

    def kubeconfig(self, folder: Path) -> Path:
        """The kubeconfig that it is given, below the sandbox's folder; written once its pod has a token."""
        return folder / f"{self.program}.kubeconfig"


def components(node_names: Sequence[str], ports: Sequence[int]) -> tuple[Component, ...]:
    """The operator, and an agent for each node; of ``ports`` each gets one for its metrics."""
    operator_port, *agent_ports = ports
    operator = Component("topomend-operator", OPERATORS, OPERATOR_ACCOUNT, "", ("operator",), operator_port)
    agents = (_agent(name, port) for name, port in zip(node_names, agent_ports, strict=True))
    return (operator, *agents)


def _agent(node: str, port: int) -> Component:
    arguments = (
        "agent",
        f"--node-name={node}",
        f"--kubelet-config={layout.KUBELET_CONFIG}",
        f"--pod-resources={layout.POD_RESOURCES}",
        f"--kubelet-state={layout.KUBELET_ROOT}",
    )
    return Component(f"topomend-agent-{node}", AGENTS, AGENTS, node, arguments, port)


def manifests() -> Path:
    """What is installed on a cluster, in one file: in the installed package, else in the source tree."""
    installed = Path(__file__).parents[1] / "deploy" / "install.yaml"
    return installed if installed.exists() else Path(__file__).parents[3] / "deploy" / "install.yaml"


def missing(api: API, node_names: Sequence[str]) -> str:
    """What topomend has not done yet of what it does at its start, in one line; empty where it has."""
    for name in node_names:
        problem = _not_ready(api, name)
        if problem:
            return f"{name} to publish its topology ({problem})"
    return "" if api.get(_BRAKE) is not None else "the operator to begin"


def _not_ready(api: API, node: str) -> str:
    topology = api.get(f"/apis/{API_VERSION}/nodetopologies/{node}")
    if topology is None:
        return "there is no NodeTopology"
    conditions: Sequence[Mapping[str, Any]] = topology.get("status", {}).get("conditions", ())
    ready = next((condition for condition in conditions if condition["type"] == "Ready"), None)
    if ready is None:
        return "its status is empty"
    return "" if ready["status"] == "True" else f"{ready['reason']}: {ready['message']}"
