"""topomend itself in a sandbox: its manifests, its programs, and the check that it is at work.

A sandbox's containers do nothing. Therefore an agent for each node and one operator run as programs of the sandbox's
supervisor, each in the place of a pod of the manifests: with its arguments, its variables, its account and a token of
it. The kubelets' probes of these pods reach the programs. Arguments and tokens are left to ``pod_tokens``, starts and
restarts to ``supervisor``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topomend.reconcile.settings import OBSERVE
from topomend.runtime.manifests import documents, install_yaml
from topomend.sandbox import layout
from topomend.sandbox.api import API
from topomend.sandbox.control_plane import HOST
from topomend.wire.group import API_VERSION

AGENTS = "topomend-agent"
"""The name of the agents' namespace and of their account in it."""

OPERATORS, OPERATOR_ACCOUNT = "topomend-system", "topomend-operator"

TOKENS_PROGRAM = "topomend-tokens"

MANIFESTS_FILE = "topomend.yaml"
"""The manifests as they are applied, below the sandbox's folder."""

MOST_RESTARTS = 3
"""A program of topomend that ends more often than this during the start will not come up."""

_GATING = "/apis/admissionregistration.k8s.io/v1"
_BRAKE = f"/apis/{API_VERSION}/namespaces/{OPERATORS}/brakes/topomend-brake"


OPERATOR_HOST, AGENT_HOST = "operator.topomend.invalid", "agent.topomend.invalid"
"""The names of the operator and of the node's own agent in each node's /etc/hosts. The probes of a DaemonSet's pods all
name the same host. No resolver knows a name below ``invalid`` (RFC 2606)."""

WEBHOOK_PORT = 8443
PROBED_PORTS = (8081, WEBHOOK_PORT)
"""The ports of the manifests, which each program has on an address of its own."""

WITHOUT_TOKEN = {"automountServiceAccountToken": False}
"""Of topomend's pods, whose programs get their tokens otherwise. The kubelet gives a mounted token to the user that a
pod runs as. The user namespace of an ordinary user's sandbox has none but root, and such a pod would never start."""

HOST_PROBES = {f"pod-security.kubernetes.io/{mode}-version": "v1.33" for mode in ("enforce", "audit", "warn")}
"""Pod Security forbids a host in probes from its version 1.34 on (check_hostProbesAndhostLifecycle.go)."""

MANAGER = "topomend-sandbox"
"""The field manager that applies what the sandbox changes of the manifests' objects."""

_CONTAINERS = {OPERATORS: ("operator", OPERATOR_HOST), AGENTS: ("agent", AGENT_HOST)}


@dataclass(frozen=True)
class Component:
    """One program of topomend, and the pod that it replaces: any pod of the account if ``node`` is empty.

    ``address`` is its own on loopback. It starts with the pod's flags but ``replaced``, and with ``added``.
    """

    program: str
    namespace: str
    account: str
    node: str
    address: str
    metrics_port: int
    replaced: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that it gets beside those of its pod."""
        return (*self.added, f"--metrics-address={HOST}:{self.metrics_port}")

    @property
    def metrics(self) -> str:
        """The URL of its metrics, for Prometheus."""
        return f"http://{HOST}:{self.metrics_port}/metrics"

    def kubeconfig(self, folder: Path) -> Path:
        """Its kubeconfig below the sandbox's folder. It appears once its pod has a token."""
        return folder / f"{self.program}.kubeconfig"

    def launch(self, folder: Path) -> Path:
        """The file with its arguments and variables, below the sandbox's folder. It is there while its pod is alive."""
        return folder / f"{self.program}.launch"


def components(node_names: Sequence[str], ports: Sequence[int], addresses: Sequence[str]) -> tuple[Component, ...]:
    """The operator and an agent for each node. Each takes one of ``ports`` for metrics, and one of ``addresses``."""
    (operator_port, *agent_ports), (operator_address, *agent_addresses) = ports, addresses
    webhook = (f"--webhook-url=https://{operator_address}:{WEBHOOK_PORT}",)
    operator = Component(
        "topomend-operator", OPERATORS, OPERATOR_ACCOUNT, "", operator_address, operator_port, added=webhook
    )
    agents = map(_agent, node_names, agent_addresses, agent_ports)
    return (operator, *agents)


