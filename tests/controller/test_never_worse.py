"""Pods with rules that only the scheduler can judge: each that runs in a plain namespace runs in a steered one too."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.clusters import COLLECTOR_SECONDS, DEPLOYMENTS, Cluster, agents_on, cluster_of, pod, steer
from tests.deploy.api import administrator, path_of
from tests.deploy.conftest import token_of
from tests.operator_process import Operator
from tests.volumes import local_volume, with_claim
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.decide.plan import MAX_NAMED_NODES
from topomend.kube.errors import AlreadyExists
from topomend.kube.resources import NAMESPACES, NODE_TOPOLOGIES, PODS, RELAUNCHES, RESOURCE_CLAIMS, Resource
from topomend.sandbox import NodeSpec

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAMES = tuple(f"numa-{number}" for number in range(5))
PLAIN, STEERED = "plain", "steered"
WAYS = [pytest.param(PLAIN, marks=pytest.mark.night), STEERED]
"""Plain shows that the workload runs without topomend."""
STATEFUL_SETS = Resource("apps/v1", "statefulsets")
DRIVER, ACCELERATOR = "accelerator.example.com", "example.com/accelerator"
NUMA_NODE_OF_DEVICES = 1
WITH_DEVICES = f" dra:{ACCELERATOR}@{NUMA_NODE_OF_DEVICES}=2"


@pytest.fixture(scope="module")
def five_nodes() -> Iterator[Cluster]:
    """Five empty nodes with agents: more than an unconstrained pod is narrowed to. The last has devices for claims."""
    shapes = dict.fromkeys(NAMES, "numa:2 cores:8") | {NAMES[-1]: "numa:2 cores:8" + WITH_DEVICES}
    specs = [NodeSpec.of_shape(*named, topology_manager_policy="single-numa-node") for named in shapes.items()]
    with cluster_of(specs) as cluster, agents_on(cluster):
        eventually("the agents to publish", lambda: len(cluster.client.list(NODE_TOPOLOGIES).items) == len(NAMES))
        cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLAIN}})
        steer(cluster, STEERED)
        yield cluster


@pytest.fixture
def operator(five_nodes: Cluster, tmp_path: Path) -> Iterator[Operator]:
    """An operator that has seen the cluster. It takes in at once what nodes publish, and not five times a second."""
    constants = {"controller.ingest.PUBLICATION_SECONDS": 0.0}
    started = Operator(five_nodes.sandbox.kubeconfig, tmp_path / "operator.log", constants=constants)
    started.wait_until_it_watches()
    yield started
    started.terminate()
    print(started.text())


def _template(**spec: Any) -> dict[str, Any]:
    content = pod("", 1)
    return {"metadata": {"labels": {"app": "web"}}, "spec": {**content["spec"], **spec}}


APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


def _with_host_port() -> dict[str, Any]:
    template = _template()
    template["spec"]["containers"][0]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
    return template


@dataclass(frozen=True)
class Workload:
    """A workload of three pods that grows to five, a node each."""

    resource: Resource
    kind: str
    template: Callable[[], dict[str, Any]]

    def create(self, cluster: Cluster, namespace: str) -> dict[str, Any]:
        spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": self.template()}
        service = {"serviceName": "web"} if self.kind == "StatefulSet" else {}
        content = {
            "apiVersion": "apps/v1",
            "kind": self.kind,
            "metadata": {"name": "web"},
            "spec": {**spec, **service},
        }
        return cluster.client.create(self.resource, content, namespace)


@pytest.mark.parametrize("namespace", WAYS)
@pytest.mark.parametrize(
    "workload",
    [
        Workload(DEPLOYMENTS, "Deployment", partial(_template, affinity=APART)),
        Workload(DEPLOYMENTS, "Deployment", partial(_template, topologySpreadConstraints=[SPREAD])),
        Workload(DEPLOYMENTS, "Deployment", _with_host_port),
        Workload(STATEFUL_SETS, "StatefulSet", partial(_template, affinity=APART)),
    ],
    ids=["anti-affinity", "spreading", "host ports", "StatefulSet with anti-affinity"],
)
def test_replicas_that_must_be_apart_all_run_when_their_workload_grows(
    workload: Workload, namespace: str, five_nodes: Cluster, operator: Operator
) -> None:
    made = workload.create(five_nodes, namespace)
    try:
        eventually("three replicas to run", lambda: len(_running(five_nodes, namespace)) == 3)
        five_nodes.client.merge(workload.resource, "web", {"spec": {"replicas": 5}}, namespace)
        eventually("all five to run", lambda: len(_running(five_nodes, namespace)) == 5, 30)
        assert {replica["spec"]["nodeName"] for replica in _running(five_nodes, namespace)} == set(NAMES)
        assert "Traceback" not in operator.text()
    finally:
        five_nodes.client.delete(workload.resource, "web", namespace, uid=made["metadata"]["uid"])
        eventually("the pods to be gone", lambda: not _emptied(five_nodes, namespace), COLLECTOR_SECONDS)


@pytest.mark.parametrize("namespace", WAYS)
def test_a_pod_runs_on_the_node_of_its_local_volume(namespace: str, five_nodes: Cluster, operator: Operator) -> None:
    """Best fit would choose other nodes: this one is the emptiest."""
    last = NAMES[-1]
    fillers = [five_nodes.create(pod(f"filler-{name}", 1, node=name)) for name in NAMES[:-1]]
    for filler in fillers:
        eventually("the fillers to run", partial(five_nodes.running, filler["metadata"]["name"]))
    with local_volume(five_nodes, f"disk-{namespace}", last, namespace):
        made = five_nodes.create(with_claim(pod("db", 1), f"disk-{namespace}"), namespace)
        try:
            bound = eventually(
                "the pod to be bound", lambda: five_nodes.get("db", namespace)["spec"].get("nodeName"), 30
            )
            assert bound == last
            assert "Traceback" not in operator.text()
        finally:
            for gone in (*fillers, made):
                five_nodes.remove(gone)


@pytest.mark.parametrize("namespace", WAYS)
@pytest.mark.parametrize("by", ["extended resource", "claim"])
def test_a_pod_whose_device_a_claim_provides_runs_on_the_node_that_has_it_and_is_told_where_that_is(
    by: str, namespace: str, five_nodes: Cluster, operator: Operator
) -> None:
    """Best fit would choose other nodes: this one is the emptiest."""
    fillers = [five_nodes.create(pod(f"filler-{name}", 1, node=name)) for name in NAMES[:-1]]
    for filler in fillers:
        eventually("the fillers to run", partial(five_nodes.running, filler["metadata"]["name"]))
    content = pod("train", 3)
    if by == "claim":
        _give_claim(five_nodes, content, namespace)
    else:
        content["spec"]["containers"][0]["resources"]["limits"][ACCELERATOR] = "1"
    made = five_nodes.create(content, namespace)
    assert bool(made["spec"].get("schedulingGates")) is (namespace == STEERED)
    try:
        (running,) = eventually("it to run", lambda: _running(five_nodes, namespace), 40)
        assert running["spec"]["nodeName"] == NAMES[-1]
        published = eventually("its device to be published", lambda: _claims(five_nodes, NAMES[-1], namespace))
        assert (published["driver"], published["pool"], published["container"]) == (DRIVER, NAMES[-1], "main")
        (device,) = published["devices"]
        eventually("its CPUs to be published", lambda: _shows_train(five_nodes, namespace))
        explained = _asked(five_nodes, "explain", "pod/train", "-n", namespace)
        assert (
            f"  container main: {device} by claim on NUMA {NUMA_NODE_OF_DEVICES}; by its kubelet cpu on NUMA 0, "
            "memory on NUMA 0: these are apart"
        ) in explained
        assert "elsewhere: no other node that would admit it has the devices of its claims" in explained
        drawing = _asked(five_nodes, "show", NAMES[-1])
        of_second = next(line for line in drawing if line.startswith(f"NUMA {NUMA_NODE_OF_DEVICES}  "))
        assert f"  claims   {DRIVER}: {device} a" in drawing[drawing.index(of_second) :]
        assert "Traceback" not in operator.text()
    finally:
        for gone in (*fillers, made):
            five_nodes.remove(gone)


def test_a_user_who_may_read_neither_claims_nor_slices_sees_the_devices_that_agents_publish(
    five_nodes: Cluster, tmp_path: Path
) -> None:
    kubeconfig = _kubeconfig_without_claims(five_nodes, tmp_path)
    content = pod("train", 3)
    _give_claim(five_nodes, content, PLAIN)
    made = five_nodes.create(content, PLAIN)
    try:
        (device,) = eventually("it to be published", lambda: _claims(five_nodes, NAMES[-1], PLAIN), 40)["devices"]
        eventually("its CPUs to be published", lambda: _shows_train(five_nodes, PLAIN))
        explained = _asked(five_nodes, "explain", "pod/train", "-n", PLAIN, kubeconfig=kubeconfig)
        assert f"  by claim: {device} of {DRIVER} (claim device)" in explained
        assert (
            f"  container main: {device} by claim; by its kubelet cpu on NUMA 0, memory on NUMA 0: "
            "whether these are on one NUMA node is unknown"
        ) in explained
        (why,) = (line for line in explained if "its resource claims cannot be read: 403" in line)
        assert "on which NUMA nodes the devices of claims are is unknown: 403" in why
        drawing = _asked(five_nodes, "show", NAMES[-1], kubeconfig=kubeconfig)
        assert drawing[drawing.index("NUMA node not known") + 1] == f"  claims   {DRIVER}: {device} a"
        assert any(line.startswith("on which NUMA nodes the devices of claims are is unknown: 403") for line in drawing)
    finally:
        five_nodes.remove(made)


def _kubeconfig_without_claims(cluster: Cluster, folder: Path) -> Path:
    """That of an account that may read all that the plugin needs, but for claims."""
    admin = administrator(cluster.sandbox.kubeconfig)
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "without-claims"}}
    rules = [
        {"apiGroups": [group], "resources": resources, "verbs": ["get", "list"]}
        for group, resources in (("", ["nodes", "pods"]), ("topomend.io", ["nodetopologies", "relaunches"]))
    ]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "without-claims"}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": PLAIN}
    binding = {"kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}
    for item in (head | {"kind": "ClusterRole", "rules": rules}, head | binding):
        answer = admin.apply(path_of(item), item)
        assert answer.allowed, answer.message
    content = yaml.safe_load(cluster.sandbox.kubeconfig.read_text())
    content["users"][0]["user"] = {"token": token_of(admin, PLAIN, "default")}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


def _give_claim(cluster: Cluster, content: dict[str, Any], namespace: str) -> None:
    """Have the pod ask for a device of the driver by a claim, which is there afterwards."""
    request = {"name": "device", "exactly": {"deviceClassName": DRIVER}}
    claim = {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": "ResourceClaim",
        "metadata": {"name": "device"},
        "spec": {"devices": {"requests": [request]}},
    }
    with suppress(AlreadyExists):
        cluster.client.create(RESOURCE_CLAIMS, claim, namespace)
    content["spec"]["resourceClaims"] = [{"name": "device", "resourceClaimName": "device"}]
    content["spec"]["containers"][0]["resources"]["claims"] = [{"name": "device"}]


def _claims(cluster: Cluster, node: str, namespace: str) -> dict[str, Any] | None:
    """What a node's agent publishes of the claim of the pod ``train``."""
    claims = cluster.client.get(NODE_TOPOLOGIES, node)["status"].get("claims", ())
    return next((claim for claim in claims if (claim["namespace"], claim["pod"]) == (namespace, "train")), None)


