"""The cases that every mutant is compared on, with the kubelet's answers: these do not depend on replay."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.merging import Merging
from tests.oracle.compare import MERGINGS
from tests.oracle.generate import random_case
from tests.oracle.kubelet_oracle import Case, KubeletOracle

KEPT = Path(__file__).parents[1] / "oracle" / "cases"

FIRST_SEED = 1
"""The random cases are the same in each run: that a mutant is noticed is no matter of luck."""

RANDOM_CASES = 500


def record(file: Path, binary: Path) -> int:
    """Write the cases with the answers of the oracle ``binary``, one a line, kept ones first; how many there are."""
    cases = list(_cases())
    with KubeletOracle(binary) as oracle, file.open("w") as lines:
        for case, merges in cases:
            lines.write(json.dumps({"case": case, "answer": oracle.ask(case), "merging": merges}) + "\n")
    return len(cases)


def _cases() -> Iterator[tuple[Case, list[str]]]:
    """Each case, and how replay merges its hints."""
    for path in sorted(KEPT.glob("*.json")):
        yield json.loads(path.read_text()), [each.value for each in Merging]
    for seed in range(FIRST_SEED, FIRST_SEED + RANDOM_CASES):
        yield {**random_case(Random(seed)), "shows": f"random case {seed}"}, [MERGINGS[seed % len(MERGINGS)].value]
