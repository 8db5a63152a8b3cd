"""``python -m tests.bench``: how fast replay is, beside the kubelet's own code in the same run.

Replay's times are medians of several runs, in processor time of the one core it uses. The kubelet's are on the clock,
medians too where one run takes less than a second: its merge as the oracle's bench mode tells it, its admissions as the
oracle answers them with JSON. What takes the kubelet too long is cut off, and larger merges are not tried any more.
Every target is told as met or MISSED, from the figures; exits with 1 where one is missed.
"""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import median

from tests.bench import workloads
from tests.oracle.build import OracleNotBuilt, oracle_binary
from tests.oracle.cases import node_state
from tests.oracle.kubelet_oracle import KubeletOracle

from topomend.decide.feasibility import diagnose
from topomend.model.cluster import Placement
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod
from topomend.replay.admission import admit, release
from topomend.replay.errors import KUBELET_WOULD_HANG
from topomend.replay.fast_path.admission import FastAdmission
from topomend.replay.fast_path.capacity import prepare
from topomend.replay.topology.hints import Offer
from topomend.replay.topology.merge import NUMAInfo, merge
from topomend.replay.topology.prefer_most_allocated_numa_node import OPTION
from topomend.sandbox.failures import SandboxUnavailable
from topomend.wire.pod import read_pod

PATIENCE = 30
"""Seconds after which a merge of the kubelet is cut off."""

NODES = 5000
ADMISSIONS = 300
RUNS = 5

WIDE_OPTIONS = {"max-allowable-numa-nodes": "64"}

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


@dataclass(frozen=True)
class Row:
    """One measurement, in seconds. ``kubelet`` is a number, or words where there is none."""

    what: str
    ours: float
    kubelet: float | str = "-"
    target: float | None = None
    to_be_faster: bool = False

    @property
    def met(self) -> bool:
        """Whether the targets are met, if there are any."""
        slower = self.to_be_faster and isinstance(self.kubelet, float) and self.ours >= self.kubelet
        return not slower and (self.target is None or self.ours <= self.target)

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        return (
            self.what,
            _duration(self.ours),
            _duration(self.kubelet) if isinstance(self.kubelet, float) else self.kubelet,
            f"{self.kubelet / self.ours:,.1f}x" if isinstance(self.kubelet, float) else "-",
            self._goal(),
            "" if self._goal() == "-" else "met" if self.met else "MISSED",
        )

    def _goal(self) -> str:
        goals = [f"{_duration(self.target)}"] if self.target is not None else []
        return ", ".join(goals + ["faster"] * self.to_be_faster) or "-"


def merges() -> Iterator[Row]:
    """The merge alone, all masks as hints."""
    sizes = sorted(
        ((numa, resources) for numa in (2, 4, 6, 8) for resources in (2, 3, 4)),
        key=lambda size: ((1 << size[0]) - 1) ** size[1],
    )
    hopeless = False
    for numa, resources in sizes:
        offers = workloads.all_masks(numa, resources)
        info = NUMAInfo((1 << numa) - 1)
        seconds = _merging(info, offers, 20)
        kubelet = None if hopeless else _kubelet_merge(numa, resources)
        hopeless = kubelet is None
        target = 0.005 if (numa, resources) == (8, 4) else None
        faster = numa >= 4 and resources >= 3
        what = f"merge, {numa} NUMA nodes x {resources} resources"
        yield Row(what, seconds, kubelet or f"over {PATIENCE} s", target, faster)
    for resources in (3, 4):
        seconds = _merging(NUMAInfo(0xFF), workloads.contrary_masks(8, resources), 20)
        yield Row(f"merge, 8 NUMA nodes x {resources} resources, no mask preferred by all", seconds, target=0.005)


def _merging(info: NUMAInfo, offers: Sequence[Offer], times: int) -> float:
    return _median(lambda: merge(info, offers), times)


