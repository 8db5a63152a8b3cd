"""Faults on a real API server, one after another: each is named by its code for its object, and nothing else is named.

topomend is installed in a sandbox with real kubelets and found to be sound. Then the kubelets, its programs and the
controllers stop, so that each object stays as the test writes it.
"""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.builders import node_state, pod_manifest
from tests.clusters import served
from tests.waiting import TimedOut, eventually
from verify.kueue.kueue import kinds

from topomend.check.catalogue import CHECKS
from topomend.check.prospect import TOLD
from topomend.cli.kubectl_numa import numa
from topomend.gating.certificates import renewed
from topomend.gating.definitions import STEER, Installation, webhook
from topomend.gating.key_pairs import KeyPairs
from topomend.kube.client import Client, connect
from topomend.kube.kueue import ADMISSION_CHECKS
from topomend.kube.resources import (
    BRAKES,
    CLUSTER_ROLE_BINDINGS,
    DAEMON_SETS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_WEBHOOKS,
    NODE_TOPOLOGIES,
    NODES,
    PODS,
    RESOURCE_SLICES,
    SECRETS,
    STEERINGS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    Resource,
)
from topomend.model.condition import Condition, Summary
from topomend.model.nodes.node_state import NodeState
from topomend.sandbox import NodeSpec, Sandbox
from topomend.wire.condition import condition_fields
from topomend.wire.published.node_topology import status_of
from topomend.wire.queued_workload import CONTROLLER

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

SHAPE = "numa:2 cores:4 memory:4Gi device:vendor.com/gpu@0=1,1=1"
NODE, OTHER = "node-1", "node-2"
SYSTEM, AGENTS = "topomend-system", "topomend-agent"
CRDS = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False)


