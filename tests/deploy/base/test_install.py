"""The manifests themselves: in step with each other, with the package and with Kubernetes' security standards."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.manifests import DEPLOY, INSTALL, ROOT, install_yaml, objects
from tests.deploy.api import API, path_of
from tests.waiting import eventually

import topomend
from topomend.runtime.manifests import documents
from topomend.sandbox import Sandbox
from topomend.sandbox.releases.build import ensure_binary

WORKLOADS = {item["kind"]: item for item in objects() if item["kind"] in {"DaemonSet", "Deployment"}}


def key(item: dict[str, Any]) -> tuple[str, str, str]:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def kubectl(*arguments: str, kubeconfig: Path | None = None) -> str:
    """The sandbox's own kubectl, of the version that its cluster has."""
    options = [] if kubeconfig is None else [f"--kubeconfig={kubeconfig}"]
    run = subprocess.run(
        [str(ensure_binary(print)), "kubectl", *options, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_one_file_is_in_step_with_the_manifests() -> None:
    assert INSTALL.read_text() == install_yaml(), "run: python -m deploy.manifests > deploy/install.yaml"


@pytest.mark.cluster  # needs the sandbox's kubectl
def test_kustomize_collects_the_same_objects_and_workloads_last() -> None:
    built = {key(item): item for item in documents(kubectl("kustomize", str(DEPLOY)))}
    assert built == {key(item): item for item in documents(INSTALL.read_text())}
    kinds = [item["kind"] for item in built.values()]
    assert kinds[-3:] == ["DaemonSet", "Deployment", "PodDisruptionBudget"]


def test_every_object_carries_the_common_labels() -> None:
    for item in objects():
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == labels["app.kubernetes.io/part-of"] == "topomend", key(item)
        assert labels["app.kubernetes.io/component"] in {"crds", "agent", "operator", "viewer"}, key(item)


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_workload_runs_this_version_and_selects_its_own_pods(kind: str) -> None:
    item = WORKLOADS[kind]
    assert item["metadata"]["labels"]["app.kubernetes.io/version"] == f"v{topomend.__version__}"
    pod = item["spec"]["template"]
    assert [container["image"] for container in pod["spec"]["containers"]] == [f"topomend:v{topomend.__version__}"]
    assert item["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    account = next(
        content for content in objects() if key(content)[0] == "ServiceAccount" and key(content)[1:] == key(item)[1:]
    )
    assert pod["spec"]["serviceAccountName"] == account["metadata"]["name"]


def test_the_policies_read_the_accounts_that_pods_are_installed_with() -> None:
    """No expression names one, so that an installation under other names is held as well."""
    accounts = {
        (key(item)[1], item["spec"]["template"]["spec"]["serviceAccountName"]): item["metadata"]["name"]
        for item in WORKLOADS.values()
    }
    roles = {key(item)[2]: item["subjects"] for item in objects() if item["kind"] == "ClusterRoleBinding"}
    for (namespace, name), binding in accounts.items():
        assert roles[binding] == [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
    policies = {key(item)[::2]: item for item in objects() if item["kind"].endswith("AdmissionPolicy")}
    bindings = [item for item in objects() if item["kind"].endswith("AdmissionPolicyBinding")]
    assert len(bindings) == len(policies)
    for binding in bindings:
        spec = binding["spec"]
        policy = policies[binding["kind"].removesuffix("Binding"), spec["policyName"]]
        assert "system:serviceaccount:topomend" not in yaml.safe_dump(policy, width=10_000)
        if policy["spec"].get("paramKind", {}).get("kind") == "ClusterRoleBinding":
            assert spec["paramRef"]["name"] in accounts.values()
        if binding["kind"] == "ValidatingAdmissionPolicyBinding":
            assert spec["validationActions"] == ["Deny"]


# On a real API server


@pytest.mark.cluster
@pytest.mark.parametrize(
    "arguments",
    [
        ("-f", "crds/"),
        ("-k", "deploy"),
        ("-f", "deploy/install.yaml"),
        ("-k", "deploy/overlays/kubelet-state"),
        ("-k", "deploy/overlays/node-resource-topology"),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("admin")
def test_what_users_are_told_to_apply_is_accepted(cluster: Sandbox, arguments: tuple[str, str]) -> None:
    applied = kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", *arguments, kubeconfig=cluster.kubeconfig
    )
    assert "nodetopologies.topomend.io serverside-applied" in applied
    assert ("daemonset.apps/topomend-agent serverside-applied" in applied) == (arguments != ("-f", "crds/"))


@pytest.mark.cluster
@pytest.mark.parametrize("kind", WORKLOADS)
def test_pod_security_lets_a_workloads_pods_in(admin: API, kind: str) -> None:
    item = WORKLOADS[kind]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "tried", "namespace": item["metadata"]["namespace"]},
        "spec": item["spec"]["template"]["spec"],
    }
    answer = admin.apply(path_of(pod), pod, dry_run=True)
    assert answer.allowed, answer.message


@pytest.mark.cluster
def test_pod_security_keeps_the_host_out_of_the_operators_namespace(admin: API) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "tried", "namespace": "topomend-system"},
        "spec": WORKLOADS["DaemonSet"]["spec"]["template"]["spec"] | {"serviceAccountName": "topomend-operator"},
    }
    assert admin.apply(path_of(pod), pod, dry_run=True).code == 403


