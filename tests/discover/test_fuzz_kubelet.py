"""Whatever the kubelet's files and its socket hold, the answer is whole: an object that the API accepts, conditions.

Each source in turn holds bytes that no kubelet writes and documents that contradict each other; afterwards it holds the
truth again, and the reader that saw the one must see the other.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.manifests import crd_schema
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.deploy.schema import complaints
from tests.discover.test_kubelet_config import HEAD
from tests.discover.test_state_files import DEVICES, MEMORY
from tests.seeds import cases

from topomend.discover import allocations
from topomend.discover import podresources_pb2 as messages
from topomend.discover.allocations import AllocationReader
from topomend.discover.assemble import Discovery, assemble
from topomend.discover.host import Host
from topomend.discover.kubelet_config import KubeletConfig
from topomend.discover.kubelet_settings import SettingsReader, WrittenConfig
from topomend.kube.kubelet_client import Configz
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.model.shapes.shape import parse_shape
from topomend.publish.bounded import bounded, size_of
from topomend.replay.startup.state.restore import ALLOCATED_STATE, CPU_STATE, DEVICE_STATE, MEMORY_STATE
from topomend.wire.published.node_topology import MAX_STATUS_BYTES, node_topology, read_node_topology, status_of

from .machines import Lister, container, on, pod, serving

SCHEMA = crd_schema("nodetopologies")["properties"]["status"]
MACHINE = parse_shape("sockets:1 numa:2 cores:4 memory:8Gi").machine()
HOST = Host(MACHINE)

CONFIG: Mapping[str, Any] = {
    **HEAD,
    "topologyManagerPolicy": "single-numa-node",
    "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "false"},
    "memoryManagerPolicy": "Static",
    "reservedSystemCPUs": "0",
    "kubeReserved": {"memory": "924Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    "featureGates": {"PodLevelResources": True},
}
STATES: Mapping[str, Mapping[str, Any]] = {
    CPU_STATE: {"policyName": "static", "defaultCpuSet": "0,2-7", "entries": {"uid-1": {"main": "1"}}, "checksum": 1},
    MEMORY_STATE: {
        **MEMORY,
        "machineState": {"0": MEMORY["machineState"]["0"], "1": {**MEMORY["machineState"]["10"], "cells": [1]}},
    },
    DEVICE_STATE: DEVICES,
    ALLOCATED_STATE: {"data": json.dumps({"entries": {"uid-1": {"ContainerResources": {"main": {}}}}}), "checksum": 1},
}

# What stands where something else belongs

TEXTS = st.one_of(
    st.sampled_from(
        ["", "-1", "0-", "0-99999999", "1e400", "9" * 5000, "none", "Static", "\x00", "\ud800", "é" * 300, "x" * 70_000]
    ),
    st.text(max_size=20),
)
NUMBERS = st.sampled_from([-1, 0, 1, 7, 16384, 1 << 31, 1 << 63, 1 << 64, -(1 << 70)])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)
MANY = st.sampled_from([2, 2, 2, 40, 300])


@st.composite
def mangled(draw: st.DrawFn, document: Any) -> Any:
    """The document with some values replaced, removed, or repeated."""
    content = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 3))):
        content = _mangle(draw, content)
    return content


def _mangle(draw: st.DrawFn, content: Any) -> Any:
    if isinstance(content, dict) and content and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(content)))
        how = draw(st.integers(0, 6))
        if how == 0:
            return {name: value for name, value in content.items() if name != key}
        if how == 1:
            return content | {f"{key}{number}": content[key] for number in range(draw(MANY))}
        if how == 2:
            return {(draw(TEXTS) if name == key else name): value for name, value in content.items()}
        return content | {key: _mangle(draw, content[key])}
    if isinstance(content, list) and content and draw(st.integers(0, 4)):
        return [*content[:-1], _mangle(draw, content[-1])] * draw(st.sampled_from([1, 1, 1, 300]))
    return draw(VALUES)


@st.composite
def broken_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """The bytes cut, changed or spliced, or others in their place."""
    if not draw(st.integers(0, 5)):
        return draw(
            st.one_of(st.binary(max_size=200), st.sampled_from([b"[" * 50_000, b"{" * 50_000, b"\xff" * 2_000_000]))
        )
    at = draw(st.integers(0, len(content)))
    end = draw(st.integers(at, len(content)))
    return content[:at] + draw(st.binary(max_size=8)) + content[end:]


def as_bytes(document: Any) -> bytes:
    return json.dumps(document).encode()


# The node


@dataclass
class Node:
    """A kubelet's files and socket, and the readers of them, which live on from one example to the next."""

    folder: Path
    lister: Lister
    settings: SettingsReader
    allocations: AllocationReader

    def put(self, name: str, content: bytes) -> None:
        """Replace a file as the kubelet does."""
        (self.folder / "new").write_bytes(content)
        (self.folder / "new").rename(self.folder / name)

    def put_right(self) -> None:
        """The truth, wherever something else may be."""
        self.put("config.yaml", yaml.safe_dump(dict(CONFIG)).encode())
        for name, content in STATES.items():
            self.put(name, as_bytes(content))
        self.lister.raw.clear()
        self.lister.listed.CopyFrom(LISTED)
        self.lister.allocatable.CopyFrom(ALLOCATABLE)

    def look(self) -> Discovery:
        """What would be published now, checked."""
        discovery = assemble("node", HOST, self.settings.read(DEFAULT_VERSION), self.allocations.read())
        check(discovery)
        return discovery


