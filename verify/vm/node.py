"""The virtual machine as a node of a cluster: its disk, its kubelet with containerd, and topomend as it is installed.

Owns the setup of the node and the requests of tests. The tests are in the modules that end in ``_on_qemu``.
"""

import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from deploy.manifests import objects
from tests.deploy.api import API, administrator, path_of
from tests.waiting import stretched
from verify.e2e.containers.node import CNI_CONFIG, CONTAINERD_CONFIG, RUNTIME_SETTINGS, containerd_config
from verify.e2e.images import IDLE, idle_image, topomend_image
from verify.vm import machine
from verify.vm.disk import FIRST_PROCESS, write_disk
from verify.vm.initramfs import write_initramfs
from verify.vm.parts import fetch_parts
from verify.vm.qemu import GuestFailed, VirtualMachine, accelerator

from topomend.model.machine import Machine
from topomend.model.nodes.node_state import NodeState
from topomend.sandbox import NodeSpec, Sandbox
from topomend.sandbox.layout import KUBELET_CONFIG, KUBELET_ROOT
from topomend.sandbox.node.kubelet import kubelet_config, kubelet_flags
from topomend.sandbox.releases.build import ensure_binary
from topomend.wire.published.node_topology import read_conditions, read_node_topology

NODE = "vm"
SPEC = NodeSpec.of_shape(
    NODE, "sockets:1 numa:4 cores:2 threads:1 memory:1Gi", topology_manager_policy="single-numa-node"
)
"""The node before the machine replaces it, and the settings of its kubelet: CPU 0 is reserved."""

AGENT = "topomend-agent"
"""The agent's DaemonSet and its namespace."""

PODS_PATH = "/api/v1/namespaces/default/pods"

API_ADDRESS, API_PORT = "10.96.0.1", 443
"""The Service ``kubernetes``, which the API server's certificate names."""

ADDRESS, OUTSIDE = "10.0.2.15", "10.0.2.2"
"""The node's own address, and the address that QEMU forwards to this machine's loopback."""

POD_NETWORK = "10.244.0.0/24"

KUBELET = "/bin/topomend-sandbox"
KUBELET_LOG, RUNTIME_LOG, RELAY_LOG = "/run/kubelet.log", "/run/containerd.log", "/run/relay.log"
AGENT_LOGS = f"/var/log/pods/{AGENT}_*/agent/*.log"

NOTICED_SECONDS = 60.0
"""How long the publication of a change may take. The tests print the actual seconds."""

STARTED_SECONDS = 300.0
"""How long kubelet and agent may take to start."""


