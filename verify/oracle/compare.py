"""Plays random cases on the kubelet's managers and on replay, on all cores, and counts where the two disagree.

Owns the batches, the report and the shrinking of disagreements. ``agreement`` plays one case; ``generate`` and
``varied`` make the cases.
"""

import json
import multiprocessing
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from verify.oracle.agreement import Disagreement, play
from verify.oracle.build import oracle_binary
from verify.oracle.kubelet_oracle import Answer, Case, KubeletOracle
from verify.oracle.merging import Merging
from verify.oracle.random_cases.generate import random_case
from verify.oracle.random_cases.generate_fit import random_fit_case
from verify.oracle.random_cases.made import KNOWN, machine_of_shape, random_shape
from verify.oracle.random_cases.recorded import RECORDED, recorded_machine
from verify.oracle.random_cases.varied import varied_case
from verify.oracle.rules import passed, rules_of
from verify.oracle.shrink import shrink

from topomend.model.nodes.kubelet import DEFAULT_VERSION

BATCH = 500
"""Cases in a batch: few enough that all cores finish at about the same time."""

VARIED = 7
"""One case in so many is a kept case with a change. An odd number, so that every way of merging gets some."""

MADE = 5
"""One case in so many is on the machine of a random shape."""

MERGINGS = tuple(Merging)
"""The ways of merging hints, by turns."""

MOST_SHRUNK = 5
"""How many disagreements each process shrinks; further ones are only counted."""


Finding: TypeAlias = tuple[int, Case, Disagreement]
"""The seed of a case, the case after shrinking, and the disagreement."""


@dataclass
class Report:
    """The result of a batch of cases.

    ``reached`` counts the cases that exercised each rule; ``seen`` counts settings, outcomes and messages.
    """

    cases: int = 0
    admissions: int = 0
    retried: int = 0
    reached: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    disagreements: list[Finding] = field(default_factory=list)

    def add(self, other: "Report") -> None:
        """Add another report to this one."""
        self.cases += other.cases
        self.admissions += other.admissions
        self.retried += other.retried
        self.reached += other.reached
        self.seen += other.seen
        self.disagreements += other.disagreements

    def lines(self, version: str = DEFAULT_VERSION) -> Iterator[str]:
        """The report as text, for a kubelet of this version."""
        for name, count in sorted(self.seen.items()):
            yield f"{count:9}  {name}"
        rules = rules_of(version)
        yield "\nCases that reached each rule:"
        yield from (f"{self.reached[rule]:9}  {rule}" for rule in rules if self.reached[rule])
        never = [rule for rule in rules if not self.reached[rule]]
        yield f"\n{len(rules) - len(never)} of {len(rules)} rules reached"
        yield from (f"never reached: {rule}" for rule in never)
        yield from map(finding_text, self.disagreements)
        yield (
            f"\n{self.cases} cases, {self.admissions} admissions, {self.retried} agreed only on a retry "
            f"(order of Go's maps): {len(self.disagreements)} disagreements"
        )


def finding_text(finding: Finding) -> str:
    """A disagreement and the case that shows it, as text."""
    seed, case, disagreement = finding
    return f"\nDISAGREEMENT, case {seed}: {disagreement}\n{json.dumps(case)}\n"


def compare(
    seeds: Iterable[int],
    oracle: KubeletOracle,
    shrunk: int = MOST_SHRUNK,
    *,
    version: str = DEFAULT_VERSION,
    machine: Case | None = None,
    fit: bool = False,
) -> Report:
    """Play the cases of ``seeds``, by turns with each way of merging.

    The first ``shrunk`` disagreements are shrunk. ``machine`` replaces the random machine of every case. With ``fit``
    the cases are those for the kubelet's fit check.
    """
    report = Report()
    for seed in seeds:
        case = random_fit_case(Random(seed)) if fit else _managers_case(seed, machine)
        case["kubelet"]["version"] = version
        merging = MERGINGS[seed % len(MERGINGS)]
        played = play(case, oracle, merging)
        report.cases += 1
        report.admissions += sum("admit" in step for step in case["steps"])
        report.retried += played.disagreement is None and played.retries > 0
        report.reached.update(passed(case, played.answer))
        report.seen.update(_seen(case, played.answer))
        report.seen.update(f"not modelled by replay: {feature}" for feature in played.unmodelled)
        if played.disagreement is not None:
            if len(report.disagreements) < shrunk:
                case, disagreement = smallest(case, played.disagreement, oracle, merging)
            else:
                disagreement = played.disagreement
            report.disagreements.append((seed, case, disagreement))
    return report


