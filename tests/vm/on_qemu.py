"""The agent and a real kubelet on a machine whose NUMA nodes and PCI buses QEMU emulates: ``make vm-test``.

Its name keeps it out of ``make test``: it needs QEMU and some minutes. Everything is real but the processors: Debian's
kernel, sysfs, device messages, a kubelet inside, the sandbox's API server outside, and the agent under the account
that the manifests give it.
"""

import functools
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from tests.deploy.api import API, administrator, path_of
from tests.deploy.manifests import objects
from tests.vm import image, machine
from tests.vm.qemu import VirtualMachine

import topomend
from topomend.kube.access import SERVICE_ACCOUNT
from topomend.model.bitmask import mask_of, members
from topomend.model.machine import Machine, PCIDevice
from topomend.model.node_state import NodeState, PodAllocation
from topomend.model.pci_distance import PCIDistance, pci_distance
from topomend.replay.admission import admit
from topomend.sandbox import NodeSpec, Sandbox
from topomend.sandbox.build import ensure_binary
from topomend.sandbox.kubelet import CRI_SOCKET, KUBELET_WORK, kubelet_config, kubelet_flags
from topomend.sandbox.layout import KUBELET_CONFIG, KUBELET_ROOT, POD_RESOURCES
from topomend.wire.node_topology import read_conditions, read_node_topology
from topomend.wire.pod import read_pod

NODE = "vm"
SPEC = NodeSpec.of_shape(
    NODE, "sockets:1 numa:4 cores:2 threads:1 memory:1Gi", topology_manager_policy="single-numa-node"
)
"""How the node begins, before the machine takes its place, and how its kubelet is set: CPU 0 is reserved."""

AGENT = "topomend-agent"
"""The agent's account, and the namespace of it."""

PODS_PATH = "/api/v1/namespaces/default/pods"
PODS = (
    ("first", "2", "200Mi"),
    ("across-nodes", "4", "64Mi"),
    ("second", "2", "100Mi"),
    ("too-much-memory", "3", "1100Mi"),
    ("third", "2", "64Mi"),
    ("too-late", "2", "64Mi"),
)
"""Name, CPUs and memory of pods that come one after the other, of which three find a NUMA node."""

GATEWAY = "10.96.0.1"
"""Where the machine finds this one: the address of the Service ``kubernetes``, which the API server's certificate
names. QEMU leads it to loopback."""

GUEST_ADDRESS = "10.96.0.2/24"

TOPOMEND = (sys.executable, "-m", "topomend.cli")
AGENT_LOG, KUBELET_LOG, RUNTIME_LOG = "/run/agent.log", "/run/kubelet.log", "/run/runtime.log"
KUBELET = "/bin/topomend-sandbox"

NOTICED_SECONDS = 60.0
"""How long any change may take to be published. The seconds that it took are printed."""

STARTED_SECONDS = 300.0
"""How long kubelet and agent may take to start."""

MIB = 1 << 20


