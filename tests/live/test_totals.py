"""Totals: what real kubelets and the real scheduler say of them, and what simulate, fit and explain say."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.cli.main import main
from topomend.cli.numa.cluster import cluster as cluster_module
from topomend.cli.output.failures import NOT_KNOWN
from topomend.kube.client import Client
from topomend.kube.resources import NODE_TOPOLOGIES, NODES, PODS, Resource
from topomend.sandbox import Sandbox
from topomend.wire.published.node_topology import read_node_topology

pytestmark = pytest.mark.cluster

RBAC = "rbac.authorization.k8s.io/v1"
ACCOUNTS = Resource("v1", "serviceaccounts")
ROLES = Resource(RBAC, "clusterroles", namespaced=False)
BINDINGS = Resource(RBAC, "clusterrolebindings", namespaced=False)


@pytest.fixture
def emptied(published: Client) -> Client:
    """The shared cluster, whose node split has no pod."""
    eventually("the pods of earlier tests to be gone from split", lambda: _is_empty(published, "split"))
    return published


def _is_empty(client: Client, node: str) -> bool:
    """Whether the node has no pod, neither as the API server has it nor as its agent publishes it."""
    if client.list(PODS, fields=f"spec.nodeName={node}").items:
        return False
    return not read_node_topology(client.get(NODE_TOPOLOGIES, node)).pods


@pytest.fixture
def busy_split(emptied: Client) -> Iterator[Client]:
    """split has a pod that asks for 3500m and holds nothing exclusively: 3500m are left, and every CPU is free."""
    with running(emptied, pod("shared", requests={"cpu": "3500m"}, node="split")):
        yield emptied


def ask(cluster: Sandbox, *arguments: str) -> Result:
    return CliRunner().invoke(numa, [*arguments, "--kubeconfig", str(cluster.kubeconfig)])


def pod(name: str, *, node: str = "", selected: str = "", **resources: dict[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "x", "resources": resources}],
    }
    spec |= {"nodeName": node} if node else {}
    spec |= {"nodeSelector": {"kubernetes.io/hostname": selected}} if selected else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def four(name: str, **where: str) -> dict[str, Any]:
    return pod(name, limits={"cpu": "4", "memory": "64Mi"}, **where)  # type: ignore[arg-type]


@contextmanager
def created(client: Client, content: dict[str, Any]) -> Iterator[str]:
    metadata = client.create(PODS, content, "default")["metadata"]
    name = metadata["name"]
    try:
        yield name
    finally:
        client.delete(PODS, name, "default", uid=metadata["uid"])
        eventually("the pod to go", lambda: name not in [each["metadata"]["name"] for each in client.list(PODS).items])


@contextmanager
def running(client: Client, content: dict[str, Any]) -> Iterator[str]:
    with created(client, content) as name:
        eventually("it to run", lambda: client.get(PODS, name, "default")["status"]["phase"] == "Running")
        yield name


def refusal(client: Client, name: str) -> tuple[str, str] | None:
    status = client.get(PODS, name, "default")["status"]
    return (status["reason"], status["message"]) if status["phase"] == "Failed" else None


def written(folder: Path, *contents: dict[str, Any]) -> str:
    path = folder / "documents.yaml"
    path.write_text(yaml.safe_dump_all(contents))
    return str(path)


def simulated(client: Client, folder: Path, node: str, asked: dict[str, Any]) -> dict[str, Any]:
    """What simulate says of the node as the API server has it: its NodeTopology, its Node and its pods."""
    there = [client.get(NODE_TOPOLOGIES, node), client.get(NODES, node)]
    # An item of a list of pods has no kind.
    there += [each | {"kind": "Pod"} for each in client.list(PODS, fields=f"spec.nodeName={node}").items]
    given, pods = folder / "node.yaml", written(folder, asked)
    given.write_text(yaml.safe_dump({"kind": "List", "items": there}))
    result = CliRunner().invoke(main, ["simulate", "--node", str(given), "--pods", pods, "-o", "json"])
    assert result.exit_code in (0, 1), result.output
    [record] = json.loads(result.stdout)
    return dict(record)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (four("p", node="split"), "OutOfcpu"),
        (pod("p", node="split", requests={"memory": "900Gi"}), "OutOfmemory"),
        (pod("p", node="split", limits={"cpu": "64", "memory": "900Gi"}), "TopologyAffinityError"),
        (pod("p", node="split", requests={"cpu": "1", "ephemeral-storage": "900Ti"}), "OutOfephemeral-storage"),
        (pod("p", node="split", requests={"cpu": "1"}) | {"more": {"nodeSelector": {"pool": "none"}}}, "NodeAffinity"),
    ],
    ids=["cpu", "memory", "the managers first", "storage", "labels"],
)
def test_simulate_says_what_the_kubelet_says_word_for_word(
    asked: dict[str, Any], reason: str, busy_split: Client, tmp_path: Path
) -> None:
    asked = {**asked, "spec": {**asked["spec"], **asked.get("more", {})}}
    asked.pop("more", None)
    predicted = simulated(busy_split, tmp_path, "split", asked)
    with created(busy_split, asked) as name:
        told = eventually("the kubelet's answer", lambda: refusal(busy_split, name))
    assert (predicted["reason"], predicted["message"]) == told
    assert (told[0], "notChecked" in predicted) == (reason, False)


@pytest.mark.parametrize("few_nodes", [cluster_module.FEW_NODES, 0], ids=["node by node", "all pods at once"])
def test_fit_counts_no_replica_for_which_too_little_is_left_in_total(
    few_nodes: int, cluster: Sandbox, busy_split: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "FEW_NODES", few_nodes)
    with running(busy_split, pod("more", requests={"cpu": "100m"}, node="split")):
        result = ask(cluster, "fit", "-f", written(tmp_path, four("p", selected="split")), "-o", "json")
    answer = json.loads(result.stdout)
    split = next(node for node in answer["nodes"] if node["node"] == "split")
    assert (result.exit_code, answer["fitting"], answer["totalsChecked"]) == (1, 0, True)
    assert (split["replicas"], split["limitedBy"]) == (0, "total cpu")
    assert split["explanation"] == "split: by totals only 3400m of 4000m cpu are left"


@pytest.mark.usefixtures("busy_split")
def test_explain_says_no_of_a_node_on_which_too_little_is_left(cluster: Sandbox, tmp_path: Path) -> None:
    result = ask(cluster, "explain", "-f", written(tmp_path, four("p")), "--node", "split")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "split: by totals only 3500m of 4000m cpu are left"


@pytest.mark.usefixtures("busy_split")
def test_what_would_be_admitted_instead_is_within_the_totals(cluster: Sandbox, tmp_path: Path) -> None:
    five = pod("p", limits={"cpu": "5", "memory": "64Mi"})
    record = json.loads(ask(cluster, "explain", "-f", written(tmp_path, five), "--node", "split", "-o", "json").stdout)
    assert record["nearest"] == [{"container": "main", "resource": "cpu", "asked": "5", "admitted": "3"}]


def test_explain_begins_with_what_the_scheduler_says(cluster: Sandbox, busy_split: Client) -> None:
    with created(busy_split, four("want", selected="split")) as name:

        def explained() -> list[str] | None:
            """With what it says of a node that is ready: one that stood still is tainted for a moment."""
            lines = ask(cluster, "explain", f"pod/{name}").stdout.splitlines()
            return lines if lines and "Insufficient cpu" in lines[0] else None

        lines = eventually("the scheduler to say so", explained)
        assert lines[0].startswith("want is not scheduled (Unschedulable): 0/3 nodes are available: ")
        assert "  split: by totals only 3500m of 4000m cpu are left" in lines
        assert ask(cluster, "explain", f"pod/{name}").exit_code == 1


def test_without_the_right_to_list_pods_a_yes_is_not_known_as_totals_were_not_checked(
    cluster: Sandbox, busy_split: Client, tmp_path: Path
) -> None:
    with reader(cluster, busy_split, tmp_path) as kubeconfig:
        asked = written(tmp_path, four("p", selected="split"))
        fitted = CliRunner().invoke(numa, ["fit", "-f", asked, "--kubeconfig", kubeconfig])
        explained = CliRunner().invoke(numa, ["explain", "-f", asked, "--kubeconfig", kubeconfig])
    assert (fitted.exit_code, explained.exit_code) == (NOT_KNOWN, NOT_KNOWN), "other pods may leave too little"
    assert "totals were not checked" in fitted.stderr
    assert "totals were not checked" in explained.stdout


@contextmanager
def reader(cluster: Sandbox, client: Client, folder: Path) -> Iterator[str]:
    """The kubeconfig of an account that reads nodes and topomend's objects, and no pods."""
    rules = [{"apiGroups": ["", "topomend.io"], "resources": ["nodes", "nodetopologies", "relaunches"], "verbs": ["*"]}]
    role = {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": "no-pods"}, "rules": rules}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "no-pods", "namespace": "default"}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "no-pods"}
    subject = {"kind": "ServiceAccount", "name": "no-pods", "namespace": "default"}
    binding = {"apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": "no-pods"}}
    made = [
        (ACCOUNTS, client.create(ACCOUNTS, account, "default")),
        (ROLES, client.create(ROLES, role)),
        (BINDINGS, client.create(BINDINGS, binding | {"roleRef": reference, "subjects": [subject]})),
    ]
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = client.create(Resource("v1", "serviceaccounts/no-pods/token"), asked, "default")["status"]["token"]
    configuration = yaml.safe_load(cluster.kubeconfig.read_text())
    configuration["users"][0]["user"] = {"token": token}
    path = folder / "reader.kubeconfig"
    path.write_text(yaml.safe_dump(configuration))
    path.chmod(0o600)
    try:
        yield str(path)
    finally:
        for kind, content in made:
            namespace = "default" if kind is ACCOUNTS else ""
            client.delete(kind, "no-pods", namespace, uid=content["metadata"]["uid"])
