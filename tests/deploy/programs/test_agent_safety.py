"""The privileges of the agent's DaemonSet on a node, as installed and with each component, including future ones.

And the agent itself as such a container is: uid 0 without any capability, and nothing that it could write to.
"""

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.test_agent_on_cluster import SECRET_FOLDERS
from tests.deploy.api import API
from tests.deploy.components.test_components import COMPONENTS, built
from tests.deploy.programs.test_programs import environment

from topomend.sandbox import Sandbox
from topomend.sandbox.processes.host import free_addresses
from topomend.wire.published.node_topology import read_conditions, read_node_topology

pytestmark = pytest.mark.cluster  # needs the sandbox's kubectl for its kustomize, and its API server

BASE = "base"
VARIANTS = [BASE, *COMPONENTS]

MOUNTED = {
    "/sys": "/sys",
    "/run/udev/data": "/run/udev/data",
    "/var/lib/kubelet/pod-resources": "/var/lib/kubelet/pod-resources",
}
"""The node's folders by where the agent finds them. No other of the kubelet's: they hold every pod's secrets."""

MOUNTED_BESIDES = {
    "kubelet-state": {"/kubelet-state": "/var/lib/kubelet"},
    "kubeadm": {"/kubelet-state": "/var/lib/kubelet"},
    "kubelet-root": {"/var/lib/kubelet/pod-resources": "/data/kubelet/pod-resources"},
    "aks": {"/host/etc/default": "/etc/default"},
    "eks-al2": {"/host/etc/kubernetes/kubelet": "/etc/kubernetes/kubelet"},
    "eks-al2023": {"/host/etc/kubernetes/kubelet": "/etc/kubernetes/kubelet"},
    "bottlerocket": {"/host/etc/kubernetes/kubelet": "/etc/kubernetes/kubelet"},
    "k3s": {"/host/kubelet.conf.d": "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"},
    "rke2": {"/host/kubelet.conf.d": "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d"},
    "microk8s": {
        "/host/args": "/var/snap/microk8s/current/args",
        "/var/lib/kubelet/pod-resources": "/var/snap/microk8s/common/var/lib/kubelet/pod-resources",
    },
}
COVERED = {"kubelet-state": SECRET_FOLDERS, "kubeadm": SECRET_FOLDERS}
"""The folders with secrets within it, over each of which an empty one is mounted."""

SELINUX = {"openshift": {"seLinuxOptions": {"type": "container_device_plugin_t", "level": "s0"}}}


