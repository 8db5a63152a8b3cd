"""Replay says of a configuration's start what the kubelet says. The first run compiles the kubelet's packages."""

from collections.abc import Iterator

import pytest
from verify.config_oracle.build import config_oracle_binary
from verify.config_oracle.start import compare, random_contents
from verify.config_oracle.starting import Content
from verify.oracle.kubelet_oracle import KubeletOracle

from topomend.model.kubelet import DEFAULT_VERSION

CASES, SEED = 1500, 1
"""The same ones each time; ``make config-oracle-start`` draws others."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[KubeletOracle]:
    with KubeletOracle(config_oracle_binary()) as started:
        yield started


@pytest.mark.timeout(1200)  # the first one to run may have to compile the oracle
def test_replay_agrees_on_the_start_with_random_configurations(oracle: KubeletOracle) -> None:
    said = [*compare(oracle, random_contents(SEED, CASES), DEFAULT_VERSION)]
    assert [(one.content, one.kubelet, one.replay) for one in said if not one.agree] == [], f"seed {SEED}"
    assert CASES // 10 < sum(not one.kubelet for one in said) < CASES * 9 // 10, "half of them should start"


KEPT: tuple[Content, ...] = (
    {"containerLogMaxSize": "1.5Gi"},
    {"cpuCFSQuotaPeriod": 1, "featureGates": {"CustomCPUCFSQuotaPeriod": True}},
    {"featureGates": {"GracefulNodeShutdown": False}},
    {"memoryThrottlingFactor": 123456789.0},
    {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 2, "limits": {"memory": "1" + 22 * "0"}}]},
    {"tlsCipherSuites": ["TLS_AES_128_GCM_SHA256"]},
)
"""Configurations on which the two once differed."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("content", KEPT, ids=str)
def test_replay_agrees_on_the_start_with_a_kept_configuration(content: Content, oracle: KubeletOracle) -> None:
    (said,) = compare(oracle, iter([{"failCgroupV1": False, **content}]), DEFAULT_VERSION)
    assert said.kubelet != ()
    assert said.agree, (said.kubelet, said.replay)
