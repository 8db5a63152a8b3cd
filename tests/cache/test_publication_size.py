"""What a publication takes: as an object no more than an agent writes, in memory no more than there is room for."""

import gc
import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import node_state, node_topology_object
from tests.cache.test_topology_reader import DATE

from topomend.cache import changes
from topomend.cache.memory_budget import MemoryBudget
from topomend.cache.publication_size import (
    ORDINARY_BYTES,
    json_bytes,
    machine_bytes,
    state_bytes,
)
from topomend.cache.topology_reader import TopologyReader
from topomend.model.nodes.node_state import ContainerAllocation, NodeState, PodAllocation
from topomend.wire.document import MalformedObject
from topomend.wire.published.node_topology import MAX_STATUS_BYTES, read_node_topology

LAST_CPU = "16383"
"""A set that takes two KiB in memory."""


def with_containers(number: int) -> dict[str, Any]:
    """An object whose containers each hold the last CPU that there can be."""
    containers = [{"name": f"{index}", "cpus": LAST_CPU} for index in range(200)]
    pods = [{"namespace": "a", "name": f"{index}", "containers": containers} for index in range(number // 200)]
    return node_topology_object(node_state(), pods=pods)


def with_devices(number: int) -> dict[str, Any]:
    groups = [{"ids": [f"{index}" for index in range(number)]}]
    return node_topology_object(node_state(), devices=[{"resource": "a/b", "groups": groups}])


def with_cores(number: int) -> dict[str, Any]:
    return node_topology_object(node_state(f"numa:1 cores:{number}"))


@pytest.mark.parametrize("content", [{"a": ["b", 1, None, {"c": True}]}, [], "x" * 100, [[1] * 50] * 50])
def test_the_estimate_of_a_document_is_not_above_its_length_and_near_it(content: Any) -> None:
    length = len(json.dumps(content, separators=(",", ":")))
    assert length / 2 <= json_bytes(content, 1 << 30) <= length + 4


def test_a_document_that_is_too_long_is_not_read_to_its_end() -> None:
    assert 100 < json_bytes([["x" * 10] * 10] * 1000, 100) < 400


@pytest.mark.parametrize(
    "content", [with_containers(1_000), with_devices(5_000), with_cores(1_024)], ids=["cpus", "devices", "cores"]
)
def test_the_estimate_of_a_state_is_near_the_memory_that_it_takes(content: dict[str, Any]) -> None:
    measured = [_measured(content) for _ in range(3)]
    read, taken = measured[0][0], min(taken for _, taken in measured)
    assert 0.5 <= (state_bytes(read) + machine_bytes(read.machine)) / taken <= 4


def _measured(content: dict[str, Any]) -> tuple[NodeState, int]:
    """The state and the memory that reading it took. A table of the interpreter that grows meanwhile counts as well."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    read = read_node_topology(json.loads(json.dumps(content)))
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return read, taken


def test_an_ordinary_node_is_below_what_is_always_kept() -> None:
    pods = tuple(
        PodAllocation("default", f"pod-{index}", "u" * 36, (ContainerAllocation("main", cpus=1 << index),))
        for index in range(100)
    )
    state = replace(node_state("sockets:2 numa:4 cores:8 threads:2 memory:16Gi"), pods=pods)
    assert state_bytes(state) + machine_bytes(state.machine) < ORDINARY_BYTES


def test_an_object_that_no_agent_writes_is_not_read() -> None:
    content = with_devices(100_000)
    assert len(json.dumps(content["status"])) > MAX_STATUS_BYTES
    with pytest.raises(MalformedObject, match="more than 512 KiB"):
        TopologyReader().published(content, DATE)


def test_a_large_state_is_not_read_where_others_leave_no_room() -> None:
    content, reader = with_containers(1_000), TopologyReader(MemoryBudget(3 << 20, ORDINARY_BYTES))
    publication = reader.published(content, DATE)
    with pytest.raises(MalformedObject, match="too large to be kept beside"):
        reader.published(content, DATE)
    del publication
    assert isinstance(reader.published(content, DATE), changes.Published)
