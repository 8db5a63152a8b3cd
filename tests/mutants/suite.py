"""``python -m tests.mutants.suite FILE ORACLE``: recorded cases on replay, up to the first on which it disagrees."""

import json
import sys
from pathlib import Path

from tests.merging import Merging
from tests.oracle.agreement import play
from tests.oracle.kubelet_oracle import Answer, Case, KubeletOracle


class RecordedOracle(KubeletOracle):
    """Knows the answer to one case beforehand; asked again, it starts the kubelet's own managers."""

    def __init__(self, binary: Path) -> None:
        super().__init__(binary)
        self.recorded: Answer = {}

    def send(self, case: Case) -> None:
        """Nothing to do: the answer is known."""

    def receive(self) -> Answer:
        """The recorded answer."""
        return self.recorded

    def ask(self, case: Case) -> Answer:
        """What the managers say this time."""
        super().send(case)
        return super().receive()


def main(file: Path, binary: Path) -> int:
    """Play the recorded cases; 1 on the first disagreement."""
    oracle = RecordedOracle(binary)
    with oracle, file.open() as lines:
        for line in lines:
            each = json.loads(line)
            oracle.recorded = each["answer"]
            for merging in each["merging"]:
                found = play(each["case"], oracle, Merging(merging)).disagreement
                if found is not None:
                    sys.stdout.write(f"{each['case']['shows']}: {found}\n")
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
