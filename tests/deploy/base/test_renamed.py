"""An installation in another namespace and with a prefix: its policies know its own accounts, and everything works.

Installed as docs/run/install.md says, on a cluster of its own: the policies of another installation would limit these
accounts too.
"""

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.manifests import ROOT, objects
from tests.clusters import NODE_A, NODE_B, Cluster, events_of, pod, two_node_cluster
from tests.deploy.api import API, Answer, administrator
from tests.deploy.base.test_install import WORKLOADS, kubectl
from tests.deploy.base.test_policies import record
from tests.deploy.components.test_components import built
from tests.deploy.conftest import token_of
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.drain.leftovers import leftovers
from topomend.kube.resources import NAMESPACES, PODS
from topomend.sandbox.processes.host import free_addresses
from topomend.wire import group

pytestmark = pytest.mark.cluster

HOME, PREFIX = "numa", "acme-"

PORTS = (8081, 8443, 9400)
"""On which the operator listens as it is deployed."""
"""As in the example of docs/run/install.md."""

OPERATOR, AGENT, READER = (f"{PREFIX}topomend-{name}" for name in ("operator", "agent", "kubelet-reader"))
STEERED = "steered"
PODS_PATH = "/api/v1/namespaces/default/pods"
RELAUNCHES = f"/apis/{group.API_VERSION}/namespaces/default/relaunches"
POLICIES = "/apis/admissionregistration.k8s.io/v1"

_names = (f"renamed-{number}" for number in count())


def renamed(folder: Path, *components: str) -> list[dict[str, Any]]:
    """The base under other names, by the kustomization that docs/run/install.md has, with these components."""
    (example,) = re.findall(
        r"```\n(resources:.*?namePrefix:.*?)```", (ROOT / "docs" / "run" / "install.md").read_text(), re.DOTALL
    )
    fields = yaml.safe_load(example)
    assert (fields["namespace"], fields["namePrefix"]) == (HOME, PREFIX)
    del fields["resources"]
    return built(folder, *components, **fields)


def key(item: dict[str, Any]) -> str:
    return f"{item['kind']} {item['metadata']['name']}"


def test_no_object_names_anything_as_it_was_called_before(tmp_path: Path) -> None:
    """But the parameter objects of policies, which the operator creates under their own names."""
    for item in renamed(tmp_path):
        if item["kind"] == "CustomResourceDefinition":
            continue
        assert item["metadata"].get("namespace", HOME) == HOME, key(item)  # kubectl drops that of some policies
        text = yaml.safe_dump(item, width=10_000).replace(PREFIX + "topomend-", "")
        named = set(re.findall(r"(?<![\w.$-])topomend-[a-z-]+", text))
        assert named <= {group.BRAKE_NAME, group.STEERING_NAME, "topomend-kubelet-reader"}, key(item)
        assert ("topomend-kubelet-reader" in named) == (key(item) == f"ValidatingAdmissionPolicy {READER}"), key(item)


def test_agents_on_openshift_require_the_constraints_by_their_new_name(tmp_path: Path) -> None:
    items = {item["kind"]: item for item in renamed(tmp_path, "openshift")}
    required = items["DaemonSet"]["spec"]["template"]["metadata"]["annotations"]["openshift.io/required-scc"]
    assert required == items["SecurityContextConstraints"]["metadata"]["name"] == AGENT