LISTED = messages.ListPodResourcesResponse(
    pod_resources=[
        pod(
            "train",
            container(
                "main",
                [1],
                {0: 1 << 30},
                [messages.ContainerDevices(resource_name="vendor.com/gpu", device_ids=["gpu-0", "gpu-1"])],
            ),
        )
    ]
)
ALLOCATABLE = messages.AllocatableResourcesResponse(
    cpu_ids=list(range(1, 8)),
    devices=[messages.ContainerDevices(resource_name="vendor.com/gpu", device_ids=["gpu-0", "gpu-1", "gpu-2"])],
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder, lister = tmp_path_factory.mktemp("kubelet"), Lister()
    (folder / "device-plugins").mkdir()
    with serving(folder / "kubelet.sock", lister), pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocations, "PAUSE_SECONDS", 0.0)  # sources that contradict each other are read again
        made = Node(
            folder,
            lister,
            SettingsReader(WrittenConfig(folder / "config.yaml"), monotonic=lambda: 0.0),
            AllocationReader(folder / "kubelet.sock", folder),
        )
        made.put_right()
        assert ready(made.look()) == "True"
        yield made


def ready(discovery: Discovery) -> str:
    return discovery.conditions[0].status


def check(discovery: Discovery) -> None:
    """The API accepts it as it would be sent, it is read back as what was found, and what is missing is said."""
    whole = status_of(discovery.state, discovery.summary, discovery.conditions)
    status = json.loads(json.dumps(bounded(whole)).encode())
    json.dumps(status, ensure_ascii=False).encode()
    for condition in status["conditions"]:
        assert "\n" not in condition["message"]
        assert condition["status"] == "True" or condition["message"]
        condition["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    assert list(complaints(status, SCHEMA)) == []
    assert size_of(status) <= MAX_STATUS_BYTES
    if bounded(whole) is whole:
        assert read_node_topology(node_topology("node", status)).pods == discovery.state.pods
    parts = {condition.type: condition.status for condition in discovery.conditions}
    assert (parts.pop("Ready") == "True") == (set(parts.values()) == {"True"})


FUZZ = settings(max_examples=cases(20, 40), deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))


