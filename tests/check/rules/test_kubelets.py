"""Each fault of a kubelet's settings or a device plugin is named by its code and by no other; a sound node has none."""

from dataclasses import replace

import pytest
from tests.builders import node_state
from tests.check.cluster import READY, codes, condition, facts_of, findings, node_object, published, seen

from topomend.check.finding import grouped
from topomend.model.machine import PCIDevice
from topomend.model.nodes.node_state import Device, NodeState

POOL = "karpenter.sh/nodepool"
GPU = "vendor.com/gpu"


def with_pci(state: NodeState, *functions: PCIDevice) -> NodeState:
    return replace(state, machine=replace(state.machine, pci_devices=functions))


def accelerator(address: str, numa_node: int) -> PCIDevice:
    return PCIDevice(address, 0x030200, 0x10DE, 0x2330, numa_node=numa_node)


SOUND = [
    node_state(name="plain"),
    node_state(name="restricted", policy="restricted", memory_manager="Static"),
    node_state("numa:1 cores:8", name="small", policy="best-effort"),
    node_state("sockets:2 cores:4 hugepages-2Mi:64", name="pages", memory_manager="Static"),
    node_state("sockets:2 cores:4 device:vendor.com/gpu@0=2,1=2", name="gpus"),
    node_state(name="nothing", policy="none", cpu_manager="none", reserved_cpus=""),
    node_state(name="amount", reserved_cpus="0-1"),
]


@pytest.mark.parametrize("state", SOUND, ids=[state.name for state in SOUND])
def test_a_sound_node_has_no_finding(state: NodeState) -> None:
    assert findings(seen(state), "TM2") == []


def test_a_kubelet_that_would_not_start_again_is_named_with_its_file() -> None:
    why = "after a restart the kubelet would not start: delete /var/lib/kubelet/cpu_manager_state"
    facts = seen(node_state(), conditions=[READY, condition("AllocationsRead", "True", "WouldNotStartAgain", why)])
    (finding,) = findings(facts, "TM2")
    assert (finding.code, finding.message) == ("TM208", why)


def test_settings_with_which_no_kubelet_starts_are_named_with_its_sentence() -> None:
    state = node_state()
    wrong = replace(state, kubelet=replace(state.kubelet, topology_manager_policy="nonsense"))
    (finding,) = findings(seen(wrong), "TM2")
    assert (finding.code, 'unknown policy: "nonsense"' in finding.message) == ("TM209", True)


def test_a_static_cpu_manager_without_reserved_cpus_is_named() -> None:
    assert codes(seen(node_state(reserved_cpus="")), "TM2") == {"TM210": ["a"]}


def test_reserved_cpus_that_take_a_numa_node_are_named() -> None:
    (finding,) = findings(seen(node_state(reserved_cpus="4-7")), "TM2")
    assert (finding.code, finding.message) == ("TM211", "its reserved CPUs 4-7 take all of NUMA 1")


def test_reserved_cpus_beside_the_accelerators_are_named() -> None:
    gpu = accelerator("0000:3b:00.0", 0)
    (finding,) = findings(seen(with_pci(node_state(reserved_cpus="0-1"), gpu)), "TM2")
    assert finding.code == "TM212"
    assert "2 of 4 CPUs of NUMA 0, where its accelerators are, are reserved, and none of NUMA 1" in finding.message
    assert findings(seen(with_pci(node_state(reserved_cpus="0"), gpu)), "TM2") == []
    assert findings(seen(with_pci(node_state(reserved_cpus="4-5"), gpu)), "TM2") == []


def test_a_display_of_the_servers_own_management_is_no_accelerator() -> None:
    display = PCIDevice("0000:03:00.0", 0x030000, 0x1A03, 0x2000, numa_node=0)
    assert findings(seen(with_pci(node_state(reserved_cpus="0-1"), display)), "TM2") == []