def _runnable(item: dict[str, Any]) -> dict[str, Any]:
    """The Deployment with one pod of an image that the sandbox has, which requests no CPU."""
    if item["kind"] == "Deployment":
        item["spec"]["replicas"] = 1
        (container,) = item["spec"]["template"]["spec"]["containers"]
        container["image"] = "sandbox/pause"
        del container["resources"], container["livenessProbe"]
    return item


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes, and everything of the base but the agents."""
    with two_node_cluster() as cluster:
        folder = tmp_path_factory.mktemp("kustomize")
        items = [_runnable(item) for item in renamed(folder) if item["kind"] != "DaemonSet"]
        (folder / "all.yaml").write_text(yaml.safe_dump_all(items))
        apply = ("apply", "--server-side", "--force-conflicts", "-f", str(folder / "all.yaml"))
        kubectl(*apply, kubeconfig=cluster.sandbox.kubeconfig)
        labels = {"topomend.io/steer": "enabled"}
        metadata = {"name": STEERED, "labels": labels}
        cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> API:
    return administrator(cluster.sandbox.kubeconfig)


def replacement(**spec: Any) -> dict[str, Any]:
    annotations = {group.RECORD_ANNOTATION: "train-1", group.REPLACES_ANNOTATION: "1"}
    gates = [{"name": group.RELAUNCH_GATE}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": next(_names), "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "none"}], "schedulingGates": gates, **spec},
    }


def _is_denied_by(answer: Answer, policy: str, prefix: str = PREFIX) -> bool:
    return answer.code == 403 and f"'{prefix}{policy}'" in answer.message


def test_the_policies_bind_the_operator_under_its_new_name(admin: API) -> None:
    operator = admin.as_token(token_of(admin, HOME, OPERATOR))
    forbidden = replacement(hostNetwork=True)
    eventually("the policy", lambda: _is_denied_by(operator.create(PODS_PATH, forbidden), "topomend-operator"))
    elsewhere = f"/api/v1/namespaces/{HOME}/pods"
    assert "belongs to the cluster or to topomend" in operator.create(elsewhere, replacement()).message
    made = operator.create(PODS_PATH, replacement())
    assert made.allowed, made.message
    assert group.CREATOR_ANNOTATION not in made.content["metadata"]["annotations"]
    admin.delete(f"{PODS_PATH}/{made.content['metadata']['name']}")


BRAKE = {"apiVersion": group.API_VERSION, "kind": group.BRAKE, "metadata": {"name": group.BRAKE_NAME}}


def check_that_strangers_write_nothing(admin: API, home: str, prefix: str, former_operator: str) -> None:
    """Somebody with every right there is but to change policies, and one of the name that another operator had."""
    rules = [{"apiGroups": ["", "topomend.io"], "resources": ["*"], "verbs": ["*"]}]
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "strangers"}}
    roles = "/apis/rbac.authorization.k8s.io/v1"
    assert admin.apply(f"{roles}/clusterroles/strangers", head | {"kind": "ClusterRole", "rules": rules}).allowed
    subjects = [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "strangers"}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "strangers"}
    binding = head | {"kind": "ClusterRoleBinding", "subjects": subjects, "roleRef": reference}
    assert admin.apply(f"{roles}/clusterrolebindings/strangers", binding).allowed
    brakes = f"/apis/{group.API_VERSION}/namespaces/{home}/brakes"
    for user in ("jane", former_operator):
        stranger = admin.impersonating(user, "strangers")
        for path, policy, content in (
            (RELAUNCHES, "topomend-relaunch", record(next(_names))),
            (brakes, "topomend-parameter", BRAKE),
            (PODS_PATH, "topomend-marks", replacement()),
        ):
            eventually(
                f"the policy {policy}",
                functools.partial(_create_is_denied_by, stranger, path, content, policy, prefix),
            )


def _create_is_denied_by(by: API, path: str, content: dict[str, Any], policy: str, prefix: str) -> bool:
    return _is_denied_by(by.create(path, content, dry_run=True), policy, prefix)


def test_what_the_operator_alone_may_write_it_writes_and_no_stranger_does(admin: API) -> None:
    """A stranger with every right there is but to change policies, and one of the name that the operator had."""
    operator = admin.as_token(token_of(admin, HOME, OPERATOR))
    brakes = f"/apis/{group.API_VERSION}/namespaces/{HOME}/brakes"
    check_that_strangers_write_nothing(admin, HOME, PREFIX, "system:serviceaccount:topomend-system:topomend-operator")
    made = operator.create(RELAUNCHES, record(next(_names)))
    assert made.allowed, made.message
    assert operator.create(brakes, BRAKE).allowed
    assert admin.delete(f"{brakes}/{group.BRAKE_NAME}").allowed
    assert admin.delete(f"{RELAUNCHES}/{made.content['metadata']['name']}").allowed


def test_an_agent_writes_its_own_nodes_object_and_asks_for_the_readers_token_alone(admin: API) -> None:
    topologies = f"/apis/{group.API_VERSION}/nodetopologies"
    content = {"apiVersion": group.API_VERSION, "kind": group.NODE_TOPOLOGY, "metadata": {"name": "foreign"}}
    without_node = admin.as_token(token_of(admin, HOME, AGENT))
    eventually("the policy", lambda: _is_denied_by(without_node.create(topologies, content), "topomend-agent"))
    spec = {"serviceAccountName": AGENT, "nodeName": NODE_A, "containers": [{"name": "agent", "image": "none"}]}
    home = f"/api/v1/namespaces/{HOME}"
    made = admin.create(
        f"{home}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent"}, "spec": spec}
    )
    assert made.allowed, made.message
    agent = admin.as_token(token_of(admin, HOME, AGENT, made.content))
    assert _is_denied_by(agent.create(topologies, content), "topomend-agent")
    own = agent.create(topologies, content | {"metadata": {"name": NODE_A}})
    assert own.allowed, own.message
    node = admin.get(f"/api/v1/nodes/{NODE_A}").content["metadata"]["uid"]
    bound = {"apiVersion": "v1", "kind": "Node", "name": NODE_A, "uid": node}
    tokens = f"{home}/serviceaccounts/{READER}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    answer = agent.create(tokens, request | {"spec": {"expirationSeconds": 600, "boundObjectRef": bound}})
    assert answer.allowed, answer.message
    lasting = agent.create(tokens, request | {"spec": {"expirationSeconds": 86_400}})
    assert _is_denied_by(lasting, "topomend-kubelet-reader")
    admin.delete(f"{home}/pods/agent")
    admin.delete(f"{topologies}/{NODE_A}")


def test_the_operator_gates_and_relaunches_there_and_a_drain_leaves_nothing(
    cluster: Cluster, admin: API, tmp_path: Path
) -> None:
    operator = _start_as_deployed(cluster, admin, tmp_path)
    try:
        operator.wait_until_it_watches()
        cluster.fragment()
        made = cluster.create(pod("train", 3, preferred=NODE_A))
        moved = eventually("its replacement to run", lambda: _runs_anew(cluster, made))
        assert moved["spec"]["nodeName"] == NODE_B
        cluster.remove(moved)
        for name in ("filler-2", "filler-3"):
            cluster.occupy(NODE_B, name, 2)
        eventually("new pods to be gated", lambda: _is_gated_at_birth(admin))
        waits = cluster.create(pod("waits", 3), STEERED)
        assert waits["spec"]["schedulingGates"] == [{"name": group.FIT_GATE}]
        eventually("it to be told what it waits for", lambda: events_of(cluster, waits, "UngateDeferred"))
        assert cluster.get("waits", STEERED)["spec"]["schedulingGates"] == [{"name": group.FIT_GATE}]
        assert "Forbidden" not in operator.text()
        assert "Traceback" not in operator.text()
    finally:
        operator.terminate()
        print(operator.text())
    drained = subprocess.run(
        [str(Path(sys.executable).with_name("kubectl-numa")), "drain", f"--operator-namespace={HOME}"],
        env={**os.environ, "KUBECONFIG": str(cluster.sandbox.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    print(drained.stdout)
    assert drained.returncode == 0, drained.stderr
    assert f"Deployment {HOME}/{OPERATOR}: scaled to 0" in drained.stdout
    assert "schedulingGates" not in cluster.get("waits", STEERED)["spec"]
    assert [left for left in map(leftovers, cluster.pods()) if left.any] == []
    assert admin.get(f"{POLICIES}/mutatingadmissionpolicybindings").content["items"] == []


def test_strangers_stay_out_of_an_installation_that_follows_another_under_other_names(
    cluster: Cluster, admin: API, tmp_path: Path
) -> None:
    """The API server's policies then read their parameters from ClusterRoleBindings of other names."""
    (tmp_path / "first.yaml").write_text(yaml.safe_dump_all(renamed(tmp_path)))
    (tmp_path / "second.yaml").write_text(
        yaml.safe_dump_all(item for item in objects() if item["kind"] not in WORKLOADS)
    )
    kubeconfig = cluster.sandbox.kubeconfig
    kubectl("delete", "--ignore-not-found", "-f", str(tmp_path / "first.yaml"), kubeconfig=kubeconfig)
    kubectl("apply", "--server-side", "-f", str(tmp_path / "second.yaml"), kubeconfig=kubeconfig)
    home, name = "topomend-system", "topomend-operator"
    check_that_strangers_write_nothing(admin, home, "", f"system:serviceaccount:{HOME}:{OPERATOR}")
    operator = admin.as_token(token_of(admin, home, name))
    forbidden = replacement(hostNetwork=True)
    eventually("the policy", lambda: _is_denied_by(operator.create(PODS_PATH, forbidden), name, ""))
    for path, content in (
        (RELAUNCHES, record(next(_names))),
        (f"/apis/{group.API_VERSION}/namespaces/{home}/brakes", BRAKE),
        (PODS_PATH, replacement()),
    ):
        answer = operator.create(path, content, dry_run=True)
        assert answer.allowed, answer.message


