"""``python -m verify.config_oracle.start``: do kubelet and replay say the same of the start of random configurations?

Prints each difference and the figures. Exits with 1 after a difference, with 3 without an oracle.
"""

import argparse
import base64
import json
import re
import secrets
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from verify.config_oracle.build import config_oracle_binary
from verify.config_oracle.starting import MEMORY, NUMA_NODES, Content, as_file, as_loaded, random_content
from verify.oracle.build import OracleNotBuilt
from verify.oracle.kubelet_oracle import KubeletOracle

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.replay.startup.configuration import Host
from topomend.replay.startup.validation import why_not_start
from topomend.sandbox.failures import SandboxUnavailable


@dataclass(frozen=True)
class Said:
    """What the kubelet and replay say of one configuration."""

    content: Content
    kubelet: tuple[str, ...]
    replay: tuple[str, ...]

    @property
    def agree(self) -> bool:
        """Whether both say the same. Of gates and of maps after validation the kubelet names some in random order."""
        if sorted(self.kubelet) == sorted(self.replay):
            return True
        partly = bool(self.kubelet) and set(self.kubelet) <= set(self.replay)
        return partly and not any(text.startswith(_ALWAYS_ALL) for text in self.replay)


_ALWAYS_ALL = ("invalid configuration:", "invalid taint:", "logging.", "tracing.")


_NEXT_GATE = r", (?=unrecognized feature gate|cannot set feature gate|\S+ is enabled, but depends)"


def sentences_of(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """The sentences in an oracle's answer. Gates make a kubelet panic while it fills in defaults, since 1.32."""
    if "panic" in answer:
        text = answer["panic"].partition("while setting defaults, error: ")[2]
        return tuple(re.split(_NEXT_GATE, text[1:-1])) if text.startswith("[") else (text,)
    if "error" in answer:
        raise AssertionError(f"the kubelet does not read it: {answer['error']}")
    return tuple(answer.get("validation", ()))


def own_host() -> Host:
    """The machine of the oracle: its memory is the case's, its cgroups are those of this machine."""
    return Host(MEMORY, cgroup_v1=not Path("/sys/fs/cgroup/cgroup.controllers").exists())


AHEAD = 16
"""How many cases the oracle has before it: on a busy machine most time goes by between a question and its answer."""


def compare(oracle: KubeletOracle, contents: Iterator[Content], version: str) -> Iterator[Said]:
    """What kubelet and replay say of each configuration."""
    host, asked = own_host(), deque[Content]()

    def said() -> Said:
        answer, content = oracle.receive(), asked.popleft()
        return Said(content, sentences_of(answer), why_not_start(as_loaded(content), version, host=host))

    for content in contents:
        file = base64.b64encode(as_file(content).encode()).decode()
        oracle.send({"file": file, "machine": {"memory": MEMORY, "numaNodes": NUMA_NODES}})
        asked.append(content)
        if len(asked) == AHEAD:
            yield said()
    while asked:
        yield said()


def random_contents(seed: int, cases: int) -> Iterator[Content]:
    """As many configurations, the same ones for the same seed."""
    return (random_content(Random(f"{seed + number}")) for number in range(cases))


def main() -> int:
    """Compare, and print differences and figures."""
    parser = argparse.ArgumentParser(prog="python -m verify.config_oracle.start", description=__doc__)
    parser.add_argument("--cases", type=int, default=30_000, help="how many configurations (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="the first one's number (default: random)")
    parser.add_argument("--version", default=DEFAULT_VERSION, help="the kubelet's release (default: %(default)s)")
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 40) if options.seed is None else options.seed
    sys.stdout.write(f"kubelet {options.version}: repeat with --seed {seed} --cases {options.cases}\n")
    try:
        binary = config_oracle_binary(options.version)
    except (OracleNotBuilt, SandboxUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    found: Counter[str] = Counter()
    with KubeletOracle(binary) as oracle:
        for said in compare(oracle, random_contents(seed, options.cases), options.version):
            found["started"] += not said.kubelet
            found["in order"] += said.kubelet == said.replay
            found["different"] += not said.agree
            if not said.agree:
                sys.stdout.write(f"{json.dumps(said.content)}\n  kubelet: {said.kubelet}\n  replay:  {said.replay}\n")
    sys.stdout.write(
        f"{options.cases} configurations, {found['started']} kubelets start, {found['in order']} answers equal in "
        f"order, {found['different']} differences\n"
    )
    return 1 if found["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