def _agent(node: str, address: str, port: int) -> Component:
    """The agent of a node. It reads its kubelet's files, which are a source that every release has."""
    added = (f"--kubelet-config={layout.KUBELET_CONFIG}", f"--kubelet-state={layout.KUBELET_ROOT}")
    replaced = ("--kubelet-address", "--kubelet-reader")
    return Component(f"topomend-agent-{node}", AGENTS, AGENTS, node, address, port, replaced, added)


def hosts(operator: str, agent: str) -> str:
    """The lines of a node's /etc/hosts for the addresses of the operator and of its agent."""
    return f"{operator} {OPERATOR_HOST}\n{agent} {AGENT_HOST}\n"


def adapted(text: str, mode: str = "") -> Sequence[Mapping[str, Any]]:
    """The objects of the manifests ``text`` as a sandbox has them.

    The probes reach the sandbox's programs at once, and no pod mounts a token. One operator runs, so its Deployment has
    one replica. ``mode`` is the operator's ``--mode``, that of the manifests if empty.
    """
    items = [document for document in documents(text) if document]
    for document in items:
        if document["kind"] == "Namespace":
            document["metadata"]["labels"].update(HOST_PROBES)
        if document["kind"] in ("Deployment", "DaemonSet"):
            pod = document["spec"]["template"]["spec"]
            pod |= WITHOUT_TOKEN
            container = pod["containers"][0]
            _probe_program(container, _CONTAINERS[document["metadata"]["namespace"]][1])
        if document["kind"] == "Deployment":
            document["spec"]["replicas"] = 1
            if mode:
                container["env"].append({"name": "TOPOMEND_MODE", "value": mode})
    return items


def _probe_program(container: dict[str, Any], host: str) -> None:
    for probe in ("readinessProbe", "livenessProbe"):
        container[probe]["httpGet"]["host"] = host
    container["readinessProbe"] |= {"periodSeconds": 1, "failureThreshold": 1}


def kept() -> Mapping[str, Mapping[str, Any]]:
    """The parts of objects, by their path, without which probes would not reach the programs.

    A user who deletes topomend and applies its manifests again brings objects that lack them. None of these fields is
    in the manifests, so no later ``kubectl apply`` conflicts with them.
    """
    parts: dict[str, Mapping[str, Any]] = {}
    for namespace in _CONTAINERS:
        metadata = {"name": namespace, "labels": HOST_PROBES}
        parts[f"/api/v1/namespaces/{namespace}"] = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    for namespace, kind, plural, name in (
        (OPERATORS, "Deployment", "deployments", "topomend-operator"),
        (AGENTS, "DaemonSet", "daemonsets", "topomend-agent"),
    ):
        container, host = _CONTAINERS[namespace]
        probes = {probe: {"httpGet": {"host": host}} for probe in ("readinessProbe", "livenessProbe")}
        template = {"spec": {**WITHOUT_TOKEN, "containers": [{"name": container, **probes}]}}
        parts[f"/apis/apps/v1/namespaces/{namespace}/{plural}/{name}"] = {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"template": template},
        }
    return parts


def manifests() -> Path:
    """The file with topomend's manifests."""
    return Path(str(install_yaml()))


def missing(api: API, node_names: Sequence[str], mode: str = "") -> str:
    """What topomend still has to do at its start, in one line; empty if nothing.

    An operator whose ``mode`` is to observe writes no brake and gates no pod: that its pod is ready says all.
    """
    for name in node_names:
        problem = _not_ready(api, name)
        if problem:
            return f"{name} to publish its topology ({problem})"
    if mode != OBSERVE:
        if api.get(_BRAKE) is None:
            return "the operator to begin"
        if not _gates_new_pods(api):
            return "the operator to have new pods gated"
    return next(filter(None, (_unready_pod(api, namespace) for namespace in _CONTAINERS)), "")


def _unready_pod(api: API, namespace: str) -> str:
    """The first pod of topomend in ``namespace`` that is not ready; empty if all are."""
    pods = api.get(f"/api/v1/namespaces/{namespace}/pods")
    for pod in pods.get("items") or () if pods else ():
        conditions = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", ())}
        if conditions.get("Ready") != "True":
            return f"pod {namespace}/{pod['metadata']['name']} to be ready"
    return "" if pods else f"the pods of {namespace}"


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