@dataclass(frozen=True)
class Guest:
    """The machine, and what is published of it."""

    vm: VirtualMachine
    admin: API

    def published(self) -> dict[str, Any]:
        """The NodeTopology; empty where there is none."""
        answer = self.admin.get(f"/apis/topomend.io/v1alpha1/nodetopologies/{NODE}")
        return dict(answer.content) if answer.allowed else {}

    def state(self) -> NodeState:
        """The node as it is published."""
        return read_node_topology(self.published())

    def machine(self) -> Machine:
        """The machine as it is published."""
        return self.state().machine

    def shows(self, pod: str, held: list[PodAllocation]) -> bool:
        """Whether that is what the pod holds, as it is published."""
        return [each for each in self.state().pods if each.name == pod] == held

    def fate_of(self, pod: str) -> tuple[str, str]:
        """Phase and reason of a pod, once the kubelet has decided."""
        status: dict[str, Any] = {}

        def decided() -> bool:
            status.update(self.admin.get(f"{PODS_PATH}/{pod}").content["status"])
            return status["phase"] in {"Running", "Failed"}

        self.within_seconds(f"pod {pod} decided", decided)
        return status["phase"], status.get("reason", "")

    def create_pod(self, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Make a pod; the object as the API server completed it."""
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        answer = self.admin.create(PODS_PATH, pod)
        assert answer.allowed, answer.message
        return dict(answer.content)

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and message of a condition; empty where there is none."""
        found = [each for each in read_conditions(self.published()) if each.type == kind] if self.published() else []
        return (found[0].status, found[0].message) if found else ("", "")

    def within_seconds(self, what: str, true: Callable[[], bool], seconds: float = NOTICED_SECONDS) -> None:
        """Wait until that is so, and print how long it took."""
        began = time.monotonic()
        while not true():
            if time.monotonic() - began > seconds:
                logs = self.vm.run("sh", "-c", f"tail -n 20 {AGENT_LOG} {KUBELET_LOG}")
                pytest.fail(f"{what}: not within {seconds:.0f} s. {self.published()}\n{logs}")
            time.sleep(0.1)
        print(f"{what}: after {time.monotonic() - began:.1f} s")


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    """The machine, booted."""
    try:
        VirtualMachine.program()
        parts = image.fetch_parts()
    except image.Unavailable as error:
        pytest.exit(f"the virtual machine cannot be made: {error}", returncode=1)
    # The kubelet of this node starts here first: that makes its account and its Node. Then the machine takes its place.
    with TemporaryDirectory(prefix="topomend-vm-") as name, Sandbox.up([SPEC], on_progress=print) as sandbox:
        folder, admin = Path(name), administrator(sandbox.kubeconfig)
        _install(admin)
        sandbox.stop_kubelet(NODE)
        initramfs, staging = folder / "initramfs", folder / "staging"
        staging.mkdir()
        image.write_initramfs(initramfs, staging, parts, _files(sandbox, admin))
        began = time.monotonic()
        with VirtualMachine(folder, _flags(parts.kernel, initramfs)) as vm:
            vm.wait_for_boot()
            print(f"booted {parts.kernel.name} in {time.monotonic() - began:.0f} s")
            yield Guest(vm, admin)


@pytest.fixture(scope="module")
def node(guest: Guest) -> Guest:
    """The machine with a real kubelet, and the agent that is ready beside it."""
    guest.vm.start([KUBELET, "cri", str(CRI_SOCKET)], RUNTIME_LOG)
    in_folder = ["sh", "-c", f'cd {KUBELET_WORK}; exec "$@"', "sh"]
    guest.vm.start([*in_folder, KUBELET, "kubelet", *kubelet_flags(SPEC)], KUBELET_LOG)
    argv = [*TOPOMEND, "agent", f"--node-name={NODE}", f"--kubelet-config={KUBELET_CONFIG}"]
    argv += [f"--pod-resources={POD_RESOURCES}", f"--kubelet-state={KUBELET_ROOT}"]
    guest.vm.start(_in_shell(*argv), AGENT_LOG)
    guest.within_seconds("Ready", lambda: guest.condition("Ready")[0] == "True", STARTED_SECONDS)
    return guest


def _install(admin: API) -> None:
    """What a user installs, but for the programs."""
    for item in objects():
        if item["kind"] not in {"DaemonSet", "Deployment"}:
            answer = admin.apply(path_of(item), item)
            assert answer.allowed, answer.message


def _files(sandbox: Sandbox, admin: API) -> dict[str, str | Path]:
    """What the machine holds beside Python and the agent."""
    port = int(admin.server.rpartition(":")[2])
    config = kubelet_config(SPEC, port=10250, user_namespace=False)
    kubeconfig = sandbox.folder / "nodes" / NODE / "kubelet" / "kubeconfig"
    return {
        "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
        "/etc/group": "root:x:0:\n",
        "/setup.json": json.dumps(_setup(port)),
        KUBELET: ensure_binary(print),
        "/etc/kubernetes/config.yaml": yaml.safe_dump(dict(config)),
        "/etc/kubernetes/kubeconfig": kubeconfig.read_text().replace(admin.server, f"https://{GATEWAY}:{port}"),
        f"{SERVICE_ACCOUNT}/ca.crt": admin.authority,
        f"{SERVICE_ACCOUNT}/token": _token(admin),
    }


def _setup(port: int) -> list[str]:
    """Shell scripts that the machine begins with."""
    nodes = "/sys/devices/system/node"
    environment = {
        "PYTHONPATH": Path(topomend.__file__).parents[1],
        "KUBERNETES_SERVICE_HOST": GATEWAY,
        "KUBERNETES_SERVICE_PORT": port,
    }
    return [
        "ldconfig",
        "ip link set lo up; ip link set eth0 up",
        f"ip address add {GUEST_ADDRESS} dev eth0",
        *(
            f"echo {node.hugepages} > {nodes}/node{node.id}/hugepages/hugepages-2048kB/nr_hugepages"
            for node in machine.NODES
        ),
        # A file system that the kubelet can measure, unlike the one that the machine starts from.
        f"mkdir -p {KUBELET_ROOT}; mount -t tmpfs tmpfs {KUBELET_ROOT}",
        f"mkdir -p {KUBELET_ROOT}/device-plugins {KUBELET_ROOT}/work /var/log",
        f"cp /etc/kubernetes/config.yaml /etc/kubernetes/kubeconfig {KUBELET_ROOT}/",
        f"echo export {' '.join(f'{name}={text}' for name, text in environment.items())} > /etc/profile",
    ]


def _token(admin: API) -> str:
    """The agent's token, as its pod on the node has it; good for a machine that is slow."""
    spec = {"serviceAccountName": AGENT, "nodeName": NODE, "containers": [{"name": "agent", "image": "none"}]}
    pod = admin.create(
        f"/api/v1/namespaces/{AGENT}/pods",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent"}, "spec": spec},
    )
    assert pod.allowed, pod.message
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "agent", "uid": pod.content["metadata"]["uid"]}
    request = {"expirationSeconds": 7200, "boundObjectRef": bound}
    answer = admin.create(
        f"/api/v1/namespaces/{AGENT}/serviceaccounts/{AGENT}/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": request},
    )
    assert answer.allowed, answer.message
    return str(answer.content["status"]["token"])