def _managers_case(seed: int, machine: Case | None) -> Case:
    if machine is None and seed % VARIED == 0:
        return varied_case(Random(seed))
    if machine is None and seed % MADE == 0:
        machine = machine_of_shape(random_shape(Random(seed)))
    return random_case(Random(seed), machine)


def smallest(
    case: Case, disagreement: Disagreement, oracle: KubeletOracle, merging: Merging = Merging.TABLED
) -> tuple[Case, Disagreement]:
    """The smallest case on which the two still disagree about the same field."""

    def still_disagrees(smaller: Case) -> bool:
        again = play(smaller, oracle, merging).disagreement
        return again is not None and again.field == disagreement.field

    case = shrink({**case, "timeoutSeconds": 1}, still_disagrees)
    return case, play(case, oracle, merging).disagreement or disagreement


def _seen(case: Case, answer: Answer) -> Iterator[str]:
    """The settings and outcomes of a case, without numbers and names."""
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
    for step, result in zip(case["steps"], answer.get("steps", ()), strict=False):
        if result["state"] is None:
            return
        if "admit" not in step:
            yield f"step: {next(iter(step))}"
        else:
            yield f"pod: {'admitted' if result['admitted'] else result['reason'] + ' ' + _nameless(result['message'])}"


def _nameless(text: str) -> str:
    return re.sub(r"\d+(,\d+|-\d+)*", "N", re.sub(r"\b[a-z]+\.(com|org|io)/[a-z]+", "RESOURCE", text))[:160]


def compare_batch(seeds: range, version: str = DEFAULT_VERSION, named: str = "", *, fit: bool = False) -> Report:
    """Play one batch, on random machines or on a recorded or known one, in a process of a pool."""
    machine = _named_machine(named) if named else None
    with KubeletOracle(oracle_binary(version)) as oracle:
        report = compare(seeds, oracle, version=version, machine=machine, fit=fit)
    if named:
        report.seen[f"machine: {'recorded ' * (named in RECORDED)}{named}"] = len(seeds)
    return report


def _named_machine(name: str) -> Case:
    return recorded_machine(name) if name in RECORDED else machine_of_shape(name)


def compare_all(
    seed: int, cases: int, processes: int, *, version: str = DEFAULT_VERSION, recorded: int = 0, fit: bool = False
) -> Report:
    """Play ``cases`` cases from ``seed`` on, and ``recorded`` ones on each recorded or known machine, in parallel."""
    batches = [(range(first, min(first + BATCH, seed + cases)), "") for first in range(seed, seed + cases, BATCH)]
    batches += [(range(seed, seed + recorded), name) for name in (*RECORDED, *KNOWN) if recorded]
    cases = sum(len(seeds) for seeds, _ in batches)
    report, begin = Report(), time.monotonic()
    with ProcessPoolExecutor(processes, multiprocessing.get_context("forkserver")) as pool:
        played = [pool.submit(compare_batch, seeds, version, name, fit=fit) for seeds, name in batches]
        for done, future in enumerate(as_completed(played), start=1):
            batch = future.result()
            report.add(batch)
            sys.stderr.writelines(map(finding_text, batch.disagreements))
            if sys.stderr.isatty() or done % 20 == 0 or done == len(batches):
                pace = report.cases / (time.monotonic() - begin)
                sys.stderr.write(
                    f"{report.cases} of {cases} cases, {pace:.0f} a second, {len(report.disagreements)} disagreements\n"
                )
    return report
