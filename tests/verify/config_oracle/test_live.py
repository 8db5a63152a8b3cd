"""A real kubelet starts with a configuration where replay says so, and else ends with one of replay's sentences."""

from collections.abc import Iterator

import pytest
from verify.config_oracle.live import LiveKubelet, live_kubelet
from verify.config_oracle.starting import Content

from topomend.model.kubelet import DEFAULT_VERSION

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def kubelet() -> Iterator[LiveKubelet]:
    with live_kubelet(DEFAULT_VERSION) as started:
        yield started


RESERVED = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}

CONFIGURATIONS: dict[str, tuple[Content, bool]] = {
    "the sandbox's own": ({}, True),
    "memory reserved on a NUMA node and kept": ({**RESERVED, "kubeReserved": {"memory": "100Mi"}}, True),
    "memory reserved on a NUMA node alone": (RESERVED, False),
    "reserved CPUs with a reserved cgroup": ({"reservedSystemCPUs": "0", "kubeReservedCgroup": "/kube"}, False),
    "a gate that is gone": ({"featureGates": {"CPUManager": True}}, False),
    "a log format": ({"logging": {"format": "x"}}, False),
}


@pytest.mark.parametrize(("change", "starts"), CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_a_real_kubelet_starts_or_ends_as_replay_says(change: Content, starts: bool, kubelet: LiveKubelet) -> None:
    outcome = kubelet.ask(change)
    assert outcome.started == starts, outcome.log[-3000:]
    assert outcome.agree, (outcome.sentences, outcome.log[-3000:])
