"""Replay agrees with the kubelet's own managers on recorded machines: odd, broken and wide ones among them.

They are not part of the project; the test runs if they are next to it. TOPOMEND_SEED repeats a run.
"""

from collections.abc import Iterator
from random import Random

import pytest
from tests.seeds import SEED
from verify.oracle.agreement import play
from verify.oracle.build import oracle_binary
from verify.oracle.compare import MERGINGS
from verify.oracle.kubelet_oracle import KubeletOracle
from verify.oracle.random_cases.generate import random_case
from verify.oracle.random_cases.recorded import RECORDED, recorded_machine

CASES = 12
"""For each machine; ``make oracle`` tries more, night after night."""

pytestmark = pytest.mark.skipif(not RECORDED, reason="no recorded machines beside the project (../shared/data/hwloc)")


@pytest.fixture(scope="module")
def oracle() -> Iterator[KubeletOracle]:
    with KubeletOracle(oracle_binary()) as started:
        yield started


@pytest.mark.timeout(1200)  # the first one to run may have to compile the oracle
@pytest.mark.parametrize("name", RECORDED)
def test_replay_agrees_on_a_recorded_machine(name: str, oracle: KubeletOracle) -> None:
    machine = recorded_machine(name)
    for seed in range(SEED, SEED + CASES):
        case = random_case(Random(seed), machine)
        disagreement = play(case, oracle, MERGINGS[seed % len(MERGINGS)]).disagreement
        assert disagreement is None, f"case {seed}: {disagreement}"
