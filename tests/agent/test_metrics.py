import re
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from topomend.agent.metrics import Metrics
from topomend.model.nodes.kubelet import KubeletSettings, MemoryReservation
from topomend.model.nodes.node_state import ContainerAllocation, DeviceAllocation, MemoryBlock, NodeState, PodAllocation
from topomend.model.shapes.shape import parse_shape


def node() -> NodeState:
    shape = parse_shape("sockets:1 numa:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1,1=1")
    gpu = shape.offered_devices()[0]
    memory = (MemoryBlock("memory", 0b01, 1 << 30),)
    holds = ContainerAllocation("c", cpus=0b0110, memory=memory, devices=(DeviceAllocation(gpu.resource, (gpu.id,)),))
    pod = PodAllocation("default", "secret-name", containers=(holds,))
    settings = KubeletSettings(
        memory_manager_policy="Static", reserved_memory=(MemoryReservation(0, "memory", 100 << 20),)
    )
    return NodeState("n1", shape.machine(), settings, shape.offered_devices(), (pod,))


def text_of(metrics: Metrics) -> str:
    return metrics.page().body.decode()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def test_what_was_published_can_be_scraped_and_names_no_pod(metrics: Metrics) -> None:
    state = node()
    metrics.published(state, 0.02, {}, wrote=True)
    metrics.published(state, 0.02, {"List": 1}, wrote=False)
    metrics.failed({"List": 3})
    text = text_of(metrics)
    for line in (
        'topomend_agent_publishes_total{result="written"} 1.0',
        'topomend_agent_publishes_total{result="unchanged"} 1.0',
        'topomend_agent_publishes_total{result="failed"} 1.0',
        'topomend_agent_numa_cpus{numa="0",state="exclusive"} 2.0',
        'topomend_agent_numa_cpus{numa="0",state="shared"} 2.0',
        'topomend_agent_numa_cpus{numa="1",state="exclusive"} 0.0',
        'topomend_agent_numa_devices{numa="0",resource="vendor.com/gpu",state="allocated"} 1.0',
        'topomend_agent_numa_devices{numa="1",resource="vendor.com/gpu",state="free"} 1.0',
        'topomend_agent_numa_memory_bytes{numa="0",state="exclusive"} 1.073741824e+09',
        'topomend_agent_numa_memory_bytes{numa="0",state="shared"} 7.516192768e+09',
        'topomend_agent_numa_memory_bytes{numa="1",state="exclusive"} 0.0',
        'topomend_agent_podresources_errors_total{method="List"} 3.0',
        'topomend_agent_podresources_errors_total{method="GetAllocatableResources"} 0.0',
        "topomend_agent_discovery_duration_seconds_count 2.0",
        "topomend_agent_build_info{",
        "topomend_agent_last_success_timestamp_seconds 1",
    ):
        assert line in text
    assert "secret-name" not in text


def test_containers_are_counted_by_pool_and_alignment_without_init_containers(metrics: Metrics) -> None:
    state = node()
    far, near = state.devices[1], state.devices[0]
    containers = (
        *state.pods[0].containers,
        ContainerAllocation("far", cpus=0b0110, devices=(DeviceAllocation(far.resource, (far.id,)),)),
        ContainerAllocation("floats", devices=(DeviceAllocation(near.resource, (near.id,)),)),
        ContainerAllocation("ended", init=True, cpus=0b0110),
    )
    pod = PodAllocation("default", "secret-name", containers=containers)
    metrics.published(replace(state, pods=(pod,)), 0.02, {}, wrote=True)
    text = text_of(metrics)
    shown = dict(re.findall(r"^topomend_agent_containers\{(.*)\} (.*)$", text, re.MULTILINE))
    assert shown == {
        'alignment="numa-node",pool="exclusive"': "1.0",
        'alignment="socket",pool="exclusive"': "1.0",
        'alignment="split",pool="exclusive"': "0.0",
        'alignment="numa-node",pool="shared"': "0.0",
        'alignment="floating",pool="shared"': "1.0",
    }


def test_what_is_said_of_a_metric_names_each_of_its_labels(metrics: Metrics) -> None:
    metrics.published(node(), 0.02, {}, wrote=True)
    for family in text_string_to_metric_families(text_of(metrics)):
        if family.name.startswith("topomend_"):
            labels = {label for sample in family.samples for label in sample.labels} - {"le", "version"}
            assert [label for label in labels if label not in family.documentation] == [], family.name


def test_the_process_is_told_under_the_names_that_prometheus_knows(metrics: Metrics) -> None:
    text = text_of(metrics)
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "python_info"):
        assert f"\n{name}" in text


def test_cpus_of_another_machine_are_not_counted() -> None:
    """With --root the machine is a recorded one: what this one's CPUs do is not its own."""
    recorded = Metrics(live=False)
    recorded.published(node(), 0.02, {}, wrote=True)
    assert "numa_cpu_seconds" not in text_of(recorded)
