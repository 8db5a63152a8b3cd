"""``python -m tests.oracle.compare``: random cases on the kubelet's managers and on replay, on all cores.

Says which rules the cases passed through and where the two part.
What disagrees is shrunk and written down as JSON, ready to be kept in ``cases/`` once it is mended.
"""

import argparse
import json
import multiprocessing
import os
import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeAlias

from tests.merging import Merging
from tests.oracle.agreement import Disagreement, play
from tests.oracle.build import OracleNotBuilt, oracle_binary
from tests.oracle.generate import random_case
from tests.oracle.kubelet_oracle import Answer, Case, KubeletOracle
from tests.oracle.recorded import RECORDED, recorded_machine
from tests.oracle.rules import passed, rules_of
from tests.oracle.shrink import shrink
from tests.oracle.varied import varied_case

from topomend.model.kubelet import DEFAULT_VERSION
from topomend.sandbox.failures import SandboxUnavailable

REPORT = Path("build/oracle-report.txt")

BATCH = 500
"""Cases a batch: small enough that all cores end together."""

VARIED = 7
"""One case in so many is a kept one with something changed: an odd number, so that all merges meet them."""

MERGINGS = tuple(Merging)
"""How the hints of one case after the other are merged."""

MOST_SHRUNK = 5
"""Disagreements that are shrunk in each process; further ones are counted only."""


Found: TypeAlias = tuple[int, Case, Disagreement]
"""The seed of a case, the case made small, and where the two part on it."""


@dataclass
class Report:
    """What a batch of cases came to.

    ``reached`` counts the cases that passed through each rule of the list, ``seen`` whatever else differs among cases.
    """

    cases: int = 0
    admissions: int = 0
    asked_again: int = 0
    reached: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    disagreements: list[Found] = field(default_factory=list)

    def add(self, other: "Report") -> None:
        """Count ``other`` in."""
        self.cases += other.cases
        self.admissions += other.admissions
        self.asked_again += other.asked_again
        self.reached += other.reached
        self.seen += other.seen
        self.disagreements += other.disagreements

    def lines(self, version: str = DEFAULT_VERSION) -> Iterator[str]:
        """The report for a person: of a kubelet of this version."""
        for what, count in sorted(self.seen.items()):
            yield f"{count:9}  {what}"
        rules = rules_of(version)
        yield "\nThe rules that were reached, and by how many cases:"
        yield from (f"{self.reached[rule]:9}  {rule}" for rule in rules if self.reached[rule])
        never = [rule for rule in rules if not self.reached[rule]]
        yield f"\n{len(rules) - len(never)} of {len(rules)} rules reached"
        yield from (f"never reached: {rule}" for rule in never)
        yield from map(told, self.disagreements)
        yield (
            f"\n{self.cases} cases, {self.admissions} admissions, {self.asked_again} settled only when asked again "
            f"(order of Go's maps): {len(self.disagreements)} disagreements"
        )


def told(found: Found) -> str:
    """A disagreement for a person, with the case that shows it."""
    seed, case, disagreement = found
    return f"\nDISAGREEMENT, case {seed}: {disagreement}\n{json.dumps(case)}\n"


def compare(
    seeds: Iterable[int],
    oracle: KubeletOracle,
    shrunk: int = MOST_SHRUNK,
    *,
    version: str = DEFAULT_VERSION,
    machine: Case | None = None,
) -> Report:
    """Play the cases of ``seeds``, two of four with the merges for wide machines.

    The first ``shrunk`` disagreements are made small. ``machine`` is the machine of all cases in place of random ones.
    """
    report = Report()
    for seed in seeds:
        case = (
            varied_case(Random(seed)) if machine is None and seed % VARIED == 0 else random_case(Random(seed), machine)
        )
        case["kubelet"]["version"] = version
        merging = MERGINGS[seed % len(MERGINGS)]
        played = play(case, oracle, merging)
        report.cases += 1
        report.admissions += sum("admit" in step for step in case["steps"])
        report.asked_again += played.disagreement is None and played.asked_again > 0
        report.reached.update(passed(case, played.answer))
        report.seen.update(_seen(case, played.answer))
        report.seen.update(f"not modelled by replay: {each}" for each in played.unmodelled)
        if played.disagreement is not None:
            if len(report.disagreements) < shrunk:
                case, found = smallest(case, played.disagreement, oracle, merging)
            else:
                found = played.disagreement
            report.disagreements.append((seed, case, found))
    return report


def smallest(
    case: Case, found: Disagreement, oracle: KubeletOracle, merging: Merging = Merging.TABLED
) -> tuple[Case, Disagreement]:
    """The case made small while the two still part over the same field."""

    def still_disagrees(smaller: Case) -> bool:
        again = play(smaller, oracle, merging).disagreement
        return again is not None and again.field == found.field

    case = shrink({**case, "timeoutSeconds": 1}, still_disagrees)
    return case, play(case, oracle, merging).disagreement or found