@dataclass
class Installed:
    """A sandbox with topomend as its manifests install it, whose programs and controllers have stopped."""

    sandbox: Sandbox
    client: Client

    def check(self, *arguments: str) -> Result:
        return CliRunner().invoke(numa, ["check", *arguments, "--kubeconfig", str(self.sandbox.kubeconfig)])

    def named(self) -> set[tuple[str, str]]:
        """The code of each finding and the name of its object; the code of each check that is not done, and why."""
        self.renew()
        result = self.check("-o", "json")
        assert result.stdout, result.output
        document = json.loads(result.stdout)
        findings = {(problem["code"], problem["object"]["name"] or "") for problem in document["problems"]}
        return findings | {(check["code"], check["why"]) for check in document["notDone"]}

    def wait_for(self, expected: set[tuple[str, str]]) -> None:
        """Wait until these findings are named and no others: the API server's caches and schemas follow its objects."""
        with suppress(TimedOut):
            eventually("the findings", lambda: self.named() == expected, poll=0.5)
        assert self.named() == expected, self.check().output

    def renew(self) -> None:
        """What the operator would do if it ran."""
        now = datetime.now(UTC)
        spec = {"holderIdentity": "o_1", "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        self.client.merge(LEASES, "topomend-operator", {"spec": spec}, SYSTEM)

    @contextmanager
    def changed(
        self, resource: Resource, name: str, change: Callable[[Object], Any], namespace: str = "", subresource: str = ""
    ) -> Iterator[None]:
        """An object as ``change`` leaves it, and afterwards as it was."""
        before = self.client.get(resource, name, namespace)
        content = json.loads(json.dumps(before))
        change(content)
        path = resource.path(namespace, name, subresource)

        def put(new: Object) -> bool:
            """The API server itself may write the status of a kind meanwhile, which is a conflict."""
            new["metadata"]["resourceVersion"] = self.client.get(resource, name, namespace)["metadata"][
                "resourceVersion"
            ]
            self.client._ask("PUT", path, new)
            return True

        eventually("the object to be changed", lambda: put(content))
        try:
            yield
        finally:
            eventually("the object to be as it was", lambda: put(before))

    @contextmanager
    def without(self, resource: Resource, name: str, namespace: str = "") -> Iterator[None]:
        """The cluster without an object, which is created again afterwards."""
        before = self.client.get(resource, name, namespace)
        self.client.delete(resource, name, namespace, uid=before["metadata"]["uid"])
        try:
            yield
        finally:
            status = before.pop("status", None)
            for key in ("resourceVersion", "uid", "creationTimestamp", "managedFields", "ownerReferences"):
                before["metadata"].pop(key, None)
            self.client.create(resource, before, namespace)
            if status is not None and resource is not PODS:
                version = self.client.get(resource, name, namespace)["metadata"]["resourceVersion"]
                before["metadata"]["resourceVersion"] = version
                self.client._ask("PUT", resource.path(namespace, name, "status"), {**before, "status": status})

    @contextmanager
    def having(self, resource: Resource, content: Object, namespace: str = "") -> Iterator[Object]:
        made = self.client.create(resource, content, namespace)
        try:
            yield made
        finally:
            now = {"gracePeriodSeconds": 0, "preconditions": {"uid": made["metadata"]["uid"]}}
            self.client._ask("DELETE", resource.path(namespace, made["metadata"]["name"]), now)

    def publishing(self, change: Callable[[Object], Any], node: str = NODE) -> Any:
        """A NodeTopology with a changed status."""
        return self.changed(NODE_TOPOLOGIES, node, lambda content: change(content["status"]), subresource="status")


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    specs = [NodeSpec.of_shape(name, SHAPE, topology_manager_policy="single-numa-node") for name in (NODE, OTHER)]
    with Sandbox.up(specs) as sandbox:
        sandbox.install_topomend()
        client = connect(str(sandbox.kubeconfig))
        cluster = Installed(sandbox, client)
        eventually("check to be content", lambda: cluster.check().stdout.startswith("Nothing is wrong: "))
        topologies = client.list(NODE_TOPOLOGIES).items
        sandbox.stop_controllers()
        for spec in specs:
            sandbox.stop_kubelet(spec.name)
        sandbox._supervisor.stop(
            ["topomend-tokens", "topomend-operator", *(f"topomend-agent-{spec.name}" for spec in specs)]
        )
        for topology in topologies:  # the agents saw their kubelets end
            name = topology["metadata"]["name"]
            client.merge(NODE_TOPOLOGIES, name, {"status": topology["status"]}, subresource="status")
        hold_valid(cluster)
        yield cluster
        client.close()


def hold_valid(cluster: Installed) -> None:
    """Have what the operator renews stay valid without it."""
    later = (datetime.now(UTC) + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for resource, name in ((BRAKES, "topomend-brake"), (STEERINGS, "topomend-steer")):
        cluster.client.merge(resource, name, {"validUntil": later}, SYSTEM)
    cluster.wait_for(set())


def _set(content: Object, path: str, value: Any) -> None:
    """Set the field at ``a.b.c``; numbers are places in lists."""
    *parents, last = path.split("/")
    for part in parents:
        content = content[int(part)] if part.isdigit() else content[part]  # type: ignore[index]
    content[int(last) if last.isdigit() else last] = value  # type: ignore[index]


def setting(path: str, value: Any) -> Callable[[Object], None]:
    return lambda content: _set(content, path, value)


def condition(kind: str, reason: str, status: str = "False") -> Object:
    return condition_fields(Condition(kind, status, reason, "words", "2026-01-01T00:00:00Z"))


def with_conditions(*conditions: Object) -> Callable[[Object], None]:
    """A publication that is not Ready, and says why by these."""
    ready = condition("Ready", conditions[0]["reason"], "True" if conditions[0]["status"] == "True" else "False")
    return setting("conditions", [ready, *conditions])


def state_fields(state: NodeState) -> Callable[[Object], None]:
    """A publication of this machine, these settings and devices."""
    fields = status_of(state, Summary())

    def change(status: Object) -> None:
        for name in ("machine", "kubelet", "devices", "memory", "cpuPool"):
            status.pop(name, None)
            if name in fields:
                status[name] = fields[name]

    return change


def expired() -> KeyPairs:
    pairs = renewed(None, ["h"], datetime.now(UTC) - timedelta(days=4000))
    assert pairs
    return pairs


def untrusted_webhook() -> Object:
    bundle = base64.b64encode(expired().authority).decode()
    client = {"url": "https://127.0.0.1:9/steer", "caBundle": bundle}
    return webhook(Installation(SYSTEM, "topomend-operator"), STEER, client)


RESERVED = ("reservedCPUs", "reservedCPUMillis")

BURSTABLE = pod_manifest("looks-pinned", "cpu=2 memory=16Mi", "request:cpu=100m", node=NODE)

STARTED = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}

CPU_SLICE: Object = {
    "apiVersion": RESOURCE_SLICES.api_version,
    "kind": "ResourceSlice",
    "metadata": {"name": "cpus"},
    "spec": {
        "driver": "dra.cpu",
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "cpudev000"}],
    },
}


