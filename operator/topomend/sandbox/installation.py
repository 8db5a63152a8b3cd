"""topomend itself in a sandbox: its manifests, its programs, and the check that it is at work.

A sandbox's containers do nothing. Therefore an agent for each node and one operator run as programs of the sandbox's
supervisor, each with the account and a token of the pod that the manifests create for it. Tokens are left to
``pod_tokens``, starts and restarts to ``supervisor``.
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
"""The name of the agents' namespace and of their account in it."""

OPERATORS, OPERATOR_ACCOUNT = "topomend-system", "topomend-operator"

TOKENS_PROGRAM = "topomend-tokens"

MOST_RESTARTS = 3
"""A program of topomend that ends more often than this during the start will not come up."""

_GATING = "/apis/admissionregistration.k8s.io/v1"
_BRAKE = f"/apis/{API_VERSION}/namespaces/{OPERATORS}/brakes/topomend-brake"


@dataclass(frozen=True)
class Component:
    """One program of topomend, and the pod that it replaces: any pod of the account if ``node`` is empty."""

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
        """The URL of its metrics, for Prometheus."""
        return f"http://{HOST}:{self.metrics_port}/metrics"

    def kubeconfig(self, folder: Path) -> Path:
        """Its kubeconfig below the sandbox's folder. It appears once its pod has a token."""
        return folder / f"{self.program}.kubeconfig"


def components(node_names: Sequence[str], ports: Sequence[int]) -> tuple[Component, ...]:
    """The operator and an agent for each node. Each takes one of ``ports`` for its metrics, the operator the first for
    its webhook."""
    webhook_port, operator_port, *agent_ports = ports
    webhook = f"{HOST}:{webhook_port}"
    arguments = ("operator", f"--webhook-address={webhook}", f"--webhook-url=https://{webhook}")
    operator = Component("topomend-operator", OPERATORS, OPERATOR_ACCOUNT, "", arguments, operator_port)
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
    """The file with topomend's manifests."""
    installed = Path(__file__).parents[1] / "deploy" / "install.yaml"
    return installed if installed.exists() else Path(__file__).parents[3] / "deploy" / "install.yaml"


def missing(api: API, node_names: Sequence[str]) -> str:
    """What topomend still has to do at its start, in one line; empty if nothing."""
    for name in node_names:
        problem = _not_ready(api, name)
        if problem:
            return f"{name} to publish its topology ({problem})"
    if api.get(_BRAKE) is None:
        return "the operator to begin"
    return "" if _gates_new_pods(api) else "the operator to have new pods gated"


def _gates_new_pods(api: API) -> bool:
    """Whether the steering policy is installed, or written as a webhook."""
    if api.get(f"{_GATING}/mutatingadmissionpolicybindings/topomend-steer") is not None:
        return True
    webhooks = api.get(f"{_GATING}/mutatingwebhookconfigurations/topomend-steer")
    return webhooks is not None and bool(webhooks.get("webhooks"))


def _not_ready(api: API, node: str) -> str:
    topology = api.get(f"/apis/{API_VERSION}/nodetopologies/{node}")
    if topology is None:
        return "there is no NodeTopology"
    conditions: Sequence[Mapping[str, Any]] = topology.get("status", {}).get("conditions", ())
    ready = next((condition for condition in conditions if condition["type"] == "Ready"), None)
    if ready is None:
        return "its status is empty"
    return "" if ready["status"] == "True" else f"{ready['reason']}: {ready['message']}"
