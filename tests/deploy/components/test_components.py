"""The parts that users add to the base, alone and together, as kustomize builds and an API server takes them."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.manifests import DEPLOY, ROOT, objects
from tests.deploy.api import API, path_of
from tests.deploy.base.test_install import kubectl

from topomend.runtime.manifests import documents

pytestmark = pytest.mark.cluster  # needs the sandbox's kubectl

COMPONENTS = sorted(path.name for path in (DEPLOY / "components").iterdir())
LAYOUTS = ("aks", "bottlerocket", "eks-al2", "eks-al2023", "k3s", "microk8s", "rke2")
"""Those that mount one folder, which holds no secret."""

OF_OPENSHIFT, OF_PROMETHEUS = "security.openshift.io/v1", "monitoring.coreos.com/v1"
"""Groups that a plain API server does not serve."""


def built(folder: Path, *components: str, **more: Any) -> list[dict[str, Any]]:
    """The base with these components, in their order, and ``more`` in the kustomization."""
    kustomization: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(DEPLOY, folder)],
        "components": [os.path.relpath(DEPLOY / "components" / name, folder) for name in components],
        **more,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return documents(kubectl("kustomize", str(folder)))


def pod_of(items: list[dict[str, Any]]) -> dict[str, Any]:
    """The spec of the agent's pods."""
    spec: dict[str, Any] = next(item for item in items if item["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    return spec


def host_paths(pod: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Path and type of each volume of the host's."""
    volumes = (volume for volume in pod["volumes"] if "hostPath" in volume)
    return {volume["name"]: (volume["hostPath"]["path"], volume["hostPath"].get("type", "")) for volume in volumes}


BASE = {
    "sys": ("/sys", "Directory"),
    "udev-data": ("/run/udev/data", "DirectoryOrCreate"),
    "pod-resources": ("/var/lib/kubelet/pod-resources", "DirectoryOrCreate"),
}


def test_the_base_needs_nothing_of_a_host_that_some_host_lacks() -> None:
    """A folder of type "" is made by the container runtime, one of type File keeps the pod in ContainerCreating."""
    assert host_paths(pod_of(objects())) == BASE


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_keeps_what_the_base_asks_and_mounts_folders_alone(tmp_path: Path, name: str) -> None:
    pod, base = pod_of(built(tmp_path, name)), pod_of(objects())
    assert set(base["containers"][0]["args"]) <= set(pod["containers"][0]["args"])
    assert {kind for _, kind in host_paths(pod).values()} <= {"Directory", "DirectoryOrCreate"}


@pytest.mark.parametrize("overlay", sorted(path.name for path in (DEPLOY / "overlays").iterdir()))
def test_an_overlay_is_the_base_and_the_component_of_its_name(tmp_path: Path, overlay: str) -> None:
    made = documents(kubectl("kustomize", str(DEPLOY / "overlays" / overlay)))
    assert made == built(tmp_path, overlay)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_adds_one_folder_and_flags_that_lead_into_it(tmp_path: Path, name: str) -> None:
    pod = pod_of(built(tmp_path, name))
    (added,) = host_paths(pod).keys() - BASE.keys()
    path, kind = host_paths(pod)[added]
    assert kind == "DirectoryOrCreate"
    assert path not in ("/etc/kubernetes", "/etc", "/var/lib/kubelet", "/home/kubernetes")
    mount = next(mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == added)
    flags = set(pod["containers"][0]["args"]) - set(pod_of(objects())["containers"][0]["args"])
    assert flags
    assert all(flag.partition("=")[2].startswith(mount["mountPath"]) for flag in flags)


@pytest.mark.parametrize(
    ("components", "root"),
    [
        (("kubelet-root",), "/data/kubelet"),
        (("kubelet-root", "kubelet-state"), "/data/kubelet"),
        (("kubelet-root", "kubeadm", "node-resource-topology"), "/data/kubelet"),
        (("microk8s", "kubelet-state"), "/var/snap/microk8s/common/var/lib/kubelet"),
        (("eks-al2023", "kubelet-state"), "/var/lib/kubelet"),
    ],
    ids=str,
)
def test_another_root_folder_is_one_setting(tmp_path: Path, components: tuple[str, ...], root: str) -> None:
    pod = pod_of(built(tmp_path, *components))
    paths = host_paths(pod)
    assert paths["pod-resources"][0] == f"{root}/pod-resources"
    assert paths.get("kubelet-state", (root, ""))[0] == root
    named = [each["value"] for each in pod["containers"][0]["env"] if each["name"] == "KUBELET_ROOT"]
    assert named == ([root] if "kubelet-state" in paths else []), "the files that conditions name are the host's"


def patches_of_the_documentation() -> list[dict[str, Any]]:
    text = (ROOT / "docs" / "run" / "layouts.md").read_text()
    return [yaml.safe_load(example) for example in re.findall(r"```\n(patches:\n.*?)```", text, re.DOTALL)]


def test_the_patch_that_the_documentation_has_covers_files_with_credentials_where_the_agent_would_find_them(
    tmp_path: Path,
) -> None:
    _, covering = patches_of_the_documentation()
    before, pod = (pod_of(built(tmp_path, "kubelet-state", **more)) for more in ({}, covering))
    assert host_paths(pod) == host_paths(before) | {"no-file": ("/dev/null", "CharDevice")}
    added = pod["containers"][0]["volumeMounts"][len(before["containers"][0]["volumeMounts"]) :]
    assert {(mount["mountPath"], mount["name"]) for mount in added} == {
        ("/kubelet-state/config.json", "no-file"),
        ("/kubelet-state/bootstrap-kubeconfig", "no-file"),
        ("/kubelet-state/kubeconfig", "no-file"),
        ("/kubelet-state/image_manager", "nothing"),
    }
    assert all(mount["readOnly"] for mount in added)


def test_the_patch_that_the_documentation_has_takes_one_cover_out(tmp_path: Path) -> None:
    without_pki, _ = patches_of_the_documentation()
    mounts = pod_of(built(tmp_path, "kubelet-state", **without_pki))["containers"][0]["volumeMounts"]
    covered = {mount["mountPath"] for mount in mounts if mount["name"] == "nothing"}
    assert covered == {f"/kubelet-state/{name}" for name in ("pods", "plugins", "plugins_registry", "checkpoints")}


@pytest.mark.parametrize("name", COMPONENTS)
def test_an_api_server_takes_what_a_component_makes(tmp_path: Path, admin: API, name: str) -> None:
    for item in built(tmp_path, name):
        if item["apiVersion"] not in (OF_OPENSHIFT, OF_PROMETHEUS) and item["kind"] != "CustomResourceDefinition":
            answer = admin.apply(path_of(item), item, dry_run=True)
            assert answer.allowed, answer.message


# Prometheus


@pytest.mark.parametrize("name", ["pod-monitor", "service-monitor"])
def test_a_monitor_finds_the_port_that_the_pods_serve(tmp_path: Path, name: str) -> None:
    items = built(tmp_path, name)
    monitors = [item for item in items if item["apiVersion"] == OF_PROMETHEUS]
    assert {item["metadata"]["namespace"] for item in monitors} == {"topomend-system", "topomend-agent"}
    for monitor in monitors:
        labels, home = monitor["spec"]["selector"]["matchLabels"], monitor["metadata"]["namespace"]
        of_services = [item for item in items if item["kind"] == "Service" and item["spec"].get("clusterIP") == "None"]
        chosen = [item for item in of_services if labels.items() <= item["metadata"]["labels"].items()]
        selectors = [item["spec"]["selector"] for item in chosen] if name == "service-monitor" else [labels]
        assert len(selectors) == 1
        (workload,) = (
            item
            for item in items
            if item["kind"] in ("DaemonSet", "Deployment")
            and item["metadata"]["namespace"] == home
            and selectors[0].items() <= item["spec"]["template"]["metadata"]["labels"].items()
        )
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        assert {"name": "metrics", "containerPort": 9400} in container["ports"]
        assert "--metrics-address=$(POD_IP):9400" in container["args"]


# OpenShift


def test_openshift_lets_the_agent_be_exactly_what_it_is(tmp_path: Path) -> None:
    items = built(tmp_path, "openshift")
    (constraints,) = (item for item in items if item["apiVersion"] == OF_OPENSHIFT)
    pod = pod_of(items)
    assert constraints["runAsUser"] == {"type": "MustRunAs", "uid": pod["securityContext"]["runAsUser"]}
    assert constraints["seLinuxContext"]["seLinuxOptions"] == pod["securityContext"]["seLinuxOptions"]
    kinds = {next(kind for kind in volume if kind != "name") for volume in pod["volumes"]}
    assert kinds <= set(constraints["volumes"])
    assert constraints["requiredDropCapabilities"] == pod["containers"][0]["securityContext"]["capabilities"]["drop"]
    powers = {key: value for key, value in constraints.items() if key.startswith("allow") and value}
    assert powers == {"allowHostDirVolumePlugin": True}
    (role,) = (item for item in items if item["kind"] == "Role" and item["metadata"]["name"] == "topomend-agent-scc")
    assert role["rules"][0]["resourceNames"] == [constraints["metadata"]["name"]]
    assert role["rules"][0]["verbs"] == ["use"]


def test_openshift_leaves_the_labels_of_pod_security_alone(tmp_path: Path) -> None:
    namespaces = [item for item in built(tmp_path, "openshift") if item["kind"] == "Namespace"]
    assert len(namespaces) == 2
    for namespace in namespaces:
        labels = namespace["metadata"]["labels"]
        assert labels["security.openshift.io/scc.podSecurityLabelSync"] == "false"
        assert labels["pod-security.kubernetes.io/enforce"] in ("privileged", "restricted")


# Observing


def test_an_operator_that_observes_may_write_events_alone_and_nothing_acts_on_pods(tmp_path: Path) -> None:
    items = built(tmp_path, "observe")
    bound = {
        (binding["roleRef"]["kind"], binding["roleRef"]["name"])
        for binding in items
        if binding["kind"] in ("ClusterRoleBinding", "RoleBinding")
        and any(subject["name"] == "topomend-operator" for subject in binding["subjects"])
    }
    rules = [rule for item in items if (item["kind"], item["metadata"]["name"]) in bound for rule in item["rules"]]
    written = [rule for rule in rules if set(rule["verbs"]) - {"get", "list", "watch"}]
    assert written == [{"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}]
    assert not [item for item in items if item["kind"] in ("MutatingWebhookConfiguration", "Secret", "Service")]
    policies = [item for item in items if item["kind"] == "ValidatingAdmissionPolicy"]
    asked = {
        resource.partition("/")[0]
        for policy in policies
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }
    assert not asked & {"pods", "nodes"}
    (operator,) = (item for item in items if item["kind"] == "Deployment")
    assert "--mode=observe" in operator["spec"]["template"]["spec"]["containers"][0]["args"]
