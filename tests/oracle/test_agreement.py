"""Replay agrees with the kubelet's own managers: on every kept case, and on random ones.

Slow the first time, when the kubelet's packages are compiled (minutes with a cold Go cache), and then by the number of
random cases: CASES in the environment changes it. SEED repeats a run.
"""

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.early import Early
from tests.merging import Merging
from tests.oracle.agreement import play
from tests.oracle.build import oracle_binary
from tests.oracle.kubelet_oracle import KubeletOracle

KEPT = sorted((Path(__file__).parent / "cases").glob("*.json"))

CASES = int(os.environ.get("CASES", "30000"))

ENOUGH = 30_000
"""So many random cases pass through every rule of ``rules``: the rarest is met by one in 3,000."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[KubeletOracle]:
    with KubeletOracle(oracle_binary()) as started:
        yield started


@pytest.mark.timeout(1200)  # the first one to run may have to compile the oracle
@pytest.mark.parametrize("merging", Merging, ids=lambda each: each.value)
@pytest.mark.parametrize("kept", KEPT, ids=[path.stem for path in KEPT])
def test_replay_agrees_on_a_kept_case(kept: Path, merging: Merging, oracle: KubeletOracle) -> None:
    case = json.loads(kept.read_text())
    found = play(case, oracle, merging).disagreement
    assert found is None, f"{case['shows']}\n{found}"


def test_every_kept_case_says_in_a_sentence_of_its_own_what_it_shows() -> None:
    shown = [json.loads(path.read_text())["shows"] for path in KEPT]
    assert sorted(set(shown)) == sorted(shown)


SEED = int(os.environ.get("SEED", secrets.randbelow(1 << 40)))

RANDOM_CASES = Early("tests.oracle.compare", f"--cases={CASES}", f"--seed={SEED}", "--recorded=0")


@pytest.mark.timeout(1800)  # a core plays 200 cases a second, fewer when the machine is busy
@pytest.mark.early(RANDOM_CASES)
def test_replay_agrees_on_random_cases() -> None:
    code, said = RANDOM_CASES.result()
    assert code == 0, said
    assert f"{CASES} cases" in said
    if CASES >= ENOUGH:
        never = [line for line in said.splitlines() if line.startswith("never reached: ")]
        assert never == [], f"seed {SEED}"
