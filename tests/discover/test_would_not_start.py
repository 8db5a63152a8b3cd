"""Files with which no kubelet starts: the node's condition quotes the kubelet, and no other setting is believed."""

from pathlib import Path

import pytest
import yaml

from topomend.discover.discover import discover
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox.node.machine_files import write_machine

HEAD = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ncpuManagerPolicy: static\n"
MEMORY = 'reservedSystemCPUs: "0"\nmemoryManagerPolicy: Static\nevictionHard: {memory.available: 100Mi}\n'


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine")
    write_machine(folder, parse_shape("sockets:1 numa:2 cores:4 memory:4Gi").machine(), ())
    return folder


def condition(root: Path, file: Path, version: str = "v1.37.2") -> tuple[str, str, str]:
    found = discover(root, file, None, None, "n", kubelet_version=version)
    return next((c.status, c.reason, c.message) for c in found.conditions if c.type == "KubeletConfigRead")


FILES = {
    "reserved-cpus-and-cgroups": (
        MEMORY + "reservedMemory:\n- {numaNode: 0, limits: {memory: 100Mi}}\n"
        "systemReservedCgroup: /system\nkubeReservedCgroup: /runtime\n",
        (
            "invalid configuration: can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup "
            "(--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"
        ),
    ),
    "twice-for-a-numa-node": (
        MEMORY + "reservedMemory:\n- {numaNode: 0, limits: {memory: 50Mi}}\n- {numaNode: 0, limits: {memory: 50Mi}}\n",
        "the reserved memory has a duplicate value for NUMA node 0 and resource",
    ),
    "zero": (
        MEMORY + "reservedMemory:\n- {numaNode: 0, limits: {memory: 100Mi}}\n"
        "- {numaNode: 0, limits: {hugepages-2Mi: 0}}\n",
        "reserved memory may not be zero for NUMA node 0 and resource",
    ),
    "another-resource": (
        MEMORY + "reservedMemory:\n- {numaNode: 0, limits: {memory: 100Mi, cpu: 1}}\n",
        "for NUMA node 0 is not supported, only [memory hugepages-<HugePageSize>] is accepted",
    ),
    "another-resource-of-the-kubelet": (
        MEMORY + 'reservedMemory:\n- {numaNode: 0, limits: {memory: 100Mi}}\nkubeReserved: {gpu: "1", memory: "0"}\n',
        "--kube-reserved value failed to parse: cannot reserve",
    ),
    "gates-that-are-gone": (
        'reservedSystemCPUs: "0"\nfeatureGates: {CPUManager: true, TopologyManager: true}\n',
        "unrecognized feature gate: CPUManager",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), FILES.values(), ids=FILES)
def test_the_condition_quotes_the_kubelet(text: str, sentence: str, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(HEAD + text)
    assert yaml.safe_load(file.read_text())["kind"] == "KubeletConfiguration"
    status, reason, message = condition(root, file)
    assert (status, reason) == ("False", "Invalid")
    assert sentence in message


def test_gates_that_an_older_kubelet_knows_are_no_problem_there(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(HEAD + 'reservedSystemCPUs: "0"\nfeatureGates: {CPUManager: true}\n')
    assert condition(root, file, "v1.32.9")[0] == "True"
    assert condition(root, file, "v1.33.5")[0] == "False"


def test_a_static_policy_without_reserved_cpus_starts_nowhere(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(HEAD)
    status, reason, message = condition(root, file)
    assert (status, reason) == ("False", "Contradicted")
    assert "[cpumanager] unable to determine reserved CPU resources for static policy" in message
