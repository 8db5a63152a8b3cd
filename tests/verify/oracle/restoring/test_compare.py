"""Replay says of random state files what the kubelet's own managers say. ``make restore-oracle`` compares many more."""

from random import Random

import pytest
from tests.seeds import SEED
from verify.oracle.build import oracle_binary
from verify.oracle.kubelet_oracle import KubeletOracle
from verify.oracle.restoring.compare import difference
from verify.oracle.restoring.generate import random_restore

from topomend.model.nodes.kubelet import DEFAULT_VERSION

CASES = 250


@pytest.mark.timeout(1200)  # the first one to run may have to compile the oracle
def test_replay_says_of_random_state_files_what_the_kubelet_says() -> None:
    refused = 0
    with KubeletOracle(oracle_binary()) as oracle:
        for number in range(SEED, SEED + CASES):
            given = random_restore(Random(number), DEFAULT_VERSION)
            found, said, _ = difference(given, oracle)
            assert found is None, f"case {number} ({', '.join(given.did)}): {found}"
            refused += bool(said)
    assert CASES // 5 < refused < CASES