def _kubelet_merge(numa: int, resources: int) -> float | None:
    """The kubelet's time for the same merge; None where it was cut off."""
    runs: list[float] = []
    while len(runs) < RUNS and sum(runs) < 1:
        seconds = _one_kubelet_merge(numa, resources)
        if seconds is None:
            return None
        runs.append(seconds)
    return median(runs)


def _one_kubelet_merge(numa: int, resources: int) -> float | None:
    command = [str(oracle_binary()), "bench", f"-numa={numa}", f"-resources={resources}", f"-timeout={PATIENCE}s"]
    answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    seconds: float | None = answer.get("seconds")
    return seconds


def admissions() -> Iterator[Row]:
    """Whole admissions on a server with two NUMA nodes, while pods come and go."""
    case = workloads.case(workloads.SERVER, "single-numa-node", workloads.many_pods(Random(3), ADMISSIONS))
    steps = [read_pod(step["admit"]) if "admit" in step else step["end"]["name"] for step in case["steps"]]
    state = node_state(case)
    ours = _median(lambda: _play(state, steps), 3)
    with KubeletOracle(oracle_binary()) as oracle:
        oracle.ask({**case, "steps": []})
        runs = []
        for _ in range(RUNS):
            begin = time.perf_counter()
            answer = oracle.ask(case)
            runs.append(time.perf_counter() - begin)
    theirs = [said["admitted"] for asked, said in zip(case["steps"], answer["steps"], strict=True) if "admit" in asked]
    if theirs != _play(state, steps):
        raise SystemExit("replay and the kubelet's managers answer differently: what was measured is not comparable")
    ours, kubelet = ours / ADMISSIONS, median(runs) / ADMISSIONS
    what = f"an admission on 2 NUMA nodes and 128 CPUs ({1 / ours:,.0f} a second; the kubelet's {1 / kubelet:,.0f})"
    yield Row(what, ours, kubelet, 0.001)


def _play(state: NodeState, steps: list[Pod | str]) -> list[bool]:
    admitted = []
    for step in steps:
        if isinstance(step, str):
            state = release(state, "default", step)
        else:
            verdict, state = admit(state, step)
            admitted.append(verdict.admitted)
    return admitted


def wide_admissions() -> Iterator[Row]:
    """Admissions with up to four aligned resources (CPUs, memory, two kinds of devices) on ever more NUMA nodes."""
    for policy in POLICIES:
        state = workloads.half_full(workloads.EIGHT, policy)
        pods = [read_pod(workloads.pod("p", cpu=cpus, memory="20Gi", gpu=1, nic=2)) for cpus in (4, 20, 40)]
        yield Row(f"an admission on 8 NUMA nodes x 4 resources, {policy}", _slowest(state, pods), target=0.005)
    for policy in ("best-effort", "restricted"):
        state = workloads.half_full(workloads.SIXTEEN, policy, WIDE_OPTIONS)
        pods = [read_pod(workloads.pod("p", cpu=cpus, gpu=1)) for cpus in (4, 20, 40)]
        yield Row(f"an admission on 16 NUMA nodes x 2 resources, {policy}", _slowest(state, pods), target=0.500)
    yield from _on_34_numa_nodes()
    for name, numa, info, offers in workloads.one_resource_merges():
        yield Row(f"merge, {numa} NUMA nodes x 1 resource, {name}", _merging(info, offers, 3), target=0.050)
    for name, distances in workloads.distances_without_classes().items():
        info = NUMAInfo((1 << 34) - 1, distances)
        seconds = _merging(info, workloads.any_nodes(17), 3)
        yield Row(f"merge, 34 NUMA nodes x 1 resource, closest 17 by {name}", seconds)


