"""``python -m verify.mutants.suite FILE ORACLE``: play recorded cases on replay up to the first disagreement."""

import json
import sys
from pathlib import Path

from verify.oracle.agreement import play
from verify.oracle.kubelet_oracle import Answer, Case, KubeletOracle
from verify.oracle.merging import Merging


class RecordedOracle(KubeletOracle):
    """Gives the recorded answer to one case; on a retry it starts the kubelet's own managers."""

    def __init__(self, binary: Path) -> None:
        super().__init__(binary)
        self.recorded: Answer = {}

    def send(self, case: Case) -> None:
        """Do nothing: the answer is recorded."""

    def receive(self) -> Answer:
        """The recorded answer."""
        return self.recorded

    def ask(self, case: Case) -> Answer:
        """A fresh answer of the managers."""
        super().send(case)
        return super().receive()


def main(file: Path, binary: Path) -> int:
    """Play the recorded cases; the exit code is 1 after a disagreement."""
    oracle = RecordedOracle(binary)
    with oracle, file.open() as lines:
        for line in lines:
            recorded = json.loads(line)
            oracle.recorded = recorded["answer"]
            for merging in recorded["merging"]:
                disagreement = play(recorded["case"], oracle, Merging(merging)).disagreement
                if disagreement is not None:
                    sys.stdout.write(f"{recorded['case']['shows']}: {disagreement}\n")
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
