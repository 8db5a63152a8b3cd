"""What the agent's DaemonSet may do on a node: as it is installed, and with each overlay, those to come included.

And the agent itself as such a container is: uid 0 without any capability, and nothing that it could write to.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.agent.test_agent_on_cluster import SECRET_FOLDERS
from tests.deploy.api import API
from tests.deploy.manifests import DEPLOY
from tests.deploy.test_install import kubectl
from tests.deploy.test_programs import environment

from topomend.sandbox import Sandbox
from topomend.wire.node_topology import read_conditions, read_node_topology

pytestmark = pytest.mark.cluster  # needs the sandbox's kubectl for its kustomize, and its API server

BASE = "base"
VARIANTS = [BASE, *sorted(path.name for path in (DEPLOY / "overlays").iterdir() if path.is_dir())]

MOUNTED = {
    "/sys": "/sys",
    "/run/udev/data": "/run/udev/data",
    "/var/lib/kubelet/config.yaml": "/var/lib/kubelet/config.yaml",
    "/var/lib/kubelet/pod-resources": "/var/lib/kubelet/pod-resources",
}
"""The node's folders by where the agent finds them. No other of the kubelet's: they hold every pod's secrets."""

MOUNTED_BESIDES = {"kubelet-state": {"/kubelet-state": "/var/lib/kubelet"}}
COVERED = {"kubelet-state": SECRET_FOLDERS}
"""The folders with secrets within it, over each of which an empty one is mounted."""


def daemon_set(variant: str) -> dict[str, Any]:
    folder = DEPLOY if variant == BASE else DEPLOY / "overlays" / variant
    made = [each for each in yaml.safe_load_all(kubectl("kustomize", str(folder))) if each["kind"] == "DaemonSet"]
    (found,) = made
    return dict(found)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_agent_is_root_without_roots_powers(variant: str) -> None:
    pod = daemon_set(variant)["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers", "initContainers"} & pod.keys()
    assert pod["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"ports", "envFrom", "lifecycle", "volumeDevices"} & container.keys()
    assert all("valueFrom" not in each or set(each["valueFrom"]) == {"fieldRef"} for each in container["env"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_agent_sees_of_the_node_only_what_it_reads_and_nothing_can_be_written(variant: str) -> None:
    pod = daemon_set(variant)["spec"]["template"]["spec"]
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


def test_the_overlay_for_the_kubelets_state_adds_nothing_but_that() -> None:
    (base,), (overlay,) = (
        daemon_set(variant)["spec"]["template"]["spec"]["containers"] for variant in (BASE, "kubelet-state")
    )
    added = ("args", "volumeMounts")
    assert {key: value for key, value in overlay.items() if key not in added} == {
        key: value for key, value in base.items() if key not in added
    }
    assert overlay["args"] == [*base["args"], "--kubelet-state=/kubelet-state"]


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
        timeout=60,
    ).stdout.split()
    assert seen == ["0", "CapEff:", "0000000000000000", "NoNewPrivs:", "1"]
    node = cluster.node("split")
    path = "/apis/topomend.io/v1alpha1/nodetopologies/split"
    admin.delete(path)
    arguments = [each.replace("$(NODE_NAME)", "split") for each in _arguments()]
    assert arguments == [
        "agent",
        "--node-name=split",
        f"--kubelet-config={node.kubelet_config}",
        f"--pod-resources={node.pod_resources}",
    ]
    agent = [sys.executable, "-m", "topomend.cli", *arguments, f"--kubelet-state={node.kubelet_state}", "--once"]
    run = subprocess.run(
        powerless(cluster, "split", *agent),
        env=environment(agent_on("split"), tmp_path) | {"PYTHONPATH": str(Path(__file__).parents[2] / "operator")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    written = admin.get(path).content
    admin.delete(path)
    assert {each.type: each.status for each in read_conditions(written)} == dict.fromkeys(
        ("Ready", "HostDiscovered", "KubeletConfigRead", "AllocationsRead"), "True"
    )
    assert read_node_topology(written).devices
    assert "denied" not in run.stderr.lower()


def _arguments() -> list[str]:
    (container,) = daemon_set(BASE)["spec"]["template"]["spec"]["containers"]
    return list(container["args"])
