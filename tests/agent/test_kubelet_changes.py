"""The agent publishes each change of its kubelet, of the device plugins and of the machine.

Slow: a control plane and a kubelet start, and the kubelet starts again for each configuration.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import audit_log
from tests.agent.test_agent_on_cluster import FAILED, Kubernetes, Looks, container, running, seen_anew, until

import topomend
from topomend.agent.loop import SETTLE_SECONDS, AgentSettings
from topomend.model.bitmask import format_id_list, mask_of
from topomend.model.machine import Machine, PCIDevice
from topomend.model.nodes.node_state import NodeState
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox import NodeSpec, Sandbox
from topomend.sandbox.node.machine_files import write_machine
from topomend.wire.published.node_topology import read_conditions, read_node_topology

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("messages of the kernel"),  # all processes hear them
]

NODE = "changing"
SHAPE = "sockets:1 numa:2 cores:4 memory:4Gi device:vendor.com/gpu@0=1,1=1"


class Bed:
    """One node with its agent running."""

    def __init__(self, sandbox: Sandbox, kubernetes: Kubernetes, looks: Looks) -> None:
        self.sandbox, self.kubernetes, self.looks = sandbox, kubernetes, looks
        self.folder = sandbox.folder / "nodes" / NODE

    @property
    def state(self) -> NodeState:
        return self.kubernetes.state(NODE)

    def condition(self, kind: str) -> tuple[str, str]:
        condition = self.kubernetes.condition(NODE, kind)
        return condition.status, condition.reason

    def is_ready(self) -> bool:
        return self.kubernetes.ready(NODE) == "True"

    def devices(self) -> dict[str, bool]:
        """The ids of all devices, and which of them are healthy."""
        return {device.id: device.healthy for device in self.state.devices}

    def writes(self) -> int:
        """How many requests to write the node's object the API server has carried out, by its audit log."""
        assert self.sandbox.audit_log is not None
        events = audit_log.audited(self.sandbox.audit_log)
        return sum(
            event["verb"] in {"create", "update", "patch", "delete"}
            and event.get("objectRef", {}).get("resource") == "nodetopologies"
            and event.get("responseStatus", {}).get("code", 500) < 300
            for event in events
        )

    @contextmanager
    def configured(self, **fields: Any) -> Iterator[None]:
        """The kubelet's configuration file with other fields. The kubelet reads it when it starts."""
        path = self.folder / "kubelet" / "config.yaml"
        before = path.read_text()
        self._write(path, yaml.safe_dump({**yaml.safe_load(before), **fields}))
        try:
            yield
        finally:
            self._write(path, before)

    @contextmanager
    def restarted(self, *, forget: Iterable[str] = (), **fields: Any) -> Iterator[None]:
        """The kubelet started again with another configuration, and as it was afterwards.

        Before each start the files that it is to ``forget`` are removed, as an administrator does who changes a
        manager's policy: a kubelet refuses to start with the state of another.
        """
        self.stop()
        with self.configured(**fields):
            self._start(forget)
            try:
                yield
            finally:
                self.stop()
        self._start(forget)

    def stop(self) -> None:
        """End the kubelet; the agent says so."""
        self.sandbox.stop_kubelet(NODE)
        until(lambda: not self.is_ready())

    def _start(self, forget: Iterable[str]) -> None:
        for file in forget:
            (self.folder / "kubelet" / file).unlink(missing_ok=True)
        self.sandbox.start_kubelet(NODE)
        until(self.is_ready)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        partial = path.with_name("config.new")
        partial.write_text(text)
        partial.replace(path)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A node of its own: what is done to it here no other test should meet."""
    spec = NodeSpec.of_shape(NODE, SHAPE, topology_manager_policy="single-numa-node")
    with Sandbox.up([spec], audit=True, on_progress=print) as up:
        yield up


@pytest.fixture(scope="module")
def whole(sandbox: Sandbox) -> Iterator[Bed]:
    """One agent lives through everything."""
    kubernetes, looks = Kubernetes(sandbox), Looks()
    with running(sandbox, kubernetes, NODE, looks.flag):
        yield Bed(sandbox, kubernetes, looks)


GPUS = {"gpu-0-0": True, "gpu-1-0": True}


@pytest.fixture
def bed(whole: Bed) -> Bed:
    """The node at rest, and published so."""
    until(lambda: whole.is_ready() and whole.devices() == GPUS and not whole.state.pods)
    return whole


GUARANTEED = {"cpu": "2", "memory": "512Mi", "vendor.com/gpu": "1"}


# The kubelet


def _holds_all(bed: Bed) -> bool:
    """Whether a pod is published with all that it asked for: a kubelet gives one thing after the other."""
    containers = [container for pod in bed.state.pods for container in pod.containers]
    return any(container.cpus and container.memory and container.devices for container in containers)


def test_a_kubelet_that_restarts_is_said_to_be_away_and_then_found_as_it_was(bed: Bed) -> None:
    with bed.kubernetes.pod(NODE, "stays", [container("main", **GUARANTEED)], []):
        until(lambda: _holds_all(bed))
        before = bed.state
        bed.stop()
        assert bed.condition("AllocationsRead") == ("False", "PodResourcesUnavailable")
        assert bed.state == before
        bed.sandbox.start_kubelet(NODE)
        until(bed.is_ready)
        until(lambda: bed.state == before)


def test_a_kubelet_that_starts_is_not_ready_until_it_lists_what_its_pods_hold(bed: Bed) -> None:
    """It opens its socket before it knows of any pod. One of them ends while it is down."""
    with bed.kubernetes.pod(NODE, "stays", [container("main", **GUARANTEED)], []):
        until(lambda: _holds_all(bed))
        stays = bed.state.pods
        with bed.kubernetes.pod(NODE, "ends", [container("main", cpu="1", memory="64Mi")], []):
            until(lambda: len(bed.state.pods) == 2)
            bed.stop()
        before = bed.kubernetes.topology(NODE)
        bed.sandbox.start_kubelet(NODE)
        until(lambda: bed.is_ready() and bed.state.pods == stays and bed.devices() == GPUS)
        versions = list(bed.kubernetes.topologies_since(NODE, before))
    for version in versions:
        ready = next(condition for condition in read_conditions(version) if condition.type == "Ready")
        state = read_node_topology(version)
        assert set(stays) <= {*state.pods}, ready
        assert ready.status == "True" or ready.reason in {"PodResourcesUnavailable", "KubeletStarting"}


def test_a_kubelet_that_restarts_with_another_configuration_is_followed(bed: Bed) -> None:
    before = bed.state
    with bed.restarted(
        topologyManagerPolicy="restricted",
        topologyManagerScope="pod",
        reservedSystemCPUs="0,4",
        cpuManagerPolicyOptions={"full-pcpus-only": "true"},
    ):
        until(lambda: bed.state.kubelet.reserved_cpus == mask_of([0, 4]))
        settings = bed.state.kubelet
        assert (settings.topology_manager_policy, settings.topology_manager_scope) == ("restricted", "pod")
        assert settings.cpu_manager_policy_options == {"full-pcpus-only": "true"}
        summary = bed.kubernetes.topology(NODE)["status"]["summary"]
        assert (summary["topologyManagerPolicy"], summary["cpusFree"]) == ("restricted", "3,3")
    until(lambda: bed.is_ready() and bed.state == before)


def test_another_manager_policy_is_followed_once_its_state_is_gone(bed: Bed) -> None:
    before = bed.state
    files = ("cpu_manager_state", "memory_manager_state")
    with bed.restarted(forget=files, cpuManagerPolicy="none", memoryManagerPolicy="None", reservedMemory=[]):
        settings = bed.state.kubelet
        assert (settings.cpu_manager_policy, settings.memory_manager_policy) == ("none", "None")
    until(lambda: bed.is_ready() and bed.state == before)


@pytest.mark.parametrize(
    ("fields", "name", "words"),
    [
        (
            {"cpuManagerPolicy": "none"},
            "cpuManagerPolicy",
            "cpu_manager_state is of policy static, but the configuration says none",
        ),
        (
            {"reservedSystemCPUs": "0,4"},
            "reservedSystemCPUs",
            "reservedSystemCPUs is 0,4, but the kubelet reserves 0",
        ),
    ],
)
def test_a_configuration_that_the_kubelet_does_not_run_with_yet_is_told_and_not_published(
    bed: Bed, fields: dict[str, str], name: str, words: str
) -> None:
    """Who looks for the first time after the change only sees that it contradicts the kubelet."""
    before = bed.state
    with bed.configured(**fields):
        until(lambda: f"the kubelet runs with another {name}" in _message(bed))
        assert bed.is_ready()
        assert bed.state == before
        condition = seen_anew(bed.sandbox, NODE, "KubeletConfigRead")
        assert (condition.status, condition.reason) == ("False", "Contradicted")
        assert words in condition.message
    until(lambda: "the kubelet runs with another" not in _message(bed))
    assert bed.state == before


def _message(bed: Bed) -> str:
    return bed.kubernetes.condition(NODE, "KubeletConfigRead").message


def test_a_socket_that_is_gone_and_comes_back_is_told_while_the_last_known_stays(bed: Bed) -> None:
    socket = bed.folder / "kubelet" / "pod-resources" / "kubelet.sock"
    away = socket.with_name("away.sock")
    before = bed.state
    socket.rename(away)
    try:
        until(lambda: not bed.is_ready())
        condition = bed.kubernetes.condition(NODE, "AllocationsRead")
        assert (condition.status, condition.reason) == ("False", "PodResourcesUnavailable")
        assert "is not there: is the kubelet running" in condition.message
        assert bed.state == before
    finally:
        away.rename(socket)
    until(bed.is_ready)
    assert bed.state == before


# Device plugins


@contextmanager
def plugin(bed: Bed, folder: Path, resource: str, devices: dict[str, int]) -> Iterator[subprocess.Popen[bytes]]:
    """The sandbox's device plugin for one resource more: its devices, each on a NUMA node."""
    document = {
        "folder": f"nodes/{NODE}/kubelet/device-plugins",
        "resource": resource,
        "devices": [{"id": name, "numa_nodes": [node], "healthy": True} for name, node in devices.items()],
    }
    description = folder / "plugin.json"
    description.write_text(json.dumps([document]))
    process = subprocess.Popen(
        [sys.executable, "-m", "topomend.sandbox.devices.device_plugin", str(description)],
        cwd=bed.sandbox.folder,
        env={**os.environ, "PYTHONPATH": str(Path(topomend.__file__).parents[1])},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


LATE = {"late-0": 0, "late-1": 1}


def test_a_device_plugin_that_comes_late_and_dies_is_followed(bed: Bed, tmp_path: Path) -> None:
    with plugin(bed, tmp_path, "vendor.com/late", LATE) as process:
        until(lambda: bed.devices() == GPUS | dict.fromkeys(LATE, True))
        assert {device.id: device.numa_nodes for device in bed.state.devices if device.id in LATE} == {
            "late-0": (0,),
            "late-1": (1,),
        }
        limits = {"cpu": "1", "memory": "64Mi", "vendor.com/late": "1"}
        with bed.kubernetes.pod(NODE, "holds", [container("main", **limits)], []):
            allocations = until(
                lambda: [allocation for pod in bed.state.pods for one in pod.containers for allocation in one.devices]
            )
            (device,) = allocations[0].ids
            process.kill()
            process.wait(60)
            # What is held is shown, though nobody offers it any more; what nobody holds is not.
            until(lambda: bed.devices() == GPUS | {device: False})
            with plugin(bed, tmp_path, "vendor.com/late", LATE):
                until(lambda: bed.devices() == GPUS | dict.fromkeys(LATE, True))
                assert [
                    allocation for pod in bed.state.pods for one in pod.containers for allocation in one.devices
                ] == allocations
        until(lambda: bed.devices() == GPUS)


# The machine


def reshape(folder: Path, machine: Machine, scratch: Path) -> None:
    """Have the files of a node's machine be those of another, in place: they are mounted."""
    write_machine(scratch, machine, parse_shape(SHAPE).offered_devices())
    for path in sorted(scratch.rglob("*")):
        place = folder / path.relative_to(scratch)
        if path.is_symlink():
            if not place.is_symlink():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(path.readlink())
        elif path.is_dir():
            place.mkdir(exist_ok=True)
        elif not place.exists() or place.read_bytes() != path.read_bytes():
            place.write_bytes(path.read_bytes())
    for place in sorted(folder.rglob("*"), reverse=True):
        path = scratch / place.relative_to(folder)
        if path.is_symlink() or path.exists():
            continue
        if place.is_dir() and not place.is_symlink():
            place.rmdir()
        else:
            place.unlink()


NIC = PCIDevice("0001:00:1f.0", 0x020000, 0x1B36, 0x0005, numa_node=1)


def _with_a_nic(machine: Machine) -> Machine:
    return replace(machine, pci_devices=(NIC,))


def _with_a_cpu_offline(machine: Machine) -> Machine:
    return replace(
        machine, cores=tuple(core for core in machine.cores if core.threads != mask_of([5])), offline=mask_of([5])
    )


def _with_more_memory(machine: Machine) -> Machine:
    first, *others = machine.numa_nodes
    return replace(machine, numa_nodes=(replace(first, memory=first.memory + (1 << 30)), *others))


def _shows_a_nic(bed: Bed) -> bool:
    return any(device.address == NIC.address for device in bed.state.machine.pci_devices)


def _shows_a_cpu_offline(bed: Bed) -> bool:
    return bed.state.machine.offline == mask_of([5]) and "CPUs 5, which this machine does not have" in _message(bed)


def _shows_more_memory(bed: Bed) -> bool:
    message = bed.kubernetes.condition(NODE, "HostDiscovered").message
    return "NUMA node 0 has 5Gi of memory, the kubelet counted 4Gi" in message


LOOKS_UNTIL_SETTLED = 2 + ceil(SETTLE_SECONDS / AgentSettings.interval)
"""Within which an agent that had heard of a change would have read the machine again."""


@pytest.mark.parametrize(
    ("subsystem", "change", "shows"),
    [
        ("cpu", _with_a_nic, _shows_a_nic),
        ("cpu", _with_a_cpu_offline, _shows_a_cpu_offline),
        ("memory", _with_more_memory, _shows_more_memory),
    ],
    ids=["a device plugged in", "a CPU offline", "memory plugged in"],
)
def test_a_machine_that_changes_is_read_again_at_the_kernels_word(
    bed: Bed,
    tmp_path: Path,
    subsystem: str,
    change: Callable[[Machine], Machine],
    shows: Callable[[Bed], bool],
) -> None:
    """The word is a true one of the kernel, which sysfs gives on request; what is then read is this node's own files.
    True hot-plugging is tried in QEMU (``make vm-test``)."""
    event = next(iter(sorted(Path(f"/sys/devices/system/{subsystem}").glob(f"{subsystem}[0-9]*/uevent"))))
    if not os.access(event, os.W_OK):
        pytest.skip(f"{event} is for root alone: the kernel cannot be asked for a message")
    before, machine = bed.state, parse_shape(SHAPE).machine()
    reshape(bed.folder / "machine", change(machine), tmp_path / "changed")
    try:
        bed.looks.wait(LOOKS_UNTIL_SETTLED)
        assert not shows(bed)
        began = time.monotonic()
        event.write_text("change")
        until(lambda: shows(bed))
        print(f"published {time.monotonic() - began:.1f} s after the kernel's word")
    finally:
        reshape(bed.folder / "machine", machine, tmp_path / "as-before")
        event.write_text("change")
    until(lambda: bed.state == before and bed.is_ready() and not shows(bed))


# The API server


@pytest.mark.night
def test_what_changed_while_the_api_server_was_away_for_half_a_minute_is_one_write_after_its_return(
    bed: Bed, tmp_path: Path
) -> None:
    bed.looks.wait()
    writes = bed.writes()
    assert writes
    bed.sandbox.stop_api_server()
    with plugin(bed, tmp_path, "vendor.com/late", LATE):
        time.sleep(30)
        bed.sandbox.start_api_server()
        until(lambda: bed.devices() == GPUS | dict.fromkeys(LATE, True))
        bed.looks.wait()
        assert bed.writes() == writes + 1
    until(lambda: bed.devices() == GPUS)


def test_a_kubelet_that_ended_while_the_api_server_was_away_is_told_after_its_return(bed: Bed) -> None:
    bed.sandbox.stop_api_server()
    bed.sandbox.stop_kubelet(NODE)
    try:
        bed.looks.wait(2, FAILED)
        bed.sandbox.start_api_server()
        until(lambda: not bed.is_ready())
        assert bed.condition("AllocationsRead") == ("False", "PodResourcesUnavailable")
    finally:
        bed.sandbox.start_kubelet(NODE)
    until(bed.is_ready)


def test_a_node_whose_pods_hold_what_they_held_is_written_nothing(bed: Bed) -> None:
    """Pods that hold nothing come and go: nobody who reads the object could tell."""
    bed.looks.wait()
    writes = bed.writes()
    for number in range(3):
        with bed.kubernetes.pod(NODE, f"light-{number}", [{"name": "main", "image": "none"}], []):
            until(partial(_runs, bed, f"light-{number}"))
            bed.looks.wait()
    bed.looks.wait()
    assert bed.writes() == writes
    assert format_id_list(bed.state.kubelet.reserved_cpus or 0) == "0"


def _runs(bed: Bed, pod: str) -> bool:
    return bed.kubernetes.phase_of(pod) == "Running"