@pytest.mark.parametrize("policy", ["best-effort", "none"])
def test_a_static_cpu_manager_whose_alignment_is_luck_is_named(policy: str) -> None:
    assert codes(seen(node_state(policy=policy)), "TM2") == {"TM213": ["a"]}


def test_a_plugin_that_names_no_numa_node_is_named() -> None:
    state = replace(node_state(), devices=(Device(GPU, "g0"), Device(GPU, "g1")))
    assert codes(seen(state), "TM2") == {"TM214": ["a"]}
    software = tuple(Device("devices.kubevirt.io/kvm", f"kvm{number}") for number in range(100))
    with_hardware = with_pci(replace(state, devices=software), accelerator("0000:3b:00.0", 0))
    assert findings(seen(with_hardware), "TM2") == []


def test_a_plugin_that_names_a_wrong_numa_node_is_named() -> None:
    missing = replace(node_state(), devices=(Device(GPU, "g0", (-1,)),))
    (finding,) = findings(seen(missing), "TM2")
    assert (finding.code, "g0 on NUMA -1, which the machine does not have" in finding.message) == ("TM215", True)
    address = "0000:3b:00.1"
    moved = with_pci(replace(node_state(), devices=(Device("vendor.com/vf", address, (0,)),)), accelerator(address, 1))
    (finding,) = findings(seen(moved), "TM2")
    assert (finding.code, "while sysfs has it on NUMA 1" in finding.message) == ("TM215", True)


def test_reserved_memory_that_does_not_add_up_is_named_with_both_amounts() -> None:
    state = node_state(memory_manager="Static", reserved_memory="512Mi")
    (finding,) = findings(seen(state, kept=600 << 20), "TM2")
    assert finding.code == "TM216"
    assert f"its reservedMemory is {512 << 20} bytes, while its Node keeps {600 << 20}" in finding.message


def test_a_machine_on_which_one_pod_hangs_the_kubelet_is_named() -> None:
    devices = " ".join(f"device:vendor.com/{letter}@0=1,1=1" for letter in "abcd")
    shape = f"numa:16 cores:2 memory:8Gi {devices}"
    state = node_state(shape, policy="restricted", options="max-allowable-numa-nodes=16", memory_manager="Static")
    assert codes(seen(state), "TM2") == {"TM217": ["a"]}


def test_a_driver_that_hands_out_the_cpus_of_a_static_cpu_manager_is_named() -> None:
    state, other = node_state(), node_state(name="b", policy="none", cpu_manager="none", reserved_cpus="")
    objects = [node_object(state), node_object(other)], [published(state), published(other)]
    assert codes(facts_of(*objects, cpu_drivers=frozenset({"a", "b"})), "TM2") == {"TM218": ["a"]}


def test_a_kubelet_that_differs_from_its_pool_is_named_with_the_difference() -> None:
    states = [node_state(name=name) for name in ("a", "b")] + [node_state(name="c", policy="restricted")]
    others = [node_state(name="d", policy="restricted")]
    objects = [node_object(state, {POOL: "one"}) for state in states] + [node_object(others[0], {POOL: "two"})]
    (finding,) = findings(facts_of(objects, map(published, [*states, *others])), "TM2")
    assert (finding.code, finding.subject.name) == ("TM220", "c")
    assert (
        "unlike 2 of pool karpenter.sh/nodepool=one it has topologyManagerPolicy restricted (there" in finding.message
    )


def test_a_kubelet_of_a_release_that_replay_does_not_know_is_named() -> None:
    (finding,) = findings(seen(node_state(version="v1.99.0")), "TM2")
    assert finding.code == "TM221"


def test_twelve_nodes_with_one_fault_are_one_line() -> None:
    states = [node_state(name=f"n{number:02}", reserved_cpus="4-7") for number in range(12)]
    (group,) = grouped(findings(facts_of(map(node_object, states), map(published, states)), "TM2"))
    assert group.subjects == "12 Nodes (n00, n01, n02 and 9 more)"