def _start_as_deployed(cluster: Cluster, admin: API, folder: Path) -> Operator:
    """The operator's process with the arguments, the names and the token of its pod."""
    labels = "app.kubernetes.io/component=operator"
    own = eventually("the operator's pod", lambda: cluster.client.list(PODS, namespace=HOME, labels=labels).items)[0]
    metadata, container = own["metadata"], own["spec"]["containers"][0]
    values = {"POD_NAME": metadata["name"], "POD_NAMESPACE": metadata["namespace"], "POD_UID": metadata["uid"]}
    # Its ports are fixed, and on loopback other tests' programs may have them.
    values["POD_IP"], values["POD_SERVICE_ACCOUNT"] = free_addresses(1, PORTS)[0], own["spec"]["serviceAccountName"]
    written = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    assert written == {"TOPOMEND_GATING_SERVICE": f"{PREFIX}topomend-gating"}
    assert {entry["name"] for entry in container["env"]} == {*values, *written}
    program, *flags = [re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], word) for word in container["args"]]
    assert program == "operator"
    own_pod = (
        f"--pod-name={values['POD_NAME']}",
        f"--pod-uid={values['POD_UID']}",
        f"--service-account={values['POD_SERVICE_ACCOUNT']}",
        f"--gating-service={written['TOPOMEND_GATING_SERVICE']}",
    )
    configuration = yaml.safe_load(cluster.sandbox.kubeconfig.read_text())
    configuration["users"][0]["user"] = {"token": token_of(admin, HOME, own["spec"]["serviceAccountName"], own)}
    path = folder / "operator.kubeconfig"
    path.touch(0o600)
    path.write_text(yaml.safe_dump(configuration))
    return Operator(path, folder / "operator.log", *flags, *own_pod)


def _runs_anew(cluster: Cluster, made: dict[str, Any]) -> dict[str, Any] | None:
    current = cluster.running(made["metadata"]["name"])
    return current if current and current["metadata"]["uid"] != made["metadata"]["uid"] else None


def _is_gated_at_birth(admin: API) -> bool:
    answer = admin.apply(f"/api/v1/namespaces/{STEERED}/pods/tried", pod("tried", 3), dry_run=True)
    return bool(answer.allowed and answer.content["spec"].get("schedulingGates"))