def daemon_set(variant: str, folder: Path) -> dict[str, Any]:
    (made,) = (item for item in built(folder, *{variant} - {BASE}) if item["kind"] == "DaemonSet")
    return made


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_agent_is_root_without_roots_powers(variant: str, tmp_path: Path) -> None:
    pod = daemon_set(variant, tmp_path)["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers", "initContainers"} & pod.keys()
    as_root = {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["securityContext"] == as_root | SELINUX.get(variant, {})
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["ports"] == [
        {"name": "health", "containerPort": 8081},
        {"name": "metrics", "containerPort": 9400},
    ]
    assert not {"envFrom", "lifecycle", "volumeDevices"} & container.keys()
    assert all(
        "valueFrom" not in variable or set(variable["valueFrom"]) == {"fieldRef"} for variable in container["env"]
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_agent_sees_of_the_node_only_what_it_reads_and_nothing_can_be_written(variant: str, tmp_path: Path) -> None:
    pod = daemon_set(variant, tmp_path)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert not [mount for mount in container["volumeMounts"] if "mountPropagation" in mount]
    kinds = {volume["name"]: next(kind for kind in volume if kind != "name") for volume in pod["volumes"]}
    hosts = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert set(kinds.values()) <= {"hostPath", "emptyDir"}
    mounted = {
        mount["mountPath"]: hosts[mount["name"]] for mount in container["volumeMounts"] if mount["name"] in hosts
    }
    assert mounted == MOUNTED | MOUNTED_BESIDES.get(variant, {})
    covers = {mount["mountPath"] for mount in container["volumeMounts"] if kinds[mount["name"]] == "emptyDir"}
    assert covers == {f"/kubelet-state/{folder}" for folder in COVERED.get(variant, ())}


def test_the_component_for_the_kubelets_state_adds_nothing_but_that(tmp_path: Path) -> None:
    (base,), (component,) = (
        daemon_set(variant, tmp_path)["spec"]["template"]["spec"]["containers"] for variant in (BASE, "kubelet-state")
    )
    added = ("args", "env", "volumeMounts")
    assert {key: value for key, value in component.items() if key not in added} == {
        key: value for key, value in base.items() if key not in added
    }
    root = {"name": "KUBELET_ROOT", "value": "/var/lib/kubelet"}
    assert component["args"] == [
        *base["args"],
        "--kubelet-state=/kubelet-state",
        "--kubelet-root-dir=$(KUBELET_ROOT)",
    ]
    assert component["env"] == [*base["env"], root]


POWERLESS = "mount -o remount,bind,ro / && exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs -- " + '"$@"'
"""In a mount namespace of its own."""


def powerless(cluster: Sandbox, node: str, *command: str) -> list[str]:
    """A command as the agent's container runs it: uid 0, no capability, a root that cannot be written to."""
    shell = ["unshare", "--mount", "--propagation=slave", "--", "sh", "-c", POWERLESS, "sh"]
    return [*cluster.exec_prefix(node), *shell, *command]


def test_the_agent_does_all_its_work_without_any_capability_and_with_a_read_only_root(
    admin: API, agent_on: Callable[[str], API], cluster: Sandbox, tmp_path: Path
) -> None:
    seen = subprocess.run(
        powerless(
            cluster, "split", "sh", "-c", "id -u; grep -E '^(CapEff|NoNewPrivs)' /proc/self/status; ! touch /tried"
        ),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    ).stdout.split()
    assert seen == ["0", "CapEff:", "0000000000000000", "NoNewPrivs:", "1"]
    node = cluster.node("split")
    path = "/apis/topomend.io/v1alpha1/nodetopologies/split"
    admin.delete(path)
    arguments = _arguments(tmp_path)
    assert arguments == [
        "agent",
        "--node-name=$(NODE_NAME)",
        "--kubelet-address=$(NODE_IP)",
        "--kubelet-reader=$(POD_NAMESPACE)/$(KUBELET_READER)",
        f"--pod-resources={node.pod_resources}",
        "--health-address=$(POD_IP):8081",
        "--metrics-address=$(POD_IP):9400",
    ]
    meant = {
        "$(NODE_NAME)": "split",
        "$(NODE_IP)": "127.0.0.1",
        "$(POD_IP)": free_addresses(1, (8081, 9400))[0],  # another test's program may have the ports elsewhere
        "$(POD_NAMESPACE)": "topomend-agent",
        "$(KUBELET_READER)": "topomend-kubelet-reader",
    }
    arguments = [
        functools.reduce(lambda text, name: text.replace(name, meant[name]), meant, argument) for argument in arguments
    ]
    agent = [sys.executable, "-m", "topomend.cli", *arguments, f"--kubelet-state={node.kubelet_state}", "--once"]
    run = subprocess.run(
        powerless(cluster, "split", *agent),
        env=environment(agent_on("split"), tmp_path) | {"PYTHONPATH": str(Path(__file__).parents[3] / "operator")},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr
    written = admin.get(path).content
    admin.delete(path)
    assert {condition.type: condition.status for condition in read_conditions(written)} == dict.fromkeys(
        ("Ready", "HostDiscovered", "KubeletConfigRead", "AllocationsRead"), "True"
    )
    assert read_node_topology(written).devices
    assert "denied" not in run.stderr.lower()


def _arguments(folder: Path) -> list[str]:
    (container,) = daemon_set(BASE, folder)["spec"]["template"]["spec"]["containers"]
    return list(container["args"])