def groups(status: Object) -> Iterator[Object]:
    for resource in status["devices"]:
        yield from resource["groups"]


def reserving_beside_the_gpu(status: Object) -> None:
    gpu = {"address": "0000:3b:00.0", "class": "030200", "vendorID": "10de", "deviceID": "2330", "numaNode": 0}
    status["machine"]["pciDevices"] = [gpu]
    status["kubelet"]["reservedCPUs"] = "0-1"


@contextmanager
def asked_by_kueue(cluster: Installed) -> Iterator[None]:
    """An AdmissionCheck for topomend, which no operator with the component answers."""
    definitions = [kind for kind in kinds() if kind["spec"]["names"]["plural"] == ADMISSION_CHECKS.plural]
    head = {"apiVersion": ADMISSION_CHECKS.api_version, "kind": "AdmissionCheck", "metadata": {"name": "numa-fit"}}
    with served(cluster.client, definitions, ADMISSION_CHECKS):
        cluster.client.create(ADMISSION_CHECKS, head | {"spec": {"controllerName": CONTROLLER}})
        yield


@contextmanager
def running(cluster: Installed, content: Object) -> Iterator[None]:
    """A pod whose containers run, as its kubelet would say."""
    statuses = [
        {"name": container["name"], "image": "x", "imageID": "x", "ready": True, "restartCount": 0} | STARTED
        for container in content["spec"]["containers"]
    ]
    with cluster.having(PODS, content, "default"):
        name = content["metadata"]["name"]
        cluster.client.patch_status(PODS, name, {"status": {"containerStatuses": statuses}}, "default")
        yield