def _flags(kernel: Path, initramfs: Path) -> list[str]:
    network = f"user,id=net,ipv6=off,net={GATEWAY.rpartition('.')[0]}.0/24,host={GATEWAY}"
    words = f"console=ttyS0 panic=-1 mitigations=off intel_iommu=on isolcpus={machine.ISOLATED}"
    return [
        *("-accel", "tcg,thread=multi"),
        *machine.flags(),
        *("-netdev", network),
        *("-kernel", str(kernel), "-initrd", str(initramfs), "-append", words),
    ]


def _in_shell(*argv: str) -> list[str]:
    """A command with the environment that the setup left."""
    return ["sh", "-c", '. /etc/profile; exec "$@"', "sh", *argv]


def _discover(guest: Guest) -> Machine:
    return read_node_topology(json.loads(guest.vm.run(*_in_shell(*TOPOMEND, "discover", "-o", "json")))).machine


def _device(found: Machine, address: str) -> PCIDevice | None:
    return next((each for each in found.pci_devices if each.address == address), None)


def test_the_machine_is_what_qemu_was_told(guest: Guest) -> None:
    found = _discover(guest)
    print(guest.vm.run(*_in_shell(*TOPOMEND, "discover")))
    assert [node.id for node in found.numa_nodes] == [node.id for node in machine.NODES]
    assert found.cpus_of_numa_node == {node.id: mask_of(node.cpus) for node in machine.NODES if node.cpus}
    assert found.memory_only == mask_of([3])
    assert [node.distances for node in found.numa_nodes] == [node.distances for node in machine.NODES]
    for node, told in zip(found.numa_nodes, machine.NODES, strict=True):
        # What firmware and kernel keep for themselves is not in MemTotal; their bounce buffers alone are 64 MiB.
        assert told.mebibytes - 128 <= node.memory / MIB <= told.mebibytes
        counted = {pool.resource: pool.count for pool in node.hugepages if pool.count}
        assert counted == ({"hugepages-2Mi": told.hugepages} if told.hugepages else {})
    assert found.cpus_of_socket == {socket: mask_of(cpus) for socket, cpus in machine.SOCKETS.items()}
    assert [core.threads for core in found.cores] == [mask_of(threads) for threads in machine.CORES]
    assert found.isolated == mask_of([machine.ISOLATED])
    assert found.offline == 0


