"""``python -m verify.bench``: how fast replay is, beside the kubelet's own code in the same run.

Replay's times are medians of several runs, in CPU time. The kubelet's are wall-clock times, and medians if one run is
shorter than a second: its merge by the oracle's bench mode, its admissions by the oracle's answers in JSON. A merge
that takes the kubelet too long is cut off, and larger ones are not tried. RATIO is the kubelet's time over replay's.
Exits with 1 if a target is missed.
"""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from random import Random
from statistics import mean, median

from verify.bench import workloads
from verify.oracle.build import OracleNotBuilt, oracle_binary
from verify.oracle.cases import node_state
from verify.oracle.kubelet_oracle import KubeletOracle
from verify.pictures.examples import EIGHT, server

from topomend.decide.diagnosis.feasibility import diagnose
from topomend.decide.diagnosis.survey import Surveys
from topomend.decide.pools.pools import Pool
from topomend.explain.nearest.nearest_amounts import nearest_amounts
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Placement
from topomend.picture import pool as pools
from topomend.picture.drawing import page as pages
from topomend.picture.drawing.document import Picture, Section
from topomend.picture.form import HTML
from topomend.picture.machine import node
from topomend.picture.machine.facts import Subject
from topomend.replay.admission import admit, release
from topomend.replay.errors import KUBELET_WOULD_HANG
from topomend.replay.fast_path.admission import FastAdmission
from topomend.replay.fast_path.capacity import prepare
from topomend.replay.topology.hints import Offer
from topomend.replay.topology.merge import NUMAInfo, merge
from topomend.replay.topology.prefer_most_allocated_numa_node import OPTION
from topomend.sandbox.failures import SandboxUnavailable
from topomend.wire.pods.pod import read_pod

CUT_OFF_SECONDS = 30
"""How long a merge of the kubelet may take."""

NODES = 5000
ADMISSIONS = 300
RUNS = 5
REFUSED_PODS = 20

WIDE_OPTIONS = {"max-allowable-numa-nodes": "64"}

IMPORT = "import time; begun = time.process_time(); import topomend.library; print(time.process_time() - begun)"

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


@dataclass(frozen=True)
class Row:
    """One measurement, in seconds. ``kubelet`` is a time, or text if there is none."""

    name: str
    ours: float
    kubelet: float | str = "-"
    target: float | None = None
    to_be_faster: bool = False

    @property
    def met(self) -> bool:
        """Whether the row meets its targets, if it has any."""
        slower = self.to_be_faster and isinstance(self.kubelet, float) and self.ours >= self.kubelet
        return not slower and (self.target is None or self.ours <= self.target)

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        return (
            self.name,
            _duration(self.ours),
            _duration(self.kubelet) if isinstance(self.kubelet, float) else self.kubelet,
            f"{self.kubelet / self.ours:,.1f}x" if isinstance(self.kubelet, float) else "-",
            self._goal(),
            "" if self._goal() == "-" else "met" if self.met else "MISSED",
        )

    def _goal(self) -> str:
        goals = [f"{_duration(self.target)}"] if self.target is not None else []
        return ", ".join(goals + ["faster"] * self.to_be_faster) or "-"


def imports() -> Iterator[Row]:
    """What a program pays that uses the library, in a process of its own each time."""
    command = [sys.executable, "-c", IMPORT]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(RUNS)]
    yield Row("importing topomend.library", median(map(float, runs)), target=0.300)


def drawings() -> Iterator[Row]:
    """Pages of 100 nodes: each with all its boxes, and small ones of 256 CPUs as a pool."""
    ordinary = [server(f"n-{number}", "sockets:2 numa:2 cores:16 memory:64Gi") for number in range(100)]
    large = [server(f"n-{number}", EIGHT) for number in range(100)]
    subject = pools.PoolSubject(Pool("gpu", 100, tuple(state.name for state in large), (), ()), large)

    def page(sections: Iterable[Section]) -> str:
        return pages.written(Picture("100 nodes", [*sections]), HTML)

    apart = _median(lambda: page(node.section_of(Subject(state)) for state in ordinary), RUNS)
    yield Row("drawing 100 nodes of 64 CPUs", apart, target=1.0)
    yield Row(
        "drawing a pool of 100 nodes of 256 CPUs", _median(lambda: page([pools.section_of(subject)]), RUNS), target=1.0
    )


def merges() -> Iterator[Row]:
    """Only the merge, with all masks as hints."""
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
        name = f"merge, {numa} NUMA nodes x {resources} resources"
        yield Row(name, seconds, kubelet or f"> {CUT_OFF_SECONDS} s", target, faster)
    for resources in (3, 4):
        seconds = _merging(NUMAInfo(0xFF), workloads.contrary_masks(8, resources), 20)
        yield Row(f"merge, 8 NUMA nodes x {resources} resources, no mask preferred by all", seconds, target=0.005)


def _merging(info: NUMAInfo, offers: Sequence[Offer], times: int) -> float:
    return _median(lambda: merge(info, offers), times)


def _kubelet_merge(numa: int, resources: int) -> float | None:
    """The kubelet's time for the same merge; None if it was cut off."""
    runs: list[float] = []
    while len(runs) < RUNS and sum(runs) < 1:
        seconds = _one_kubelet_merge(numa, resources)
        if seconds is None:
            return None
        runs.append(seconds)
    return median(runs)