def _shows_train(cluster: Cluster, namespace: str) -> bool:
    """Whether the agent of the last node has published that pod, and not only one of its name from the test before."""
    pods = cluster.client.get(NODE_TOPOLOGIES, NAMES[-1])["status"].get("pods", ())
    return any((entry["namespace"], entry["name"]) == (namespace, "train") for entry in pods)


def _asked(cluster: Cluster, *arguments: str, kubeconfig: Path | None = None) -> list[str]:
    """The lines that the plugin answers, to the administrator or whom ``kubeconfig`` names."""
    file = kubeconfig or cluster.sandbox.kubeconfig
    return CliRunner().invoke(numa, [*arguments, f"--kubeconfig={file}"]).output.splitlines()


def _is_published(cluster: Cluster, node: str, quoted_name: str) -> bool:
    """Whether the node's publication lists a pod: best fit prefers the node from then on."""
    return quoted_name in str(cluster.client.get(NODE_TOPOLOGIES, node)["status"])


@pytest.mark.parametrize("namespace", WAYS)
def test_a_replica_and_a_bare_pod_that_pods_on_the_best_nodes_repel_run_on_others(
    namespace: str, five_nodes: Cluster, operator: Operator
) -> None:
    """Slow: the scheduler is given half a minute. The repelling pods are why best fit prefers their nodes."""
    repelling = []
    for name in NAMES[:MAX_NAMED_NODES]:
        content = pod(f"repels-{name}", 3, node=name)
        content["spec"]["affinity"] = APART
        repelling.append(five_nodes.create(content, namespace))
    for content in repelling:
        name = content["metadata"]["name"]
        eventually(f"{name} to run", partial(_is_running, five_nodes, namespace, name))
        node = content["spec"]["nodeName"]
        eventually(f"{node} to publish {name}", partial(_is_published, five_nodes, node, f"'{name}'"))
    before = {record["metadata"]["uid"] for record in five_nodes.records()}  # of other tests
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": _template()}
    content = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    made = five_nodes.client.create(DEPLOYMENTS, content, namespace)
    bare = five_nodes.create(pod("alone", 1, labels={"app": "web"}), namespace)
    try:
        eventually(
            "both replicas and the bare pod to run",
            lambda: len(_running_of(five_nodes, namespace, "web")) == 3,
            120,
        )
        running = {content["metadata"]["name"]: content for content in _running_of(five_nodes, namespace, "web")}
        assert {content["spec"]["nodeName"] for content in running.values()} <= set(NAMES[MAX_NAMED_NODES:])
        records = five_nodes.client.list(RELAUNCHES, namespace=namespace).items
        new = [record for record in records if record["metadata"]["uid"] not in before]
        relaunched = [(record["spec"]["pod"]["uid"], record["status"]["newPod"]["uid"]) for record in new]
        uids = (bare["metadata"]["uid"], running["alone"]["metadata"]["uid"])
        assert relaunched == ([uids] if namespace == STEERED else [])
        assert "Traceback" not in operator.text()
        assert ("no scheduler uses its nodes" in operator.text()) is (namespace == STEERED)
    finally:
        five_nodes.client.delete(DEPLOYMENTS, "web", namespace, uid=made["metadata"]["uid"])
        eventually("the pods to be gone", lambda: not _emptied(five_nodes, namespace), COLLECTOR_SECONDS)


def _is_running(cluster: Cluster, namespace: str, name: str) -> bool:
    return any(content["metadata"]["name"] == name for content in _running(cluster, namespace))


def _running_of(cluster: Cluster, namespace: str, app: str) -> list[dict[str, Any]]:
    return [
        content for content in _running(cluster, namespace) if content["metadata"].get("labels", {}).get("app") == app
    ]


def _running(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    return [
        content
        for content in cluster.client.list(PODS, namespace=namespace).items
        if content["status"].get("phase") == "Running"
    ]


def _emptied(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """Delete the namespace's pods without waiting for their end; returns those that were still there."""
    remaining = list(cluster.client.list(PODS, namespace=namespace).items)
    for content in remaining:
        cluster.remove(content)
    return remaining
