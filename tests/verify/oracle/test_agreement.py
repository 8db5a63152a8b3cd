"""Replay agrees with the kubelet's own managers on every kept case and on random ones.

The first run compiles the kubelet's packages (minutes with a cold Go cache). CASES in the environment is the number of
random cases, 30,000 in ``make verify``; TOPOMEND_SEED repeats a run.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.seeds import SEED, cases
from verify.oracle.agreement import play
from verify.oracle.build import oracle_binary
from verify.oracle.kept import KEPT, NEXT_KEPT, KeptAnswer, read_next
from verify.oracle.kubelet_oracle import KubeletOracle
from verify.oracle.merging import Merging

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.replay.gates import NEXT

CASES = int(os.environ.get("CASES", cases(600, 1500)))

ENOUGH = 30_000
"""So many random cases exercise every rule of ``rules``: one in 3,000 reaches the rarest."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[KubeletOracle]:
    with KubeletOracle(oracle_binary()) as started:
        yield started


@pytest.mark.timeout(1200)  # the first one to run may have to compile the oracle
@pytest.mark.parametrize("merging", Merging, ids=lambda merging: merging.value)
@pytest.mark.parametrize("path", KEPT, ids=[path.stem for path in KEPT])
def test_replay_agrees_on_a_kept_case(path: Path, merging: Merging, oracle: KubeletOracle) -> None:
    case = json.loads(path.read_text())
    disagreement = play(case, oracle, merging).disagreement
    assert disagreement is None, f"{case['shows']}\n{disagreement}"


@pytest.mark.parametrize("merging", Merging, ids=lambda merging: merging.value)
@pytest.mark.parametrize("path", NEXT_KEPT, ids=[path.stem for path in NEXT_KEPT])
def test_replay_agrees_on_a_kept_case_of_the_next_release(path: Path, merging: Merging) -> None:
    """``python -m verify.oracle.next_release`` asks that kubelet again."""
    case, answer = read_next(path)
    assert case["kubelet"]["version"] == NEXT
    disagreement = play(case, KeptAnswer(answer), merging).disagreement
    assert disagreement is None, f"{case['shows']}\n{disagreement}"


@pytest.mark.parametrize("path", NEXT_KEPT, ids=[path.stem for path in NEXT_KEPT])
def test_the_newest_release_answers_such_a_case_otherwise(path: Path) -> None:
    case, answer = read_next(path)
    case["kubelet"]["version"] = DEFAULT_VERSION
    assert play(case, KeptAnswer(answer)).disagreement is not None, case["shows"]


def test_every_kept_case_says_in_a_sentence_of_its_own_what_it_shows() -> None:
    shown = [json.loads(path.read_text())["shows"] for path in (*KEPT, *NEXT_KEPT)]
    assert sorted(set(shown)) == sorted(shown)


COMPARISON = [sys.executable, "-m", "verify.oracle", f"--cases={CASES}", f"--seed={SEED}", "--recorded=0"]


@pytest.mark.timeout(1800)  # a core plays 200 cases a second, fewer when the machine is busy
def test_replay_agrees_on_random_cases() -> None:
    compared = subprocess.run(COMPARISON, capture_output=True, text=True, check=False)
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert f"{CASES} cases" in compared.stdout
    if CASES >= ENOUGH:
        never = [line for line in compared.stdout.splitlines() if line.startswith("never reached: ")]
        assert never == [], f"seed {SEED}"