def _seen(case: Case, answer: Answer) -> Iterator[str]:
    """What is in this case and its answer, with numbers and names taken out."""
    kubelet = case["kubelet"]
    yield f"machine: {len(case['machine']['numaNodes'])} NUMA nodes"
    for name in ("topologyManagerPolicyOptions", "cpuManagerPolicyOptions", "featureGates"):
        yield from (f"{name}: {option}={value}" for option, value in kubelet.get(name, {}).items())
    policies = [kubelet[name] for name in ("topologyManagerPolicy", "topologyManagerScope")]
    policies += [f"cpu {kubelet['cpuManagerPolicy']}", f"memory {kubelet['memoryManagerPolicy']}"]
    yield "node: " + ", ".join([*policies, "devices" if case["devices"] else "no devices"])
    if "refused" in answer:
        yield f"refused to start: {_nameless(answer['refused'])}"
    if answer.get("panic"):
        yield f"panic: {_nameless(answer['panic'])}"
    if answer.get("timeout"):
        yield "no end"
    for step, said in zip(case["steps"], answer.get("steps", ()), strict=False):
        if said["state"] is None:
            return
        if "admit" not in step:
            yield f"step: {next(iter(step))}"
        else:
            yield f"pod: {'admitted' if said['admitted'] else said['reason'] + ' ' + _nameless(said['message'])}"


def _nameless(text: str) -> str:
    return re.sub(r"\d+(,\d+|-\d+)*", "N", re.sub(r"\b[a-z]+\.(com|org|io)/[a-z]+", "RESOURCE", text))[:160]


def compare_batch(seeds: range, version: str = DEFAULT_VERSION, recorded: str = "") -> Report:
    """One batch in a process of its own, on random machines or on a recorded one."""
    machine = recorded_machine(recorded) if recorded else None
    with KubeletOracle(oracle_binary(version)) as oracle:
        report = compare(seeds, oracle, version=version, machine=machine)
    if recorded:
        report.seen[f"machine: recorded {recorded}"] = len(seeds)
    return report


def main() -> int:
    """Run the comparison that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.compare", description=__doc__)
    parser.add_argument("--cases", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=None, help="the first case's number (default: a random one)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--version", default=DEFAULT_VERSION, help="the kubelet's version (default: %(default)s)")
    parser.add_argument("--recorded", type=int, default=100, help="cases on each recorded machine, where there are any")
    parser.add_argument("--report", type=Path, default=REPORT, help="a file for the report (default: %(default)s)")
    parser.add_argument("--write", type=Path, help="a folder for the disagreements, one file each")
    options = parser.parse_args()
    try:
        oracle_binary(options.version)
    except (OracleNotBuilt, SandboxUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    seed = secrets.randbelow(1 << 40) if options.seed is None else options.seed
    first = f"kubelet {options.version}, seed {seed}: repeat with --seed {seed} --cases {options.cases}"
    sys.stdout.write(f"{first}\n")
    report = compare_all(seed, options.cases, options.processes, version=options.version, recorded=options.recorded)
    lines = list(report.lines(options.version))
    sys.stdout.write("\n".join(lines) + "\n")
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text("\n".join([first, *lines]) + "\n")
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        for number, case, _ in report.disagreements:
            (options.write / f"{number}.json").write_text(json.dumps(case, indent=1) + "\n")
    return 1 if report.disagreements else 0


def compare_all(seed: int, cases: int, processes: int, *, version: str = DEFAULT_VERSION, recorded: int = 0) -> Report:
    """Play ``cases`` cases from ``seed`` on, and ``recorded`` ones on each recorded machine, in so many processes."""
    batches = [(range(first, min(first + BATCH, seed + cases)), "") for first in range(seed, seed + cases, BATCH)]
    batches += [(range(seed, seed + recorded), name) for name in RECORDED if recorded]
    cases = sum(len(seeds) for seeds, _ in batches)
    report, begin = Report(), time.monotonic()
    with ProcessPoolExecutor(processes, multiprocessing.get_context("forkserver")) as pool:
        played = [pool.submit(compare_batch, seeds, version, name) for seeds, name in batches]
        for done, each in enumerate(as_completed(played), start=1):
            batch = each.result()
            report.add(batch)
            sys.stderr.writelines(map(told, batch.disagreements))
            if sys.stderr.isatty() or done % 20 == 0 or done == len(batches):
                pace = report.cases / (time.monotonic() - begin)
                sys.stderr.write(
                    f"{report.cases} of {cases} cases, {pace:.0f} a second, {len(report.disagreements)} disagreements\n"
                )
    return report


if __name__ == "__main__":
    sys.exit(main())
