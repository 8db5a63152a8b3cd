"""A user without any privilege runs a sandbox too. Slow: it starts a control plane and a kubelet."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox.leftovers import assert_nothing_left
from tests.waiting import stretched

import topomend
from topomend.sandbox.releases.build import ensure_binary

NOBODY = 65534

SCRIPT = """
import json, subprocess, time
from topomend.sandbox import NodeSpec, Sandbox
from topomend.sandbox.api import API
import yaml

TOPOMEND = False
spec = NodeSpec.of_shape("one", "numa:2 cores:2 device:a.com/b@1=1", topology_manager_policy="single-numa-node")
with Sandbox.up([spec], name="t", topomend=TOPOMEND) as sandbox:
    config = yaml.safe_load(sandbox.kubeconfig.read_text())
    host, _, port = config["clusters"][0]["cluster"]["server"].removeprefix("https://").partition(":")
    api = API(host, int(port), sandbox.folder / "pki" / "apiserver.crt", config["users"][0]["user"]["token"])
    pods = "/api/v1/namespaces/default/pods"

    def run(name, **limits):
        container = {"name": "c", "image": "none", "resources": {"limits": {"memory": "64Mi", **limits}}}
        assert api.create(pods, {"metadata": {"name": name}, "spec": {"nodeName": "one", "containers": [container]}})
        while (status := api.get(f"{pods}/{name}")["status"])["phase"] == "Pending":
            time.sleep(0.05)
        return status

    print(run("fits", cpu="1", **{"a.com/b": "1"})["phase"])
    print(run("refused", cpu="2")["reason"])
    seen = [*sandbox.exec_prefix("one"), "cat", "/var/lib/kubelet/cpu_manager_state"]
    state = json.loads(subprocess.run(seen, capture_output=True, text=True, check=True).stdout)
    print([cpus for pod in state["entries"].values() for cpus in pod.values()])
    (container,) = sandbox.resources("fits")
    print(sorted(container.cpus), sorted(container.numa_nodes))
"""

NUMA_NODES = """
    topology = api.get("/apis/topomend.io/v1alpha1/nodetopologies/one")
    print(len(topology["status"]["machine"]["numaNodes"]))
    for namespace in ("topomend-system", "topomend-agent"):
        for pod in api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]:
            print(next(one["status"] for one in pod["status"]["conditions"] if one["type"] == "Ready"))
"""


def python_for_nobody() -> list[str]:
    """A command for a Python of this version with these packages that another user may run."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    paths = os.pathsep.join([str(Path(topomend.__file__).parents[1]), packages])
    for python in (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        command = as_nobody([f"PYTHONPATH={paths}", python])
        done = subprocess.run([*command, "-c", "import yaml, grpc, topomend"], capture_output=True, check=False)
        if done.returncode == 0:
            return [f"PYTHONPATH={paths}", python]
    pytest.skip("no Python of this version here that a user other than root may run, for want of x on its folders")


def as_nobody(command: list[str]) -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env", *command]


@pytest.fixture
def cache() -> Iterator[Path]:
    """A cache folder that belongs to nobody, in which the binary is there already."""
    binary = ensure_binary(print)
    folder = Path(tempfile.mkdtemp(prefix="topomend-nobody-"))
    place = folder / "topomend" / "binaries" / binary.parent.name
    place.mkdir(parents=True)
    shutil.copy(binary, place)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.cluster
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; run by one, every test is this test")
def test_an_ordinary_user_sees_pods_run_and_refused(cache: Path) -> None:
    environment = ["HOME=/nonexistent", f"XDG_CACHE_HOME={cache}", *python_for_nobody()]
    done = subprocess.run(
        as_nobody([*environment, "-c", SCRIPT]),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=stretched(120),
    )
    assert done.stdout.splitlines() == ["Running", "TopologyAffinityError", "['2']", "[2] [1]"], done.stderr
    assert_nothing_left(cache)


@pytest.mark.cluster
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; run by one, every test is this test")
def test_an_ordinary_user_has_topomend_run_in_the_sandbox(cache: Path) -> None:
    """up returns once every NodeTopology is Ready: the agent saw the made-up machine and its kubelet's socket. The pods
    are ready too, though the operator's runs as a user that the user namespace does not have."""
    environment = ["HOME=/nonexistent", f"XDG_CACHE_HOME={cache}", *python_for_nobody()]
    script = SCRIPT.replace("TOPOMEND = False", "TOPOMEND = True") + NUMA_NODES
    done = subprocess.run(
        as_nobody([*environment, "-c", script]),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=stretched(240),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == ["2", "True", "True"]
    assert_nothing_left(cache)


def test_a_user_who_may_not_mount_is_told_so_in_one_line(tmp_path: Path) -> None:
    """Where user namespaces are off, and this is not root: the limit of a namespace is this test's own."""
    script = f"""
import os
from pathlib import Path
Path("/proc/sys/user/max_mnt_namespaces").write_text("0")
os.execv({sys.executable!r}, [{sys.executable!r}, "-m", "topomend.cli", "sandbox", "up", "--name", "t"])
"""
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": str(Path(topomend.__file__).parents[1]),
    }
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "this user may not make any" in done.stderr
