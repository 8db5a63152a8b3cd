"""With the component ``claims``, gated pods go where free devices of their claims are beside their CPUs.

Of two nodes that admit the pods and have a device for each, topomend's own order and the scheduler's both prefer the
one where the devices are on another NUMA node than the CPUs: it is the smaller one, and the other one is busier.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest
import yaml
from click.testing import CliRunner
from deploy.manifests import DEPLOY, objects
from tests.builders import pod_manifest
from tests.clusters import COLLECTOR_SECONDS, Cluster, agents_on, cluster_of, pod, shown, steer
from tests.deploy.api import API, administrator, path_of
from tests.deploy.conftest import token_of
from tests.deploy.rights import wait_for_rights
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.kube.resources import NODE_TOPOLOGIES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_SLICES
from topomend.runtime.manifests import documents
from topomend.sandbox import NodeSpec
from topomend.sandbox.plan import ETCD
from topomend.sandbox.processes.supervisor_client import read_status

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

NEAR, FAR = "near", "far"
SHAPES = {
    NEAR: "numa:2 cores:12 memory:2Gi dra:vendor.com/gpu@0=10",
    FAR: "numa:2 cores:11 memory:2Gi dra:vendor.com/gpu@1=10",
}
"""Ten pods of one CPU each are on NUMA 0: its CPU 0 is reserved."""

NAMESPACE, TEMPLATE = "steered", "gpu"
PATIENT = {"reconcile.placement.claimed_devices.READING_SECONDS": 60.0}
STILL_SECONDS = 0.8
RIGHTS = ("ClusterRole", "ClusterRoleBinding", "Namespace", "Role", "RoleBinding", "ServiceAccount")


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Cluster]:
    specs = [NodeSpec.of_shape(*named, topology_manager_policy="single-numa-node") for named in SHAPES.items()]
    with cluster_of(specs) as cluster, agents_on(cluster):
        eventually("the agents to publish", lambda: len(cluster.client.list(NODE_TOPOLOGIES).items) == len(SHAPES))
        eventually("the devices", lambda: len(cluster.client.list(RESOURCE_SLICES).items) == len(SHAPES))
        steer(cluster, NAMESPACE)
        requests = [{"name": "one", "exactly": {"deviceClassName": "gpu.vendor.com"}}]
        template = {
            "apiVersion": RESOURCE_CLAIM_TEMPLATES.api_version,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": TEMPLATE},
            "spec": {"spec": {"devices": {"requests": requests}}},
        }
        cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template, NAMESPACE)
        cluster.create(pod_manifest("busy", "request:cpu=5500m", node=NEAR))
        eventually("the filler to run", lambda: cluster.running("busy"))
        yield cluster


@pytest.fixture(scope="module")
def admin(two_nodes: Cluster) -> API:
    """The administrator, who has given the operator the rights of the base."""
    api = administrator(two_nodes.sandbox.kubeconfig)
    items = [item for item in objects() if item["kind"] in RIGHTS]
    for item in items:
        assert api.apply(path_of(item), item).allowed
    wait_for_rights(api, items)
    return api


@contextmanager
def operator_on(cluster: Cluster, admin: API, folder: Path, *flags: str) -> Iterator[Operator]:
    """An operator under its own account, which has seen the cluster. It asks for devices for as long as it takes."""
    configuration = yaml.safe_load(cluster.sandbox.kubeconfig.read_text())
    configuration["users"][0]["user"] = {"token": token_of(admin, "topomend-system", "topomend-operator")}
    path = folder / "operator.kubeconfig"
    path.write_text(yaml.safe_dump(configuration))
    path.chmod(0o600)
    operator = Operator(path, folder / "operator.log", *flags, constants=PATIENT)
    try:
        operator.wait_until_it_watches()
        yield operator
    finally:
        operator.terminate()
        print(operator.text())


Run = Callable[[int], Counter[tuple[str, str]]]


@pytest.fixture
def run(two_nodes: Cluster) -> Iterator[Run]:
    """Run so many pods with a claim each; counts them by node and by how ``aligned`` tells their containers."""
    yield partial(_run, two_nodes)
    for content in two_nodes.client.list(PODS, namespace=NAMESPACE).items:
        two_nodes.remove(content)
    eventually("the claims to be gone", lambda: not two_nodes.client.list(RESOURCE_CLAIMS).items, COLLECTOR_SECONDS)
    eventually("the nodes to be empty", lambda: all(shown(two_nodes, node) <= {"busy"} for node in SHAPES), 60)


def _run(cluster: Cluster, pods: int) -> Counter[tuple[str, str]]:
    for number in range(pods):
        content = pod(f"train-{number}", 1)
        content["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
        content["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        content["spec"]["terminationGracePeriodSeconds"] = 0
        cluster.create(content, NAMESPACE)
    return Counter(eventually("all alignments to be told", partial(_told, cluster, pods), 120))


def _told(cluster: Cluster, pods: int) -> list[tuple[str, str]] | None:
    """Node and alignment of each container; None before all are known."""
    arguments = ["aligned", "-n", NAMESPACE, "-o", "json", "--kubeconfig", str(cluster.sandbox.kubeconfig)]
    asked = CliRunner().invoke(numa, arguments)
    if not asked.stdout:  # the API server gave no answer in time
        return None
    containers = json.loads(asked.stdout)["containers"]
    told = [(each["node"], each["alignment"]) for each in containers if not each["unknown"]]
    return told if len(told) == pods else None


def test_without_the_component_pods_go_where_their_devices_are_apart(
    run: Run, two_nodes: Cluster, admin: API, tmp_path: Path
) -> None:
    with operator_on(two_nodes, admin, tmp_path):
        assert run(4) == {(FAR, "socket"): 4}


def test_without_the_rights_it_says_so_and_pods_go_there_too(
    run: Run, two_nodes: Cluster, admin: API, tmp_path: Path
) -> None:
    with operator_on(two_nodes, admin, tmp_path, "--claims") as operator:
        assert run(2) == {(FAR, "socket"): 2}
        assert "no node is preferred for the devices of claims: they cannot be read: " in operator.text()


@contextmanager
def etcd_stands_still(cluster: Cluster, operator: Operator) -> Iterator[None]:
    """For a moment once the operator has let the first pod go, as where its disk is busy: it asks for the next one."""
    etcd = psutil.Process(read_status(cluster.sandbox.folder)["programs"][ETCD]["pid"])

    def stand_still() -> None:
        eventually("the first pod to be let go", lambda: "Ungated" in operator.text(), poll=0.001)
        etcd.suspend()
        time.sleep(STILL_SECONDS)
        etcd.resume()

    thread = threading.Thread(target=stand_still)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_with_the_component_ten_of_ten_pods_are_aligned_even_if_etcd_stands_still_meanwhile(
    run: Run, two_nodes: Cluster, admin: API, tmp_path: Path
) -> None:
    items = documents((DEPLOY / "components" / "claims" / "role.yaml").read_text())
    for item in items:
        assert admin.apply(path_of(item), item).allowed
    wait_for_rights(admin, items)
    with operator_on(two_nodes, admin, tmp_path, "--claims") as operator, etcd_stands_still(two_nodes, operator):
        assert run(10) == {(NEAR, "numa-node"): 10}
        assert "free devices of its claims are beside its CPUs there: near NUMA 0" in operator.text()