def test_every_pci_function_stands_where_sysfs_has_it(guest: Guest) -> None:
    found = _discover(guest).pci_devices
    listed = guest.vm.run("sh", "-c", "cd /sys/bus/pci/devices; for d in *; do echo $d $(cat $d/numa_node); done")
    told = dict(line.split() for line in listed.splitlines())
    assert {each.address: str(-1 if each.numa_node is None else each.numa_node) for each in found} == told


def test_the_agent_knows_everything_beside_a_real_kubelet(node: Guest) -> None:
    conditions = read_conditions(node.published())
    assert {each.type: each.status for each in conditions} == dict.fromkeys(
        ("Ready", "HostDiscovered", "KubeletConfigRead", "AllocationsRead"), "True"
    )


def test_every_device_that_pods_could_use_stands_where_qemu_put_it(node: Guest) -> None:
    found = {device.address: device for device in node.machine().pci_devices}
    for device in found.values():
        print(device)
    assert {each.address: (each.numa_node, each.numa_source, each.path, each.driver) for each in found.values()} == {
        each.address: (each.numa_node, "" if each.numa_node is None else "sysfs", each.path, each.driver)
        for each in machine.DEVICES
    }
    assert all(each.iommu_group is not None for each in found.values())
    assert found[machine.NETWORK_CARD].names == ("eth0",)
    assert found[machine.NETWORK_CARD].vendor_name == "Red Hat, Inc."
    assert [found[each].max_virtual_functions for each in (machine.LEFT_DISK, machine.RIGHT_DISK)] == [0, 2]


def test_how_far_apart_devices_are_follows_their_buses(node: Guest) -> None:
    found = {device.address: device for device in node.machine().pci_devices}
    assert {pair: pci_distance(*(found[each] for each in pair)) for pair in machine.PCI_DISTANCES} == {
        pair: PCIDistance(distance) for pair, distance in machine.PCI_DISTANCES.items()
    }


def test_the_kubelet_has_found_the_same_cores(node: Guest) -> None:
    line = node.vm.run("grep", "Detected CPU topology", KUBELET_LOG)
    told = json.loads(line.partition("topology=")[2])["CPUDetails"]
    sockets = node.machine().cpus_of_socket
    caches = node.machine().cpus_of_l3_cache
    assert {
        cpu: (where["NUMANodeID"], where["SocketID"], where["CoreID"], caches[where["UncoreCacheID"]])
        for cpu, where in told.items()
    } == {
        str(cpu): (
            core.numa_node,
            core.socket,
            core.id,
            next(shared for shared in caches.values() if shared >> cpu & 1),
        )
        for core in node.machine().cores
        for cpu in members(core.threads)
    }
    assert len(told) == sum(map(int.bit_count, sockets.values()))


