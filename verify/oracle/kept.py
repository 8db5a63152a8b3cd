"""The kept cases: one JSON file for each mistake that replay once made, and for each edge of the kubelet's rules."""

import json
from pathlib import Path

from verify.oracle.kubelet_oracle import Answer, Case, KubeletOracle

KEPT = tuple(sorted((Path(__file__).parent / "cases").glob("*.json")))
"""The files of all kept cases, by name. ``kubelet/case.go`` describes their format."""

NEXT_KEPT = tuple(sorted((Path(__file__).parent / "next_cases").glob("*.json")))
"""Cases of a kubelet that is not released (``replay/gates.py:NEXT``), each with its ``answer``: it is seldom built."""


class KeptAnswer(KubeletOracle):
    """The answer that the kubelet's managers once gave to a case."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def send(self, case: Case) -> None:
        """The case is known."""

    def receive(self) -> Answer:
        return self._answer


def read_next(path: Path) -> tuple[Case, Answer]:
    """A case of the next release, and the kubelet's answer."""
    case = json.loads(path.read_text())
    return case, case.pop("answer")