def _on_34_numa_nodes() -> Iterator[Row]:
    """Policies that look at single NUMA nodes have an answer, the others KubeletWouldHang."""
    for policy in POLICIES:
        state = workloads.half_full(workloads.WIDE, policy, WIDE_OPTIONS)
        pods = [read_pod(workloads.pod("p", cpu=cpus, memory="10Gi", gpu=1, nic=2)) for cpus in (4, 20, 100)]
        hangs = KUBELET_WOULD_HANG in {admit(state, pod)[0].reason for pod in pods}
        if hangs != (policy in {"best-effort", "restricted"}):
            raise SystemExit(f"an admission on 34 NUMA nodes x 4 resources, {policy}: hangs is {hangs}")
        what = f"an admission on 34 NUMA nodes x 4 resources, {policy}" + (", would hang" if hangs else "")
        yield Row(what, _slowest(state, pods), target=0.050)
    state = workloads.half_full(
        workloads.WIDE,
        "single-numa-node",
        {**WIDE_OPTIONS, OPTION: "true"},
        {"TopologyManagerPolicyAlphaOptions": True},
    )
    pods = [read_pod(workloads.pod("p", cpu=cpus, memory="10Gi", gpu=1, nic=2)) for cpus in (4, 20, 100)]
    what = "an admission on 34 NUMA nodes x 4 resources, single-numa-node, most allocated"
    yield Row(what, _slowest(state, pods), target=0.050)


def _slowest(state: NodeState, pods: list[Pod]) -> float:
    return max(_admitting(state, pod) for pod in pods)


def _admitting(state: NodeState, pod: Pod) -> float:
    return _median(lambda: admit(state, pod), 5)


def fits() -> Iterator[Row]:
    """One pod against many nodes."""
    states = workloads.node_states(NODES)
    pod = read_pod(workloads.pod("asked", cpu=8, memory="16Gi", gpu=2))
    gc.collect()
    unread = _cpu_seconds(lambda: _ask(FastAdmission(pod), states))
    cold = _median(_cold(states), RUNS)
    asking = FastAdmission(pod)
    fitting = _ask(asking, states)
    changes = []
    for round_ in range(5):
        for number in Random(round_).sample(range(NODES), NODES // 100):
            states[number] = replace(states[number])
            prepare(states[number])
        changes.append(_cpu_seconds(lambda: _ask(asking, states)))
    if fitting != sum(admit(state, pod)[0].admitted for state in states):
        raise SystemExit("the short answers are not those of whole admissions")
    yield Row(f"a pod against {NODES} nodes whose states nobody read as they came", unread)
    yield Row(f"a pod against {NODES} nodes, cold: not asked before", cold, target=0.100)
    yield Row(f"the same pod again, 1 % of {NODES} nodes changed", median(changes), target=0.010)
    snapshot = workloads.cluster(states)
    other = read_pod(workloads.pod("other", cpu=10, memory="18Gi", gpu=1))
    yield Row(
        f"a diagnosis with ranks and reasons of {NODES} nodes, cold",
        _cpu_seconds(lambda: diagnose(snapshot, other, Placement())),
    )
    again = _median(lambda: diagnose(snapshot, other, Placement()), RUNS)
    yield Row(f"the same diagnosis again of {NODES} nodes", again)


def _cold(states: list[NodeState]) -> Callable[[], object]:
    """Each time another pod is asked about, so that no state remembers an answer."""
    asked = iter([read_pod(workloads.pod("cold", cpu=8, memory=f"{16 + number}Gi", gpu=2)) for number in range(RUNS)])
    return lambda: _ask(FastAdmission(next(asked)), states)


def _ask(asking: FastAdmission, states: list[NodeState]) -> int:
    return sum([asking.admits(state) for state in states])


def _median(run: Callable[[], object], times: int) -> float:
    return median(_cpu_seconds(run) for _ in range(times))


def _cpu_seconds(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def _duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def main() -> int:
    """Measure everything, printing each row as it is known."""
    try:
        oracle_binary()
    except (OracleNotBuilt, SandboxUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    form = "{:106} {:>9} {:>10} {:>12} {:>13}  {}\n"
    sys.stdout.write(form.format("", "replay", "kubelet", "ratio", "target", ""))
    missed = 0
    for measure in (merges, admissions, wide_admissions, fits):
        for row in measure():
            sys.stdout.write(form.format(*row.cells()))
            sys.stdout.flush()
            missed += not row.met
    if missed:
        sys.stderr.write(f"{missed} targets MISSED\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
