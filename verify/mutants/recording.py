"""Records the cases that every mutant is compared on, with the kubelet's answers, which do not depend on replay."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

from verify.oracle.compare import MERGINGS
from verify.oracle.kept import KEPT
from verify.oracle.kubelet_oracle import Case, KubeletOracle
from verify.oracle.merging import Merging
from verify.oracle.random_cases.generate import random_case

FIRST_SEED = 1
"""The random cases are the same in each run, so whether a mutant is killed is no matter of luck."""

RANDOM_CASES = 500


def record(file: Path, binary: Path) -> int:
    """Write the cases with the oracle's answers, one a line, kept ones first; return their number."""
    cases = list(_cases())
    with KubeletOracle(binary) as oracle, file.open("w") as lines:
        for case, merges in cases:
            lines.write(json.dumps({"case": case, "answer": oracle.ask(case), "merging": merges}) + "\n")
    return len(cases)


def _cases() -> Iterator[tuple[Case, list[str]]]:
    """Each case, and the ways in which replay merges its hints."""
    for path in KEPT:
        yield json.loads(path.read_text()), [merging.value for merging in Merging]
    for seed in range(FIRST_SEED, FIRST_SEED + RANDOM_CASES):
        yield {**random_case(Random(seed)), "shows": f"random case {seed}"}, [MERGINGS[seed % len(MERGINGS)].value]
