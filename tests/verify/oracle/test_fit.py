"""Replay agrees with the whole admission of a kubelet on random nodes and pods: its managers, then its fit check.

A small sister of ``make fit-oracle``. FIT_CASES in the environment is the number of cases; TOPOMEND_SEED repeats a run.
"""

import os
import subprocess
import sys

import pytest
from tests.seeds import SEED, cases

CASES = int(os.environ.get("FIT_CASES", cases(400, 1000)))
REACHED = ("OutOfcpu", "OutOfmemory", "OutOfpods", "NodeAffinity", "TaintToleration", "TopologyAffinityError")


@pytest.mark.timeout(1800)  # the first one to run may have to compile the oracle
def test_replay_agrees_with_the_fit_check_on_random_cases() -> None:
    command = [sys.executable, "-m", "verify.oracle", "--fit", f"--cases={CASES}", f"--seed={SEED}"]
    compared = subprocess.run(
        [*command, "--report=build/fit-oracle-test.txt"], capture_output=True, text=True, check=False
    )
    # The disagreements come first: CI shows the beginning and the end of what failed.
    assert compared.returncode == 0, f"seed {SEED}\n{compared.stderr}{compared.stdout}"
    assert f"{CASES} cases" in compared.stdout
    assert [reason for reason in REACHED if f"pod: {reason} " not in compared.stdout] == [], f"seed {SEED}"
