"""Replay keeps to its shares of time where it has a meter, and is exact without one."""

import random
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.builders import guaranteed_pod, node_state, pod
from tests.clock import Clock
from tests.hostile import costly_state

from topomend.explain.remedy import remedy_of
from topomend.model.verdict import Verdict
from topomend.replay.admission import admit, is_admitted
from topomend.replay.effort import ADMISSION_SECONDS, SURVEY_SECONDS, Overspent, check, metered, next_pod, working_on

COSTLY = pod("p", "cpu=2 memory=2Gi")


SLACK = 0.5
"""What the longest pass over a table may take beyond the share, on a busy machine."""


@pytest.mark.parametrize("numa_nodes", [30, 34])
@pytest.mark.parametrize("ask", [admit, is_admitted])
def test_a_costly_node_takes_its_share_and_hardly_more(numa_nodes: int, ask: Callable[..., object]) -> None:
    state = costly_state(numa_nodes=numa_nodes)
    began = time.thread_time()
    with pytest.raises(Overspent, match="replay of a takes too long"), metered(time.thread_time):
        ask(state, COSTLY)
    assert time.thread_time() - began < ADMISSION_SECONDS + SLACK


@pytest.mark.parametrize("numa_nodes", [12, 14, 16])
def test_what_would_get_a_pod_admitted_has_a_share_too(numa_nodes: int) -> None:
    state, began = costly_state(numa_nodes=numa_nodes), time.thread_time()
    with suppress(Overspent), metered(time.thread_time):
        remedy_of(state, pod("p", "cpu=2 memory=9Gi"), Verdict("ns", "p", admitted=False))
    assert time.thread_time() - began < SURVEY_SECONDS + SLACK


def test_without_a_meter_the_same_node_gets_its_answer() -> None:
    verdict, _ = admit(costly_state(), COSTLY)
    assert verdict.admitted
    with pytest.raises(Overspent), metered(time.thread_time):
        admit(costly_state(), COSTLY)


def test_a_meter_changes_no_answer() -> None:
    state, asked = node_state(pods=[guaranteed_pod("other", 2)]), guaranteed_pod(cpus=3)
    with metered(Clock()):
        assert admit(state, asked) == admit(state, asked)
        metered_answer = admit(state, asked)
    assert metered_answer == admit(state, asked)


def test_a_share_is_for_each_container_and_an_admission_within_an_explanation_has_the_explanations() -> None:
    for containers, share in ((1, 1.0), (3, 3.0), (0, 1.0)):
        clock = Clock(0.0)
        with metered(clock), working_on("a", containers, 0.5 * SURVEY_SECONDS):
            clock.now += 0.5 * share * SURVEY_SECONDS
            with working_on("a", 1):
                check()
                clock.now += 0.001
                with pytest.raises(Overspent):
                    check()


def test_all_that_is_asked_of_a_node_for_one_pod_has_one_share_and_other_nodes_have_their_own() -> None:
    clock = Clock(0.0)

    def work(node: str) -> None:
        with working_on(node, 1):
            clock.now += 0.9 * ADMISSION_SECONDS
            check()

    with metered(clock):
        for _ in range(round(SURVEY_SECONDS / ADMISSION_SECONDS)):
            work("a")
        work("b")
        with pytest.raises(Overspent, match="replay of a takes too long"):
            work("a")
        work("b")
    with metered(clock):
        work("a")


def test_pods_one_after_the_other_do_not_use_up_the_share_of_a_healthy_node() -> None:
    clock = Clock(0.0)
    with metered(clock):
        for _ in range(100):
            next_pod()
            with working_on("a", 1):
                clock.now += ADMISSION_SECONDS / 2
                check()


def test_what_is_worked_out_for_no_node_has_no_share() -> None:
    clock = Clock(0.0)
    with metered(clock):
        clock.now += 1000.0
        check()
    check()


def test_an_honest_machine_as_large_as_kubelets_start_on_by_default_stays_far_below_its_share() -> None:
    chance = random.Random(7)
    sizes = [(chance.randint(2, 12), chance.randint(1, 40)) for _ in range(8)]
    fillers = [pod(f"f{number}", f"cpu={cpus} memory={size}Gi") for number, (cpus, size) in enumerate(sizes)]
    state = node_state(
        "sockets:2 numa:4 cores:16 threads:2 memory:64Gi",
        "restricted",
        options="prefer-closest-numa-nodes=true",
        memory_manager="Static",
        reserved_memory="512Mi",
        pods=fillers,
    )
    for asked in ("cpu=40 memory=100Gi", "cpu=70 memory=300Gi"):
        began = time.thread_time()
        with metered(time.thread_time):
            admit(state, pod("p", asked))
        assert time.thread_time() - began < 0.5 * ADMISSION_SECONDS