FAULTS: dict[str, tuple[Callable[[Installed], Any], set[tuple[str, str]]]] = {
    "the schema of a kind is old": (
        lambda it: it.changed(
            CRDS,
            "relaunches.topomend.io",
            lambda content: content["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"][
                "properties"
            ].pop("counts"),
        ),
        {("TM102", "relaunches.topomend.io")},
    ),
    "the operator is scaled to 0": (
        lambda it: it.changed(DEPLOYMENTS, "topomend-operator", setting("spec/replicas", 0), SYSTEM),
        {("TM103", "topomend-operator")},
    ),
    "no pod of the operator is ready": (
        lambda it: it.changed(
            DEPLOYMENTS,
            "topomend-operator",
            lambda content: [content["status"].pop(f"{which}Replicas", 0) for which in ("ready", "available")],
            SYSTEM,
            "status",
        ),
        {("TM104", "topomend-operator")},
    ),
    "the operator has no second pod": (
        lambda it: it.changed(DEPLOYMENTS, "topomend-operator", setting("spec/replicas", 2), SYSTEM),
        {("TM105", "topomend-operator")},
    ),
    "the Brake has lapsed": (
        lambda it: it.changed(BRAKES, "topomend-brake", setting("validUntil", "2026-01-01T00:00:00Z"), SYSTEM),
        {("TM107", "topomend-brake")},
    ),
    "there is no Steering": (
        lambda it: it.without(STEERINGS, "topomend-steer", SYSTEM),
        {("TM108", "topomend-steer")},
    ),
    "the agents are of another version": (
        lambda it: it.changed(
            DAEMON_SETS,
            "topomend-agent",
            lambda content: content["metadata"]["labels"].update({"app.kubernetes.io/version": "v0.0.9"}),
            AGENTS,
        ),
        {("TM109", "topomend-agent")},
    ),
    "there are no agents": (
        lambda it: it.changed(DAEMON_SETS, "topomend-agent", setting("metadata/labels", {}), AGENTS),
        {("TM111", "")},
    ),
    "a definition has lost its binding": (
        lambda it: it.without(MUTATING_ADMISSION_POLICY_BINDINGS, "topomend-changes"),
        {("TM113", "topomend-changes")},
    ),
    "a wall is missing": (
        lambda it: it.without(VALIDATING_ADMISSION_POLICIES, "topomend-operator"),
        {("TM114", "topomend-operator")},
    ),
    "a wall knows no account": (
        lambda it: it.changed(
            VALIDATING_ADMISSION_POLICY_BINDINGS, "topomend-marks", setting("spec/paramRef/name", "nobody")
        ),
        {("TM115", "topomend-marks")},
    ),
    "an authority has ended": (
        lambda it: it.changed(MUTATING_WEBHOOKS, "topomend-steer", setting("webhooks", [untrusted_webhook()])),
        {("TM116", "topomend-steer")},
    ),
    "the certificate has ended": (
        lambda it: it.changed(SECRETS, "topomend-gating", setting("data", expired().as_secret()), SYSTEM),
        {("TM117", "topomend-gating")},
    ),
    "an account lacks a right": (
        lambda it: it.changed(CLUSTER_ROLES, "topomend-agent", lambda content: content["rules"].pop(0)),
        {("TM119", "topomend-agent")},
    ),
    "preemption is switched off": (
        lambda it: it.without(CLUSTER_ROLE_BINDINGS, "topomend-preemption"),
        {("TM120", "topomend-operator")},
    ),
    "nodes are preferred for claims without the rights": (
        lambda it: it.changed(
            DEPLOYMENTS,
            "topomend-operator",
            lambda content: content["spec"]["template"]["spec"]["containers"][0]["args"].append("--claims"),
            SYSTEM,
        ),
        {("TM120", "topomend-operator")},
    ),
    "Kueue asks and nobody answers": (asked_by_kueue, {("TM123", "numa-fit")}),
    "a node has no publication": (lambda it: it.without(NODE_TOPOLOGIES, OTHER), {("TM201", OTHER)}),
    "an agent is silent": (
        lambda it: it.publishing(setting("heartbeatTime", "2026-01-01T00:00:00Z")),
        {("TM203", NODE)},
    ),
    "an agent is not believed": (
        lambda it: it.publishing(state_fields(node_state("numa:2 cores:64 memory:4Gi"))),
        {("TM204", NODE)},
    ),
    "a machine cannot be read": (
        lambda it: it.publishing(with_conditions(condition("HostDiscovered", "HostUnreadable"))),
        {("TM205", NODE)},
    ),
    "settings are not known": (
        lambda it: it.publishing(with_conditions(condition("KubeletConfigRead", "NotGiven"))),
        {("TM206", NODE)},
    ),
    "allocations are not known": (
        lambda it: it.publishing(with_conditions(condition("AllocationsRead", "PodResourcesUnavailable"))),
        {("TM207", NODE)},
    ),
    "a kubelet would not start again": (
        lambda it: it.publishing(with_conditions(condition("AllocationsRead", "WouldNotStartAgain", "True"))),
        {("TM208", NODE)},
    ),
    "no kubelet starts with these settings": (
        lambda it: it.publishing(setting("kubelet/topologyManagerPolicyOptions", {"nonsense": "true"})),
        {("TM209", NODE)},
    ),
    "no CPU is reserved": (
        lambda it: it.publishing(lambda status: [status["kubelet"].pop(key, 0) for key in RESERVED]),
        {("TM210", NODE)},
    ),
    "reserved CPUs take a NUMA node": (
        lambda it: it.publishing(setting("kubelet/reservedCPUs", "4-7")),
        {("TM211", NODE)},
    ),
    "reserved CPUs are beside the GPU": (
        lambda it: it.publishing(reserving_beside_the_gpu),
        {("TM212", NODE)},
    ),
    "alignment is luck": (
        lambda it: it.publishing(setting("kubelet/topologyManagerPolicy", "best-effort")),
        {("TM213", NODE)},
    ),
    "a plugin names no NUMA node": (
        lambda it: it.publishing(lambda status: [group.pop("numaNodes", 0) for group in groups(status)]),
        {("TM214", NODE)},
    ),
    "a plugin names a NUMA node that is none": (
        lambda it: it.publishing(lambda status: [group.update({"numaNodes": [-1]}) for group in groups(status)]),
        {("TM215", NODE)},
    ),
    "reserved memory does not add up": (
        lambda it: it.publishing(setting("kubelet/reservedMemory/0/limits/memory", "1")),
        {("TM216", NODE)},
    ),
    "two hand out CPUs": (lambda it: it.having(RESOURCE_SLICES, CPU_SLICE), {("TM218", NODE)}),
    "zones have two writers": (
        lambda it: it.publishing(
            lambda status: status["conditions"].append(condition("NodeResourceTopologyPublished", "OtherWriter"))
        ),
        {("TM219", NODE)},
    ),
    "a component may not publish": (
        lambda it: it.publishing(
            lambda status: status["conditions"].append(condition("NodeFeaturePublished", "Forbidden"))
        ),
        {("TM223", NODE)},
    ),
    "a kubelet is of a release that nobody knows": (
        lambda it: it.publishing(setting("kubelet/version", "v1.99.0")),
        {("TM221", NODE)},
    ),
    "a pod looks pinned": (lambda it: running(it, BURSTABLE), {("TM301", "looks-pinned")}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_by_its_code_and_nothing_else_is_named(installed: Installed, fault: str) -> None:
    seed, expected = FAULTS[fault]
    with seed(installed):
        installed.wait_for(expected)
    installed.wait_for(set())


@pytest.fixture
def user(installed: Installed, tmp_path: Path) -> Iterator[Callable[[str], Result]]:
    """Asks check as a user who has one ClusterRole, or none."""
    with ExitStack() as stack:

        def ask(role: str) -> Result:
            name = f"user-of-{role or 'nothing'}"
            if role:
                stack.enter_context(installed.having(CLUSTER_ROLE_BINDINGS, binding(name, role)))
            config = yaml.safe_load(installed.sandbox.kubeconfig.read_text())
            config["users"][0]["user"]["as"] = name
            (tmp_path / "config").write_text(yaml.safe_dump(config))
            if role:
                with closing(connect(str(tmp_path / "config"))) as client:
                    eventually("the role to count", lambda: client.list(NODES).items)
            installed.renew()
            return CliRunner().invoke(numa, ["check", "-o", "json", "--kubeconfig", str(tmp_path / "config")])

        yield ask


def binding(user: str, role: str) -> Object:
    return {
        "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def test_the_role_of_checkers_is_enough_for_all_but_the_secret(user: Callable[[str], Result]) -> None:
    result = user("topomend-checker")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["problems"] == []
    assert [check["code"] for check in document["notDone"]] == ["TM117"]


def test_a_user_without_rights_gets_no_check_for_passed(user: Callable[[str], Result]) -> None:
    result = user("")
    assert result.exit_code == 3, result.output
    document = json.loads(result.stdout)
    assert (document["ok"], document["problems"]) == (False, [])
    assert document["done"] < 5
    assert len(document["notDone"]) == len(CHECKS) - document["done"]
    (nodes,) = (check["why"] for check in document["notDone"] if check["code"] == "TM201")
    assert 'cannot list resource "nodes"' in nodes
    assert "the ClusterRole topomend-checker may" in nodes


def test_before_an_installation_it_says_what_would_change(installed: Installed) -> None:
    result = installed.check("--before")
    assert result.exit_code == 0, result.output
    assert f"(node-1, node-2): {TOLD}" in result.stdout
    assert "Refused pods that are still there: 0" in result.stdout
    document = json.loads(installed.check("--before", "-o", "json").stdout)
    assert document["objects"]["MutatingWebhookConfiguration"] == 4
    assert [kind["names"] for kind in document["nodes"]] == [[NODE, OTHER]]
