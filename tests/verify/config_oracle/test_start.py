"""Replay says of a configuration's start what the kubelet says. The first run compiles the kubelet's packages."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from tests.seeds import SEED as RUN_SEED
from verify.config_oracle.build import config_oracle_binary
from verify.config_oracle.start import compare, random_contents
from verify.config_oracle.starting import MEMORY, NUMA_NODES, Content, as_file
from verify.oracle.kubelet_oracle import KubeletOracle

from topomend.cli.main import main
from topomend.model.nodes.kubelet import DEFAULT_VERSION

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


AMOUNTS = ("0", "100Mi", "1.5Gi", "1Ki", "7", "2000", "1e6", "1500m", "-5Mi", "104857601", "17Gi", "x")
THRESHOLDS = ("0%", "0.7%", "5%", "100%", "200%", "100Mi", "1", "-1")


def random_memory(random: Random) -> Content:
    """A static Memory Manager with amounts that seldom add up."""
    return {
        "failCgroupV1": False,
        "memoryManagerPolicy": "Static",
        "kubeReserved": {"memory": random.choice(AMOUNTS)},
        "systemReserved": {"memory": random.choice(AMOUNTS)},
        "evictionHard": {"memory.available": random.choice(THRESHOLDS)},
        "reservedMemory": [
            {"numaNode": random.randint(0, NUMA_NODES), "limits": {random.choice(KINDS): random.choice(AMOUNTS[:-1])}}
            for _ in range(random.randint(0, 3))
        ],
    }


KINDS = ("memory", "memory", "memory", "hugepages-2Mi")
CASES_OF_MEMORY = 150


def linted(content: Content) -> Any:
    """What ``topomend lint`` says of the configuration on the oracle's machine."""
    shape = f"numa:{NUMA_NODES} cores:2 memory:{MEMORY // NUMA_NODES}"
    result = CliRunner().invoke(main, ["lint", "-", "--machine", shape, "-o", "json"], input=as_file(content))
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


@pytest.mark.timeout(1200)
def test_lint_says_what_the_kubelet_says_and_its_corrected_memory_is_what_the_kubelet_takes(
    oracle: KubeletOracle,
) -> None:
    random = Random(f"{RUN_SEED} memory")
    corrected = 0
    for _ in range(CASES_OF_MEMORY):
        content = random_memory(random)
        (said,) = compare(oracle, iter([content]), DEFAULT_VERSION)
        document = linted(content)
        errors = [each["message"] for each in document["problems"] if each["severity"] == "error"]
        assert set(said.kubelet) <= set(errors), (RUN_SEED, content)
        if block := document["reservedMemory"]:
            right = {**content, "reservedMemory": block}
            (said,) = compare(oracle, iter([right]), DEFAULT_VERSION)
            assert said.kubelet == (), (RUN_SEED, right)
            assert linted(right)["starts"], (RUN_SEED, right)
            corrected += 1
    assert corrected > CASES_OF_MEMORY // 10
