"""Pods of thousands of containers are answered in time: whoever may create pods must not hold the operator up."""

import time
from dataclasses import replace

import pytest

from topomend.model.bitmask import parse_id_list
from topomend.model.kubelet import KubeletSettings
from topomend.model.node_state import NodeState
from topomend.model.pod import Container, ContainerKind, Pod, Resources
from topomend.model.shape import parse_shape
from topomend.replay.admission import admit

CONTAINERS = 10_000
MOST_SECONDS = 10.0
"""Of processor time, far above what it takes: asking every container about every other takes minutes."""

SETTINGS = KubeletSettings(
    topology_manager_policy="single-numa-node", cpu_manager_policy="static", reserved_cpus=parse_id_list("0")
)
NODE = NodeState("a", parse_shape("numa:2 cores:4").machine(), SETTINGS)


@pytest.mark.parametrize(
    ("scope", "cpu", "admitted"), [("container", 1, True), ("container", 1000, False), ("pod", 1000, False)]
)
def test_a_pod_of_ten_thousand_containers_has_its_verdict_in_time(scope: str, cpu: int, admitted: bool) -> None:
    amounts = {"cpu": cpu, "memory": 1000}
    containers = tuple(
        Container(f"c{number}", ContainerKind.APP, Resources(amounts, amounts)) for number in range(CONTAINERS)
    )
    node = replace(NODE, kubelet=replace(SETTINGS, topology_manager_scope=scope))
    begun = time.process_time()
    verdict, _ = admit(node, Pod("ns", "huge", "1", containers))
    took = time.process_time() - begun
    print(f"{took:.2f} s")
    assert verdict.admitted == admitted
    assert took < MOST_SECONDS