@pytest.mark.cluster
def test_the_policies_expressions_are_well_typed(admin: API) -> None:
    def checked() -> list[Any]:
        items = admin.get("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies").content["items"]
        ours = [policy for policy in items if policy["metadata"]["name"].startswith("topomend-")]
        return [policy["status"]["typeChecking"] for policy in ours if "typeChecking" in policy.get("status", {})]

    policies = [item for item in objects() if item["kind"] == "ValidatingAdmissionPolicy"]
    eventually("the types of every policy", lambda: len(checked()) == len(policies))
    assert checked() == [{}] * len(policies)


@pytest.mark.cluster
@pytest.mark.parametrize("field", ["nodetopology", "nodetopology.status", "relaunch.spec", "relaunch.status"])
@pytest.mark.usefixtures("admin")
def test_kubectl_explains_every_field(cluster: Sandbox, field: str) -> None:
    text = kubectl("explain", field, kubeconfig=cluster.kubeconfig)
    assert "DESCRIPTION:" in text
    assert "<no description>" not in text


@pytest.mark.cluster
def test_the_columns_are_those_of_the_design(admin: API, cluster: Sandbox) -> None:
    item = {"apiVersion": "topomend.io/v1alpha1", "kind": "NodeTopology", "metadata": {"name": "deploy-tests-columns"}}
    assert admin.apply(path_of(item), item).allowed
    ready = {"type": "Ready", "status": "True", "reason": "Known", "message": ""}
    summary = {
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "container",
        "kubeletVersion": "v1.36.3",
        "numaNodes": 2,
        "cpusFree": "8,52",
        "memoryFree": "18Gi,1Gi",
        "devices": 4,
        "status": "complete",
    }
    status = {"summary": summary, "conditions": [ready | {"lastTransitionTime": "2026-01-02T03:04:05Z"}]}
    assert admin.patch(f"{path_of(item)}/status", {"status": status}).allowed
    table = kubectl("get", "ntopo", "deploy-tests-columns", "-o", "wide", kubeconfig=cluster.kubeconfig)
    admin.delete(path_of(item))
    head, row = table.splitlines()
    assert head.split() == (
        ["NAME", "POLICY", "SCOPE", "NUMA", "CPUS-FREE", "DEVICES", "READY", "AGE", "MEM-FREE", "STATUS", "KUBELET"]
    )
    assert row.split()[1:7] == ["single-numa-node", "container", "2", "8,52", "4", "True"]
    assert row.split()[8:] == ["18Gi,1Gi", "complete", "v1.36.3"]
