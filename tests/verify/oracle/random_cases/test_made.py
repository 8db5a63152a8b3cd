"""Replay agrees with the kubelet's own managers on the known machines, and on those of random shapes.

TOPOMEND_SEED repeats a run. A disagreement becomes a kept case.
"""

from collections.abc import Iterator
from random import Random

import pytest
from tests.seeds import SEED
from verify.oracle.agreement import play
from verify.oracle.build import oracle_binary
from verify.oracle.compare import MERGINGS
from verify.oracle.kubelet_oracle import Case, KubeletOracle
from verify.oracle.random_cases.generate import random_case
from verify.oracle.random_cases.made import KNOWN, machine_of_shape, random_shape

CASES_OF_KNOWN, RANDOM_SHAPES = 5, 150
"""``make oracle`` tries more, night after night."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[KubeletOracle]:
    with KubeletOracle(oracle_binary()) as started:
        yield started


def agrees(seed: int, machine: Case, oracle: KubeletOracle, said: str) -> None:
    disagreement = play(random_case(Random(seed), machine), oracle, MERGINGS[seed % len(MERGINGS)]).disagreement
    assert disagreement is None, f"case {seed} on {said}: {disagreement}"


@pytest.mark.timeout(1200)  # the first one to run may have to compile the oracle
def test_replay_agrees_on_the_known_machines(oracle: KubeletOracle) -> None:
    print(f"seed {SEED}")
    for name in KNOWN:
        machine = machine_of_shape(name)
        for seed in range(SEED, SEED + CASES_OF_KNOWN):
            agrees(seed, machine, oracle, name)


@pytest.mark.timeout(1200)
def test_replay_agrees_on_machines_of_random_shapes(oracle: KubeletOracle) -> None:
    print(f"seed {SEED}")
    for seed in range(SEED, SEED + RANDOM_SHAPES):
        shape = random_shape(Random(seed))
        agrees(seed, machine_of_shape(shape), oracle, shape)