def test_the_kubelet_decides_about_pods_as_replay_does_from_what_is_published(node: Guest) -> None:
    admitted: list[str] = []
    for name, cpu, memory in PODS:
        limits = {"cpu": cpu, "memory": memory}
        spec = {"nodeName": NODE, "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}]}
        verdict, after = admit(node.state(), read_pod(node.create_pod(name, spec)))
        print(name, limits, verdict.reason or "admitted")
        assert node.fate_of(name) == (("Running", "") if verdict.admitted else ("Failed", verdict.reason))
        expected = [pod for pod in after.pods if pod.name == name]
        node.within_seconds(f"what pod {name} holds", functools.partial(node.shows, name, expected))
        admitted += [name] if verdict.admitted else []
    assert admitted == ["first", "second", "third"]


def test_a_device_that_is_plugged_in_and_pulled_out_is_published(node: Guest) -> None:
    before = node.machine()
    assert _device(before, machine.HOT_ADDRESS) is None
    node.vm.monitor("device_add", {"driver": "nvme", "id": "hot", "bus": machine.HOT_PORT, "serial": "hot"})
    node.within_seconds("a disk plugged in", lambda: _device(node.machine(), machine.HOT_ADDRESS) is not None)
    plugged = _device(node.machine(), machine.HOT_ADDRESS)
    print(plugged)
    assert plugged is not None
    assert (plugged.numa_node, plugged.numa_source) == (machine.HOT_NUMA_NODE, "sysfs")
    assert plugged.path == machine.HOT_PATH
    (left,) = (each for each in before.pci_devices if each.address == machine.LEFT_DISK)
    assert pci_distance(plugged, left) is PCIDistance.SAME_ROOT_COMPLEX
    node.vm.monitor("device_del", {"id": "hot"})
    node.within_seconds("a disk pulled out", lambda: node.machine() == before)


def test_virtual_functions_name_the_function_that_they_are_of(node: Guest) -> None:
    before = node.machine()
    folder = f"/sys/bus/pci/devices/{machine.RIGHT_DISK}"
    node.vm.write(f"{folder}/sriov_drivers_autoprobe", "0")

    def functions() -> list[PCIDevice]:
        return [each for each in node.machine().pci_devices if each.physical_function == machine.RIGHT_DISK]

    node.vm.write(f"{folder}/sriov_numvfs", "2")
    node.within_seconds("two virtual functions", lambda: len(functions()) == 2)
    assert [each.numa_node for each in functions()] == [2, 2]
    node.vm.write(f"{folder}/sriov_numvfs", "0")
    node.within_seconds("no virtual function", lambda: node.machine() == before)


def test_a_cpu_that_goes_offline_and_comes_back_is_published(node: Guest) -> None:
    before = node.machine()
    node.vm.write("/sys/devices/system/cpu/cpu5/online", "0")
    node.within_seconds("CPU 5 offline", lambda: node.machine().offline == mask_of([5]))
    assert node.machine().cpus_of_numa_node[1] == mask_of([4])
    status, message = node.condition("KubeletConfigRead")
    assert (status, "CPUs 5" in message) == ("False", True), message
    node.vm.write("/sys/devices/system/cpu/cpu5/online", "1")
    node.within_seconds("CPU 5 online", lambda: node.machine() == before)
    assert node.condition("Ready")[0] == "True"


def test_memory_that_is_plugged_in_is_told_beside_what_the_kubelet_counted(node: Guest) -> None:
    before = node.machine()
    node.vm.monitor("object-add", {"qom-type": "memory-backend-ram", "id": "more", "size": 128 * MIB})
    node.vm.monitor("device_add", {"driver": "pc-dimm", "id": "dimm", "memdev": "more", "node": 3})
    blocks = "/sys/devices/system/memory"
    node.vm.run(
        "sh",
        "-c",
        f"for i in 1 2 3 4 5 6 7 8 9 10; do grep -l offline {blocks}/memory*/state && exit; sleep 1; done; exit 1",
    )
    node.vm.run("sh", "-c", f"for f in {blocks}/memory*/state; do grep -q offline $f && echo online > $f; done; true")
    node.within_seconds("128 MiB more in NUMA node 3", lambda: "NUMA node 3 has" in node.condition("HostDiscovered")[1])
    print(node.condition("HostDiscovered")[1])
    assert node.machine() == before
    assert round((_discover(node).numa_nodes[3].memory - before.numa_nodes[3].memory) / MIB) == 128
