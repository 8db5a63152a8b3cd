"""Which class a pod is of, and whether the managers pin it."""

import pytest
from tests.builders import pod

from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.pods.pod import Pod
from topomend.replay.gates import read_gates
from topomend.replay.qos import has_pod_level_resources, qos_class

NOW = read_gates(KubeletSettings())
OLD = read_gates(KubeletSettings(version="v1.33.0"))


@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [
        ("equal requests and limits", pod("p", "cpu=1 memory=1Gi"), "Guaranteed"),
        ("one container without limits", pod("p", "cpu=1 memory=1Gi", ""), "Burstable"),
        ("an init container without limits", pod("p", "init", "cpu=1 memory=1Gi"), "Burstable"),
        ("no memory limit", pod("p", "cpu=1"), "Burstable"),
        ("requests only", pod("p", "request:cpu=1 request:memory=1Gi"), "Burstable"),
        ("nothing", pod("p", ""), "BestEffort"),
        ("only devices", pod("p", "v.com/gpu=1"), "BestEffort"),
        ("zeros", pod("p", "cpu=0 memory=0"), "BestEffort"),
        ("what the status says", pod("p", "", qos_class="Guaranteed"), "Guaranteed"),
        ("the pod's own resources alone count", pod("p", "", resources="cpu=1 memory=1Gi"), "Guaranteed"),
        ("the pod's own requests alone", pod("p", "cpu=1 memory=1Gi", resources="request:cpu=1"), "Burstable"),
        ("the pod's own limit of CPUs alone", pod("p", "cpu=1 memory=1Gi", resources="cpu=1"), "Burstable"),
        (
            "huge pages alone hide the containers'",
            pod("p", "cpu=1 memory=1Gi", resources="hugepages-2Mi=2Mi"),
            "BestEffort",
        ),
    ],
)
def test_the_class(name: str, asked: Pod, expected: str) -> None:
    assert qos_class(asked, NOW) == expected, name


def test_before_1_34_the_pods_own_resources_do_not_count() -> None:
    asked = pod("p", "", resources="cpu=1 memory=1Gi")
    assert (qos_class(asked, OLD), qos_class(asked, NOW)) == ("BestEffort", "Guaranteed")


def test_only_cpu_memory_and_huge_pages_are_pod_level_resources() -> None:
    assert has_pod_level_resources(pod("p", "", resources="hugepages-2Mi=2Mi"))
    assert not has_pod_level_resources(pod("p", "", resources="v.com/gpu=1"))
    assert not has_pod_level_resources(pod("p", ""))
