"""Node Feature Discovery's own master labels a Node with what the agent writes.

Slow: it is built, and a cluster starts.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.agent.test_agent_on_cluster import Kubernetes, Looks, running, until
from tests.agent.test_kubelet_changes import NODE, Bed
from tests.clusters import CRDS
from tests.waiting import stretched
from verify.nfd.programs import kinds, master

from topomend.kube.client import Client, connect
from topomend.kube.resources import NODES, Resource
from topomend.runtime.manifests import documents
from topomend.sandbox import NodeSpec, Sandbox
from topomend.sandbox.processes.host import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.night]

EXAMPLES = Path(__file__).parents[2] / "examples" / "node-feature-rules.yaml"
RULES = Resource("nfd.k8s-sigs.io/v1alpha1", "nodefeaturerules", namespaced=False)
SECONDS = 60.0
"""In which a new policy of a kubelet is to be the Node's label."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """One node of the policy single-numa-node, and NFD's kinds."""
    spec = NodeSpec.of_shape(
        NODE, "sockets:2 numa:1 cores:4 threads:2 memory:8Gi", topology_manager_policy="single-numa-node"
    )
    with Sandbox.up([spec], on_progress=print) as made:
        client = connect(str(made.kubeconfig))
        for kind in kinds():
            client.create(CRDS, kind)
        until(lambda: client.list(RULES))
        for rule in documents(EXAMPLES.read_text()):
            client.create(RULES, rule)
        client.close()
        yield made


@contextmanager
def discovery(sandbox: Sandbox, log: Path) -> Iterator[None]:
    """nfd-master of the cluster."""
    (port,) = free_ports(1)
    command = [str(master()), f"-kubeconfig={sandbox.kubeconfig}", f"-port={port}", "-config=/none"]
    environment = {**os.environ, "NODE_NAME": NODE, "KUBERNETES_NAMESPACE": "default"}
    with log.open("w") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(stretched(30))
            print(log.read_text()[-5000:])


def labels(client: Client) -> dict[str, str]:
    """Those of the Node that are ours, or an example's."""
    all_labels = client.get(NODES, NODE)["metadata"]["labels"]
    return {key: text for key, text in all_labels.items() if key.startswith(("topomend.io/", "example.com/"))}


def test_a_node_is_labelled_by_its_kubelets_policy_and_by_rules(sandbox: Sandbox, tmp_path: Path) -> None:
    kubernetes, client, looks = Kubernetes(sandbox), connect(str(sandbox.kubeconfig)), Looks()
    agent = running(sandbox, kubernetes, NODE, "--node-features=default", looks.flag)
    with discovery(sandbox, tmp_path / "nfd-master.log"), agent:
        until(lambda: "topomend.io/numa-nodes" in labels(client), SECONDS)
        assert labels(client) == {
            "topomend.io/topology-ready": "true",
            "topomend.io/topology-manager-policy": "single-numa-node",
            "topomend.io/topology-manager-scope": "container",
            "topomend.io/cpu-manager-policy": "static",
            "topomend.io/memory-manager-policy": "Static",
            "topomend.io/numa-nodes": "2",
            "topomend.io/cpus-per-numa-node": "8",
            "example.com/aligns": "true",
        }
        bed, policy = Bed(sandbox, kubernetes, looks), "topomend.io/topology-manager-policy"
        with bed.restarted(topologyManagerPolicy="best-effort"):
            until(lambda: labels(client)[policy] == "best-effort", SECONDS)
            assert "example.com/aligns" not in labels(client)
        until(lambda: labels(client)[policy] == "single-numa-node", SECONDS)
        assert labels(client)["topomend.io/topology-ready"] == "true"
    client.close()
