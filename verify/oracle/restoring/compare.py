"""Asks the kubelet's own managers and replay what they say of random state files at a start, and counts differences.

Both sides are asked about each file, for the kubelet's sentence. Which of several errors a kubelet finds first is left
to the order of Go's maps, so a case on which the two part is asked again.
"""

import multiprocessing
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from random import Random

from verify.oracle.build import oracle_binary
from verify.oracle.cases import node_state
from verify.oracle.kubelet_oracle import Answer, KubeletOracle
from verify.oracle.restoring.generate import RestoreCase, random_restore

from topomend.replay.container_manager import start
from topomend.replay.gates import OLDEST_MINOR
from topomend.replay.startup.state.restore import (
    ACTUATED_STATE,
    ALLOCATED_STATE,
    CLAIM_STATE,
    CPU_STATE,
    CRASH,
    DEVICE_STATE,
    MEMORY_STATE,
    restore_claims,
    restore_cpus,
    restore_devices,
    restore_memory,
    restore_pods,
)

RETRIES = 200
BATCH = 250
FOLDER = "/var/lib/kubelet"
START = "start"
DEVICES = DEVICE_STATE.rpartition("/")[2]


@dataclass(frozen=True)
class Difference:
    """What the two say of a file."""

    file: str
    kubelet: frozenset[str]
    replay: str

    def __str__(self) -> str:
        return f"{self.file}:\n  kubelet: {sorted(self.kubelet)}\n  replay:  {self.replay!r}"


@dataclass
class Report:
    """The result of a batch of cases; ``seen`` counts what the kubelet said."""

    cases: int = 0
    retried: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    differences: list[tuple[int, RestoreCase, Difference]] = field(default_factory=list)

    def add(self, other: "Report") -> None:
        """Add another report to this one."""
        self.cases += other.cases
        self.retried += other.retried
        self.seen += other.seen
        self.differences += other.differences


def restored(given: RestoreCase) -> dict[str, str]:
    """What replay says of each file, empty texts included; or why the kubelet does not start with any."""
    node = node_state(given.case)
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str):
        return {START: kubelet}
    files, settings = given.files, node.kubelet
    said = {
        CPU_STATE: restore_cpus(files[CPU_STATE], settings, kubelet, f"{FOLDER}/{CPU_STATE}"),
        MEMORY_STATE: restore_memory(files[MEMORY_STATE], node.machine, settings, f"{FOLDER}/{MEMORY_STATE}"),
        DEVICES: restore_devices(files[DEVICE_STATE]),
    }
    if int(settings.version.split(".")[1]) >= OLDEST_MINOR + 3:
        said[CLAIM_STATE] = restore_claims(files[CLAIM_STATE])
        said |= {name: restore_pods(files[name], f"{FOLDER}/{name}") for name in (ALLOCATED_STATE, ACTUATED_STATE)}
    return said


def difference(given: RestoreCase, oracle: KubeletOracle) -> tuple[Difference | None, dict[str, str], int]:
    """Where the two part on a case, what the kubelet said first, and how often it was asked again."""
    ours = restored(given)
    answers: list[dict[str, str]] = []
    for retries in range(RETRIES + 1):
        answer = oracle.ask(given.asked)
        answers.append(_said(answer))
        parted = _parted(ours, answers)
        if not parted:
            files = answer.get("restored", {}).get("files", {})
            return _unread_by_replay(given, files), answers[0], retries
    heard = frozenset(each.get(parted, "") for each in answers)
    return Difference(parted, heard, ours.get(parted, "")), answers[0], RETRIES


def _said(answer: Answer) -> dict[str, str]:
    """What the kubelet says of each file that keeps it from starting, or why it does not start with any."""
    if "restored" not in answer:
        return {START: str(answer.get("refused", answer.get("panic")))}
    folder = answer["restored"]["folder"]
    return {name: why.replace(folder, FOLDER) for name, why in answer["restored"]["refused"].items()}


def _parted(ours: dict[str, str], answers: list[dict[str, str]]) -> str:
    """The first file of which none of the kubelet's answers says what replay says; empty if there is none."""
    names = dict.fromkeys([START, *ours])
    return next(
        (name for name in names if all(not _same(name, ours.get(name, ""), each.get(name, "")) for each in answers)), ""
    )


def _same(name: str, ours: str, theirs: str) -> bool:
    """A kubelet only logs what it says of its devices; that it says anything counts."""
    if name == DEVICES:
        return bool(ours) == bool(theirs)
    return ours == theirs


def _unread_by_replay(given: RestoreCase, files: dict[str, str]) -> Difference | None:
    """A file that the kubelet has just written, and with which it would not start again by replay."""
    after = {**given.files, **{name: b64decode(content) for name, content in files.items()}}
    before = restored(given)
    again = restored(replace(given, files=after))
    for name in files:
        if not before[name] and again[name]:
            return Difference(f"{name} as the kubelet wrote it", frozenset({""}), again[name])
    return None


def compare_batch(seeds: range, version: str) -> Report:
    """Compare the cases of these seeds, in a process of a pool."""
    report = Report()
    with KubeletOracle(oracle_binary(version)) as oracle:
        for seed in seeds:
            given = random_restore(Random(seed), version)
            found, said, retries = difference(given, oracle)
            report.cases += 1
            report.retried += found is None and retries > 0
            report.seen.update(_seen(said))
            if found is not None:
                report.differences.append((seed, given, found))
    return report


def _seen(said: dict[str, str]) -> Iterator[str]:
    if not said:
        yield "starts with all of them"
    for name, why in said.items():
        yield f"{name}: {'panic' if why == CRASH else _nameless(why)}"


def _nameless(why: str) -> str:
    why = why.removeprefix("could not restore state from checkpoint: ").partition(", please drain")[0]
    return "".join("N" if each.isdigit() else each for each in why)[:70]


def compare_all(seed: int, cases: int, processes: int, version: str) -> Report:
    """Compare ``cases`` cases from ``seed`` on, in parallel."""
    batches = [range(first, min(first + BATCH, seed + cases)) for first in range(seed, seed + cases, BATCH)]
    report = Report()
    with ProcessPoolExecutor(processes, multiprocessing.get_context("forkserver")) as pool:
        for batch in pool.map(compare_batch, batches, [version] * len(batches)):
            report.add(batch)
    return report