def _one_kubelet_merge(numa: int, resources: int) -> float | None:
    command = [
        str(oracle_binary()),
        "bench",
        f"-numa={numa}",
        f"-resources={resources}",
        f"-timeout={CUT_OFF_SECONDS}s",
    ]
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
    theirs = [
        result["admitted"] for step, result in zip(case["steps"], answer["steps"], strict=True) if "admit" in step
    ]
    if theirs != _play(state, steps):
        raise SystemExit("replay and the kubelet's managers disagree: their times cannot be compared")
    ours, kubelet = ours / ADMISSIONS, median(runs) / ADMISSIONS
    name = f"an admission on 2 NUMA nodes and 128 CPUs ({1 / ours:,.0f} a second; the kubelet's {1 / kubelet:,.0f})"
    yield Row(name, ours, kubelet, 0.001)


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


def refusals() -> Iterator[Row]:
    """What would be admitted instead of a refused pod: the nearest amounts, and the whole explanation."""
    asked: list[dict[str, str | int]] = [
        {"cpu": 24, "memory": "20Gi"},
        {"cpu": 40, "memory": "20Gi", "gpu": 1, "nic": 2},
        {"cpu": 8, "memory": "900Gi"},
        {"cpu": 2, "memory": "1Gi", "gpu": 20},
    ]
    for policy in POLICIES[1:]:
        state = workloads.half_full(workloads.EIGHT, policy)
        pods = [
            pod for pod in (read_pod(workloads.pod("p", **amounts)) for amounts in asked) if not _admits(state, pod)
        ]
        slowest = max(_median(partial(nearest_amounts, state, pod), 5) for pod in pods)
        yield Row(f"the nearest amounts for a refused pod on 8 NUMA nodes, {policy}", slowest, target=0.005)
    for policy, scope in product(POLICIES, ("container", "pod")):
        if policy != "none" or scope == "container":
            yield _of_five_containers(policy, scope)


def _of_five_containers(policy: str, scope: str) -> Row:
    """The mean of refused pods. The target is for policies that refuse most merges, which narrows the search."""
    state = workloads.half_full(workloads.EIGHT, policy)
    state = replace(state, kubelet=replace(state.kubelet, topology_manager_scope=scope))
    random = Random(5)
    pods = (read_pod(workloads.pod_of_several("p", random, 5)) for _ in range(200))
    refused = [pod for pod in pods if not _admits(state, pod)][:REFUSED_PODS]
    times = [_median(partial(nearest_amounts, state, pod), 3) for pod in refused]
    name = f"the nearest amounts for a pod of 5 containers, {policy}, {scope} (slowest {_duration(max(times))})"
    return Row(name, mean(times), target=0.005 if policy in {"restricted", "single-numa-node"} else None)


def _admits(state: NodeState, pod: Pod) -> bool:
    return admit(state, pod)[0].admitted


def _on_34_numa_nodes() -> Iterator[Row]:
    """none and single-numa-node have an answer at any width; for the others replay says KubeletWouldHang."""
    for policy in POLICIES:
        state = workloads.half_full(workloads.WIDE, policy, WIDE_OPTIONS)
        pods = [read_pod(workloads.pod("p", cpu=cpus, memory="10Gi", gpu=1, nic=2)) for cpus in (4, 20, 100)]
        hangs = KUBELET_WOULD_HANG in {admit(state, pod)[0].reason for pod in pods}
        if hangs != (policy in {"best-effort", "restricted"}):
            raise SystemExit(f"an admission on 34 NUMA nodes x 4 resources, {policy}: hangs is {hangs}")
        name = f"an admission on 34 NUMA nodes x 4 resources, {policy}" + (", would hang" if hangs else "")
        yield Row(name, _slowest(state, pods), target=0.050)
    state = workloads.half_full(
        workloads.WIDE,
        "single-numa-node",
        {**WIDE_OPTIONS, OPTION: "true"},
        {"TopologyManagerPolicyAlphaOptions": True},
    )
    pods = [read_pod(workloads.pod("p", cpu=cpus, memory="10Gi", gpu=1, nic=2)) for cpus in (4, 20, 100)]
    name = "an admission on 34 NUMA nodes x 4 resources, single-numa-node, most allocated"
    yield Row(name, _slowest(state, pods), target=0.050)


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
        raise SystemExit("the fast path and whole admissions disagree")
    yield Row(f"a pod against {NODES} nodes, states never read before", unread)
    yield Row(f"a pod against {NODES} nodes, pod never asked before", cold, target=0.100)
    yield Row(f"the same pod again, 1 % of {NODES} nodes changed", median(changes), target=0.010)
    snapshot = workloads.cluster(states)
    surveys = Surveys()
    other = read_pod(workloads.pod("other", cpu=10, memory="18Gi", gpu=1))
    yield Row(
        f"a diagnosis with ranks and reasons of {NODES} nodes, first time",
        _cpu_seconds(lambda: diagnose(snapshot, other, Placement(), surveys=surveys)),
    )
    again = _median(lambda: diagnose(snapshot, other, Placement(), surveys=surveys), RUNS)
    yield Row(f"the same diagnosis again of {NODES} nodes", again)


def _cold(states: list[NodeState]) -> Callable[[], object]:
    """Each call asks about another pod, so that no state has cached an answer."""
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
    """Measure everything, and print each row at once."""
    try:
        oracle_binary()
    except (OracleNotBuilt, SandboxUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    form = "{:106} {:>9} {:>10} {:>12} {:>13}  {}\n"
    sys.stdout.write(form.format("", "REPLAY", "KUBELET", "RATIO", "TARGET", "RESULT"))
    missed = 0
    for measure in (imports, drawings, merges, admissions, wide_admissions, refusals, fits):
        for row in measure():
            sys.stdout.write(form.format(*row.cells()))
            sys.stdout.flush()
            missed += not row.met
    if missed:
        sys.stderr.write(f"{missed} targets MISSED\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