@dataclass(frozen=True)
class Guest:
    """The machine and its published state. ``kubeconfig`` is the administrator's."""

    vm: VirtualMachine
    admin: API
    kubeconfig: Path

    def published(self) -> dict[str, Any]:
        """The NodeTopology; empty if there is none."""
        answer = self.admin.get(f"/apis/topomend.io/v1alpha1/nodetopologies/{NODE}")
        return dict(answer.content) if answer.allowed else {}

    def state(self) -> NodeState:
        """The published state of the node."""
        return read_node_topology(self.published())

    def machine(self) -> Machine:
        """The published machine."""
        return self.state().machine

    def pods(self) -> list[dict[str, Any]]:
        """All pods of the node, from the API server."""
        pods: list[dict[str, Any]] = self.admin.get("/api/v1/pods").content["items"]
        return [pod for pod in pods if pod["spec"].get("nodeName") == NODE]

    def status(self, pod: str) -> dict[str, Any]:
        """The status of a pod in the default namespace."""
        return dict(self.admin.get(f"{PODS_PATH}/{pod}").content["status"])

    def create_pod(self, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Create a pod and return the API server's object."""
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        answer = self.admin.create(PODS_PATH, pod)
        assert answer.allowed, answer.message
        return dict(answer.content)

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and message of a condition; empty if it does not exist."""
        conditions = read_conditions(self.published()) if self.published() else []
        return next(((one.status, one.message) for one in conditions if one.type == kind), ("", ""))

    def discover(self) -> Machine:
        """The machine that ``topomend discover`` reads in the agent's own container."""
        (agent,) = [pod for pod in self.pods() if pod["metadata"]["namespace"] == AGENT]
        container = agent["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
        inside = ["ctr", "--namespace", "k8s.io", "tasks", "exec", "--exec-id", "discover", container]
        return read_node_topology(json.loads(self.vm.run(*inside, "topomend", "discover", "-o", "json"))).machine

    def within_seconds(self, goal: str, true: Callable[[], bool], seconds: float = NOTICED_SECONDS) -> None:
        """Wait until ``true`` returns true, and print how long that took."""
        began = time.monotonic()
        while not true():
            if time.monotonic() - began > stretched(seconds):
                pytest.fail(f"{goal}: not within {stretched(seconds):.0f} s. {self.published()}\n{self._logs()}")
            time.sleep(0.1)
        print(f"{goal}: after {time.monotonic() - began:.1f} s")

    def _logs(self) -> str:
        files = f"{RELAY_LOG} {RUNTIME_LOG} {KUBELET_LOG} {AGENT_LOGS}"
        pods = {pod["metadata"]["name"]: pod["status"] for pod in self.pods()}
        return f"{json.dumps(pods)}\n{self.vm.run('sh', '-c', f'tail -n 30 {files}; true')}"


@contextmanager
def booted() -> Iterator[Guest]:
    """The machine, with topomend installed in its cluster; neither kubelet nor containerd runs yet.

    Raises Unavailable. The kubelet of this node starts outside first: that makes its account and its Node. Then the
    machine takes its place.
    """
    VirtualMachine.program()
    parts = fetch_parts()
    images = {"idle.tar": idle_image(print), "topomend.tar": topomend_image(_tag(), print)}
    with TemporaryDirectory(prefix="topomend-vm-") as name, Sandbox.up([SPEC], on_progress=print) as sandbox:
        folder, admin = Path(name), administrator(sandbox.kubeconfig)
        _install(admin)
        sandbox.stop_kubelet(NODE)
        disk, initramfs = folder / "disk", folder / "initramfs"
        began = time.monotonic()
        with TemporaryDirectory(dir=folder) as staging:
            write_disk(disk, Path(staging), parts, _files(sandbox, admin, images))
        with TemporaryDirectory(dir=folder) as staging:
            write_initramfs(initramfs, Path(staging), parts, FIRST_PROCESS)
        print(f"wrote the machine's disk in {time.monotonic() - began:.0f} s")
        accel = accelerator(folder, parts.kernel, machine.flags(disk))
        began = time.monotonic()
        with VirtualMachine(folder, [*accel, *machine.flags(disk), *_boot(parts.kernel, initramfs)]) as vm:
            vm.wait_for_boot()
            print(f"booted {parts.kernel.name} in {time.monotonic() - began:.0f} s ({' '.join(accel)})")
            yield Guest(vm, admin, sandbox.kubeconfig)


def start_node(guest: Guest) -> None:
    """Start containerd and the kubelet, import the images, and wait until the agent is ready."""
    python = FIRST_PROCESS.split()[0]
    port = guest.admin.server.rpartition(":")[2]
    guest.vm.start([python, "-I", "/relay.py", API_ADDRESS, str(API_PORT), OUTSIDE, port], RELAY_LOG)
    guest.vm.start(["containerd", "--config", str(CONTAINERD_CONFIG)], RUNTIME_LOG)
    guest.within_seconds("containerd", functools.partial(_answers, guest, "ctr", "version"), STARTED_SECONDS)
    began = time.monotonic()
    for archive in sorted(guest.vm.run("sh", "-c", "echo /images/*").split()):
        guest.vm.run("ctr", "--namespace", "k8s.io", "images", "import", archive)
    print(f"images imported in {time.monotonic() - began:.0f} s")
    guest.vm.start([KUBELET, "kubelet", *_kubelet_flags()], KUBELET_LOG)
    guest.within_seconds("Ready", lambda: guest.condition("Ready")[0] == "True", STARTED_SECONDS)


def _answers(guest: Guest, *argv: str) -> bool:
    try:
        guest.vm.run(*argv)
    except GuestFailed:
        return False
    return True


def _tag() -> str:
    """The image's tag in the manifests."""
    (daemon_set,) = [item for item in objects() if item["kind"] == "DaemonSet"]
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    return str(container["image"].partition(":")[2])


def _install(admin: API) -> None:
    """Install all manifests but the operator's: it needs no NUMA machine, and ``make e2e`` runs it from the image."""
    for item in objects():
        if item["kind"] != "Deployment":
            answer = admin.apply(path_of(item), item)
            assert answer.allowed, answer.message


def _files(sandbox: Sandbox, admin: API, images: Mapping[str, Path]) -> dict[str, str | Path]:
    """The files of the disk other than programs."""
    kubeconfig = sandbox.folder / "nodes" / NODE / "kubelet" / "kubeconfig"
    return {
        "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
        "/etc/group": "root:x:0:\n",
        "/etc/hosts": "127.0.0.1 localhost\n",
        str(CONTAINERD_CONFIG): containerd_config("overlayfs", IDLE, "/usr/lib/cni"),
        str(CNI_CONFIG): json.dumps(_pod_network()),
        "/setup.json": json.dumps(_setup()),
        KUBELET: ensure_binary(print),
        str(KUBELET_CONFIG): yaml.safe_dump(_kubelet_config()),
        str(KUBELET_ROOT / "kubeconfig"): kubeconfig.read_text().replace(admin.server, f"https://{API_ADDRESS}"),
        **{f"/images/{name}": archive for name, archive in images.items()},
    }


def _kubelet_config() -> dict[str, Any]:
    """The sandbox's settings of that node, changed for real containers and cgroups."""
    return {
        **kubelet_config(SPEC, port=10250, user_namespace=False),
        "address": "0.0.0.0",  # noqa: S104 - of the machine that QEMU emulates, which nobody reaches
        **RUNTIME_SETTINGS,
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["pods"],
        "podLogsDir": "/var/log/pods",
    }


def _kubelet_flags() -> list[str]:
    """The sandbox's, but that this node has an address, which no cloud provider is waited for to tell."""
    flags = [flag for flag in kubelet_flags(SPEC) if not flag.startswith("--cloud-provider=")]
    return [*flags, f"--node-ip={ADDRESS}"]


def _pod_network() -> dict[str, Any]:
    """Pods reach only their own node, which has the address of the Service ``kubernetes``."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": POD_NETWORK}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "ipam": ipam}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _setup() -> list[str]:
    """Shell scripts that the machine runs first."""
    nodes = "/sys/devices/system/node"
    return [
        "ldconfig",
        f"ip link set lo up; ip link set eth0 up; ip address add {ADDRESS}/24 dev eth0",
        f"ip address add {API_ADDRESS}/32 dev lo; ip route add default via {OUTSIDE}",
        *(
            f"echo {node.hugepages} > {nodes}/node{node.id}/hugepages/hugepages-2048kB/nr_hugepages"
            for node in machine.NODES
        ),
    ]


def _boot(kernel: Path, initramfs: Path) -> list[str]:
    words = f"console=ttyS0 panic=-1 mitigations=off intel_iommu=on isolcpus={machine.ISOLATED}"
    return ["-kernel", str(kernel), "-initrd", str(initramfs), "-append", words]
