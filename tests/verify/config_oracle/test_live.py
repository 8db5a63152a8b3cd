"""A real kubelet starts with a configuration where replay says so, and else ends with one of replay's sentences."""

from collections.abc import Iterator

import pytest
from verify.config_oracle.live import LiveKubelet, Outcome, live_kubelet, predicted
from verify.config_oracle.starting import Content

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.replay.startup.configuration import Host
from topomend.replay.startup.rules.run import STARTED_ONCE


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


@pytest.mark.cluster
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("change", "starts"), CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_a_real_kubelet_starts_or_ends_as_replay_says(change: Content, starts: bool, kubelet: LiveKubelet) -> None:
    outcome = kubelet.ask(change)
    assert outcome.started == starts, outcome.log[-3000:]
    assert outcome.agree, (outcome.sentences, outcome.log[-3000:])


@pytest.mark.parametrize("version", ["v1.30.14", "v1.31.13"])
def test_of_a_kubelet_that_runs_once_the_same_is_predicted_whatever_its_host_is(version: str) -> None:
    """Kept: seed 73636707648 on v1.30.14, of which replay, lint and kubelet said the same, was called a difference."""
    of_hosts = [predicted({"runOnce": True}, version, Host(cgroup_v1=v1)) for v1 in (True, False)]
    assert of_hosts[0] == of_hosts[1]
    assert STARTED_ONCE in of_hosts[0]
    log = f'"{STARTED_ONCE}"'
    assert Outcome({}, started=False, log=log, sentences=of_hosts[0], lint_starts=False, for_host=False).agree
    assert predicted({"runOnce": False}, version, Host()) == ()
