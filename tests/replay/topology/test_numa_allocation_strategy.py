"""Option numa-allocation-strategy by the text of KEP-6007: scores, how they combine, and when they count.

A failing random test shows its seed in its name; TOPOMEND_SEED runs it again.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from tests.builders import TWO_NUMA_NODES, node_state, pod
from tests.replay.topology.packing import GATE
from tests.replay.topology.test_merge import Cases, Listed, listed
from tests.replay.verdicts import admit_all, verdict_line
from tests.seeds import SEED

from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import admit, start_refusal
from topomend.replay.effort import UNLIMITED
from topomend.replay.topology import numa_allocation_strategy
from topomend.replay.topology.distances import total_distance
from topomend.replay.topology.hints import Hints, width_rank
from topomend.replay.topology.merge import Hint, NUMAInfo, merge, merge_single
from topomend.replay.topology.numa_allocation_strategy import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    NONE,
    OPTION,
    Strategy,
    score,
)

ON_EACH = f"{TWO_NUMA_NODES} device:v.com/gpu@1=4 device:v.com/nic@0=4"
"""Two NUMA nodes; a GPU pins a pod to NUMA node 1, an adapter to NUMA node 0."""

ON_0, ON_1 = "cpu=1 memory=1Gi v.com/nic=1", "cpu=1 memory=1Gi v.com/gpu=1"
FREE = "cpu=1 memory=1Gi"
"""A pod that fits either NUMA node."""

REMARK = f"released kubelets do not start with option {OPTION}; replay follows its KEP"


def node(shape: str, value: str, policy: str = "single-numa-node", options: str = "", **settings: Any) -> NodeState:
    return node_state(shape, policy, options=f"{OPTION}={value} {options}", **{"gates": GATE} | settings)


def last(state: NodeState, *pods: str) -> str:
    verdicts, _ = admit_all(state, [pod(f"p{number}", text) for number, text in enumerate(pods)])
    return verdict_line(verdicts[-1])


def place(state: NodeState, *pods: str) -> str:
    """Where the last pod stands, as ``[0]``."""
    return last(state, *pods).split()[0]


# Every policy, both scopes


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize(
    ("value", "beside_0", "beside_1"),
    [(NONE, "[0]", "[0]"), (MOST_ALLOCATED, "[0]", "[1]"), (LEAST_ALLOCATED, "[1]", "[0]")],
)
def test_a_pod_goes_where_most_or_least_is_allocated(
    value: str, beside_0: str, beside_1: str, policy: str, scope: str
) -> None:
    state = node(ON_EACH, value, policy, scope=scope)
    assert place(state, ON_0, FREE) == beside_0
    assert place(state, ON_1, FREE) == beside_1


@pytest.mark.parametrize("value", [MOST_ALLOCATED, LEAST_ALLOCATED])
def test_equally_full_numa_nodes_leave_the_lower_numbered_one(value: str) -> None:
    assert place(node(ON_EACH, value, reserved_cpus="0,4"), FREE) == "[0]"
    assert place(node(ON_EACH, value, reserved_cpus="0,4"), ON_0, ON_1, FREE) == "[0]"


def test_least_allocated_spreads_the_containers_of_a_pod_that_are_placed_one_by_one() -> None:
    asked = pod("p", FREE, FREE)
    assert verdict_line(admit(node(ON_EACH, LEAST_ALLOCATED), asked)[0]) == "[0] cpus 1; [1] cpus 4"
    assert verdict_line(admit(node(ON_EACH, MOST_ALLOCATED), asked)[0]) == "[0] cpus 1; [0] cpus 2"
    assert verdict_line(admit(node(ON_EACH, LEAST_ALLOCATED, scope="pod"), asked)[0]) == "[0] cpus 1; [0] cpus 2"


def test_a_container_too_small_to_move_the_score_leaves_the_lower_numbered_one() -> None:
    """One of 128 CPUs is 0 percent, and a score is at least 1; three are 2 percent."""
    state = node("sockets:2 cores:128 memory:8Gi", LEAST_ALLOCATED, reserved_cpus="0,128")
    assert place(state, FREE, FREE) == "[0]"
    assert place(state, "cpu=3 memory=1Gi", FREE) == "[1]"


def test_policy_none_does_not_read_it() -> None:
    state = node(ON_EACH, "perhaps", "none")
    assert start_refusal(state) is None
    assert admit(state, pod("p", FREE))[0].unmodelled == ()


# Scores


@pytest.mark.parametrize(
    ("allocated", "allocatable", "points"), [(1, 3, 33), (0, 4, 1), (1, 200, 1), (4, 4, 100), (5, 4, 100), (0, 0, 0)]
)
def test_a_score_is_a_whole_percentage_from_1_up(allocated: int, allocatable: int, points: int) -> None:
    assert score(allocated, allocatable) == points


def test_reserved_cpus_are_left_out_of_what_a_numa_node_has() -> None:
    assert place(node(ON_EACH, MOST_ALLOCATED, reserved_cpus="4"), ON_0, ON_1, FREE) == "[1]"
    assert place(node(ON_EACH, MOST_ALLOCATED, reserved_cpus="0"), ON_0, ON_1, FREE) == "[0]"


def test_cpus_and_memory_have_the_average_of_their_scores() -> None:
    """NUMA node 0 has 2 of 4 CPUs and 1 of 7.5Gi taken, (50+13)/2; NUMA node 1 has 1 CPU and 6Gi, (25+80)/2."""
    pods = ("cpu=2 memory=1Gi v.com/nic=1", "cpu=1 memory=6Gi v.com/gpu=1", FREE)
    settings = {"memory_manager": "Static", "reserved_memory": "512Mi,512Mi", "reserved_cpus": "0,4"}
    assert place(node(ON_EACH, MOST_ALLOCATED, **settings), *pods) == "[1]"
    assert place(node(ON_EACH, LEAST_ALLOCATED, **settings), *pods) == "[0]"
    assert place(node(ON_EACH, MOST_ALLOCATED, reserved_cpus="0,4"), *pods) == "[0]"


def test_each_size_of_pages_scores_by_its_own_bytes() -> None:
    """By huge pages NUMA node 1 is the fuller one, by memory NUMA node 0; a pod without huge pages ignores them."""
    shape = f"{ON_EACH} hugepages-2Mi:64"
    settings = {"memory_manager": "Static", "reserved_memory": "512Mi,512Mi", "cpu_manager": "none"}
    pods = ("cpu=1 memory=2Gi v.com/nic=1", "cpu=1 memory=1Gi hugepages-2Mi=100Mi v.com/gpu=1")
    state = node(shape, MOST_ALLOCATED, **settings)
    assert place(state, *pods, FREE) == "[0]"
    assert place(state, *pods, f"{FREE} hugepages-2Mi=2Mi") == "[1]"


def test_devices_score_by_those_in_use_of_their_resource() -> None:
    shape = f"{TWO_NUMA_NODES} device:v.com/gpu@0=2,1=2 device:v.com/nic@1=2"
    for value, expected in ((NONE, "[0]"), (MOST_ALLOCATED, "[1]"), (LEAST_ALLOCATED, "[0]")):
        state = node(shape, value, cpu_manager="none")
        assert place(state, "v.com/gpu=1 v.com/nic=1", "v.com/gpu=1") == expected
    state = node(shape, LEAST_ALLOCATED, cpu_manager="none")
    assert place(state, "v.com/gpu=1", "v.com/gpu=1") == "[1]"


def test_devices_that_are_not_healthy_are_left_out_of_what_a_numa_node_has() -> None:
    """One GPU is in use on each NUMA node: of two healthy ones on 1, of three on 0."""
    shape = f"{TWO_NUMA_NODES} device:v.com/gpu@0=3,1=3 device:v.com/nic@1=1 device:v.com/fpga@0=1"
    state = node(shape, MOST_ALLOCATED, cpu_manager="none")
    pods = ("v.com/gpu=1 v.com/nic=1", "v.com/gpu=1 v.com/fpga=1", "v.com/gpu=1")
    assert place(state, *pods) == "[0]"
    broken = [device for device in state.devices if device.resource == "v.com/gpu"][-1]
    devices = tuple(replace(device, healthy=device is not broken) for device in state.devices)
    assert place(replace(state, devices=devices), *pods) == "[1]"


def test_what_a_pod_does_not_ask_for_has_no_score() -> None:
    """The first pod leaves NUMA node 1 with fewer CPUs; a pod of devices alone does not see it."""
    shape = f"{TWO_NUMA_NODES} device:v.com/gpu@0=2,1=2 device:v.com/nic@1=2"
    state = node(shape, MOST_ALLOCATED)
    assert place(state, "cpu=2 memory=1Gi v.com/nic=1", "v.com/gpu=1") == "[0]"
    assert place(state, "cpu=2 memory=1Gi v.com/nic=1", f"{FREE} v.com/gpu=1") == "[1]"


# What comes first


FOUR = "sockets:2 numa:2 cores:4 memory:8Gi device:v.com/gpu@3=1"


def test_closer_numa_nodes_come_first_where_they_are_preferred() -> None:
    """1 of 8 CPUs is taken on NUMA nodes 2 and 3, but 1 of 7 on 0 and 3, which are far apart."""
    pods = ("cpu=1 memory=1Gi v.com/gpu=1", "cpu=5 memory=1Gi")
    assert place(node(FOUR, MOST_ALLOCATED, "restricted"), *pods) == "[0,3]"
    assert place(node(FOUR, MOST_ALLOCATED, "restricted", "prefer-closest-numa-nodes=true"), *pods) == "[2-3]"
    assert place(node(FOUR, LEAST_ALLOCATED, "restricted", "prefer-closest-numa-nodes=true"), *pods) == "[0-1]"


PINNING = "sockets:4 cores:4 memory:8Gi " + " ".join(f"device:v.com/n{number}@{number}=1" for number in range(4))
HALF_FULL = [f"cpu={cpus} memory=1Gi v.com/n{number}=1" for number, cpus in enumerate((1, 2, 2, 3))]


def test_affinities_that_are_not_preferred_have_scores_as_well() -> None:
    """3 CPUs need two NUMA nodes, since none has 3 free. 1 and 3 have 5 of 8 CPUs taken, as 2 and 3 have."""
    assert place(node(PINNING, NONE, "best-effort"), *HALF_FULL, "cpu=3 memory=1Gi") == "(0-1)"
    assert place(node(PINNING, MOST_ALLOCATED, "best-effort"), *HALF_FULL, "cpu=3 memory=1Gi") == "(1,3)"


def test_a_walk_that_is_too_long_leaves_the_lower_numbered_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa_allocation_strategy, "MAX_WALK", 3)
    assert place(node(PINNING, MOST_ALLOCATED, "best-effort"), *HALF_FULL, "cpu=3 memory=1Gi") == "(0-1)"


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_single_numa_nodes_of_a_wide_machine_have_scores(policy: str) -> None:
    state = node("sockets:18 cores:4 memory:1Gi", LEAST_ALLOCATED, policy, "max-allowable-numa-nodes=18")
    assert place(state, FREE, FREE) == "[1]"


# All permutations


def fitter(
    info: NUMAInfo, value: str, wanted: int, current: tuple[Hint, int], candidate: tuple[Hint, int]
) -> tuple[Hint, int]:
    """One step of the walk: compare of policy.go, with the scores where the masks fit equally well."""
    (now, points), (then, other) = current, candidate
    assert now.mask is not None
    assert then.mask is not None
    if now.preferred != then.preferred:
        return candidate if then.preferred else current

    def fit(mask: int) -> tuple[object, ...]:
        width = mask.bit_count()
        distance = total_distance(mask, info.distances, UNLIMITED) if info.distances else 0
        return (width if now.preferred else width_rank(width, wanted), distance)

    if now.mask == then.mask or fit(now.mask) != fit(then.mask):
        return current if fit(now.mask) <= fit(then.mask) else candidate
    if points and other and points != other:
        return candidate if (other > points) == (value == MOST_ALLOCATED) else current
    return current if now.mask < then.mask else candidate


def walked(info: NUMAInfo, value: str, lists: Sequence[Listed], scores: Sequence[Callable[[int], int]]) -> Hint:
    """The merge over all permutations, with the average of their scores (policy.go:HintMerger.Merge)."""
    masks = [[mask for mask, _ in hints if mask is not None] for hints in lists]
    wanted = max((min(map(int.bit_count, offered)) for offered in masks if offered), default=0)
    best: tuple[Hint, int] | None = None
    for permutation in product(*lists):
        common, points, hinted = info.nodes, [], set()
        for (mask, _), points_of in zip(permutation, scores, strict=True):
            if mask is not None:
                common &= mask
                hinted.add(mask)
                points += [points_of(mask)] if points_of(mask) else []
        if not common:
            continue
        preferred = all(preferred for _, preferred in permutation) and len(hinted) <= 1
        candidate = Hint(common, preferred), sum(points) // len(points) if points else 0
        best = candidate if best is None else fitter(info, value, wanted, best, candidate)
    return best[0] if best else Hint(info.nodes, preferred=False)


def scores_of(pick: random.Random) -> Callable[[int], int]:
    """The scores of one resource, by mask: few, so that they tie, and seldom none."""
    table = [pick.choice((0, 1, 2, 3, 40, 41)) if pick.random() < 0.9 else 0 for _ in range(1 << 12)]
    return table.__getitem__


@pytest.mark.parametrize("seed", [SEED])
@pytest.mark.parametrize("value", [MOST_ALLOCATED, LEAST_ALLOCATED])
def test_the_merge_is_what_walking_all_permutations_gives(value: str, seed: int) -> None:
    cases = Cases(seed + 3)
    differing = 0
    for _ in range(1000):
        info = cases.info(4)
        offers = [cases.offer(info.nodes) for _ in range(cases.random.randint(1, 3))]
        lists = [listed(offer, info.nodes) for offer in offers]
        scores = [scores_of(cases.random) for _ in offers]
        strategy = Strategy(
            value, [points for points, offer in zip(scores, offers, strict=True) if isinstance(offer, Hints)]
        )
        hint = merge(info, offers, strategy)
        assert hint == walked(info, value, lists, scores), (info, offers)
        differing += hint != merge(info, offers)
        single: list[Listed] = [
            [(mask, preferred) for mask, preferred in hints if preferred and (mask is None or mask.bit_count() == 1)]
            for hints in lists
        ]
        best = walked(NUMAInfo(info.nodes), value, single, scores)
        expected = Hint(None, best.preferred) if best.mask == info.nodes else best
        assert merge_single(info, offers, strategy.fittest) == expected, (info, offers)
    assert differing > 50, "the scores decide too little"  # 87 to 128 with 25 seeds


# The option


def test_the_verdict_says_that_released_kubelets_refuse_it() -> None:
    for value in (NONE, MOST_ALLOCATED, LEAST_ALLOCATED, ""):
        assert admit(node(ON_EACH, value), pod("p", FREE))[0].unmodelled == (REMARK,)


def test_an_empty_value_is_none() -> None:
    assert place(node(ON_EACH, ""), ON_1, FREE) == "[0]"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (node(ON_EACH, MOST_ALLOCATED, gates=""), f'unknown Topology Manager Policy option: "{OPTION}"'),
        (
            node(ON_EACH, "Most-Allocated"),
            (
                f'bad value for option "{OPTION}": "Most-Allocated" must be one of '
                '["least-allocated" "most-allocated" "none"]'
            ),
        ),
    ],
    ids=["without its gate", "no value"],
)
def test_the_kubelet_would_not_start(state: NodeState, why: str) -> None:
    assert start_refusal(state) == why


def test_of_both_proposed_options_it_is_the_one_that_counts() -> None:
    both = "prefer-most-allocated-numa-node=true"
    assert place(node(ON_EACH, LEAST_ALLOCATED, options=both), ON_0, FREE) == "[1]"
    assert place(node(ON_EACH, NONE, options=both), ON_1, FREE) == "[1]"
    assert len(admit(node(ON_EACH, NONE, options=both), pod("p", FREE))[0].unmodelled) == 2