@FUZZ
@given(content=st.one_of(mangled(CONFIG).map(as_bytes), broken_bytes(yaml.safe_dump(dict(CONFIG)).encode())))
def test_whatever_the_configuration_holds_the_answer_is_whole(node: Node, content: bytes) -> None:
    node.put_right()
    node.put("config.yaml", content)
    node.look()
    node.put_right()
    assert ready(node.look()) == "True"


@FUZZ
@given(answer=mangled({"kubeletconfig": dict(CONFIG)}))
@example(answer={"kubeletconfig": {**CONFIG, "cpuManagerPolicy": "none", "cpuManagerPolicyOptions": {"a": "\n"}}})
def test_whatever_configz_holds_the_answer_is_whole(node: Node, answer: object) -> None:
    node.put_right()
    config: KubeletConfig = SettingsReader(WrittenConfig(), configz=lambda: Configz(answer)).read(DEFAULT_VERSION)
    check(assemble("node", HOST, config, node.allocations.read()))


@FUZZ
@given(data=st.data())
def test_whatever_a_state_file_holds_the_answer_is_whole(node: Node, data: st.DataObject) -> None:
    node.put_right()
    for name in data.draw(st.lists(st.sampled_from(sorted(STATES)), min_size=1, max_size=2, unique=True)):
        right = STATES[name]
        node.put(name, data.draw(st.one_of(mangled(right).map(as_bytes), broken_bytes(as_bytes(right)))))
    node.look()
    node.put_right()
    assert ready(node.look()) == "True"


@FUZZ
@given(data=st.data())
def test_whatever_bytes_the_socket_answers_the_answer_is_whole(node: Node, data: st.DataObject) -> None:
    node.put_right()
    for method, right in (("List", LISTED), ("GetAllocatableResources", ALLOCATABLE)):
        if data.draw(st.booleans()):
            node.lister.raw[method] = data.draw(broken_bytes(right.SerializeToString()))
    node.look()
    node.put_right()
    assert ready(node.look()) == "True"


IDS = st.lists(st.sampled_from([-(1 << 63), -1, 0, 1, 2, 7, 16383, 16384, (1 << 63) - 1]), max_size=4)
WORDS = TEXTS.filter(lambda text: text.isascii() or "\ud800" not in text)
PLACES = IDS.map(lambda ids: on(*ids))
DEVICES_HELD = st.builds(
    messages.ContainerDevices,
    resource_name=WORDS,
    device_ids=st.lists(WORDS, max_size=3),
    topology=st.one_of(st.none(), PLACES),
)
BLOCKS = st.builds(
    messages.ContainerMemory,
    memory_type=WORDS,
    size=st.sampled_from([0, 1, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]),
    topology=st.one_of(st.none(), PLACES),
)
CONTAINERS = st.builds(
    messages.ContainerResources,
    name=WORDS,
    cpu_ids=IDS,
    memory=st.lists(BLOCKS, max_size=2),
    devices=st.lists(DEVICES_HELD, max_size=2),
)
PODS = st.builds(
    messages.PodResources,
    namespace=WORDS,
    name=WORDS,
    containers=st.builds(lambda containers, many: containers * many, st.lists(CONTAINERS, max_size=2), MANY),
)


@FUZZ
@given(pods=st.lists(PODS, max_size=3), cpus=IDS, devices=st.lists(DEVICES_HELD, max_size=3), files=st.booleans())
def test_whatever_the_messages_say_the_answer_is_whole(
    node: Node, pods: list[Any], cpus: list[int], devices: list[Any], *, files: bool
) -> None:
    node.put_right()
    node.lister.listed.CopyFrom(messages.ListPodResourcesResponse(pod_resources=pods))
    node.lister.allocatable.CopyFrom(messages.AllocatableResourcesResponse(cpu_ids=cpus, devices=devices))
    if files:
        node.look()
    else:
        from_socket = AllocationReader(node.folder / "kubelet.sock", None).read()
        check(assemble("node", HOST, node.settings.read(DEFAULT_VERSION), from_socket))
    node.put_right()
    assert ready(node.look()) == "True"
