"""Replay keeps to the shares of time that it is handed, and is exact where its effort is unlimited."""

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
from topomend.replay.effort import ADMISSION_SECONDS, SURVEY_SECONDS, UNLIMITED, Overspent, Shares, TurnOver

COSTLY = pod("p", "cpu=2 memory=2Gi")


SLACK = 0.5
"""What the longest pass over a table may take beyond the share, on a busy machine."""


@pytest.mark.parametrize("numa_nodes", [30, 33])
@pytest.mark.parametrize("ask", [admit, is_admitted])
def test_a_costly_node_takes_its_share_and_hardly_more(numa_nodes: int, ask: Callable[..., object]) -> None:
    state = costly_state(numa_nodes=numa_nodes)
    began = time.thread_time()
    with pytest.raises(Overspent, match="replay of a takes too long"):
        ask(state, COSTLY, Shares(time.thread_time))
    assert time.thread_time() - began < ADMISSION_SECONDS + SLACK


@pytest.mark.parametrize("numa_nodes", [12, 14, 16])
def test_what_would_get_a_pod_admitted_has_a_share_too(numa_nodes: int) -> None:
    state, began = costly_state(numa_nodes=numa_nodes), time.thread_time()
    refusal = Verdict("ns", "p", admitted=False)
    with suppress(Overspent):
        remedy_of(state, pod("p", "cpu=2 memory=9Gi"), refusal, effort=Shares(time.thread_time))
    assert time.thread_time() - began < SURVEY_SECONDS + SLACK


def test_with_unlimited_effort_the_same_node_gets_its_answer() -> None:
    verdict, _ = admit(costly_state(), COSTLY, UNLIMITED)
    assert verdict.admitted
    with pytest.raises(Overspent):
        admit(costly_state(), COSTLY, Shares(time.thread_time))


def test_shares_change_no_answer() -> None:
    state, asked = node_state(pods=[guaranteed_pod("other", 2)]), guaranteed_pod(cpus=3)
    assert admit(state, asked, Shares(Clock())) == admit(state, asked)


def test_a_share_is_for_each_container_and_an_admission_within_an_explanation_has_the_explanations() -> None:
    for containers, share in ((1, 1.0), (3, 3.0), (0, 1.0)):
        clock = Clock(0.0)
        effort = Shares(clock)
        with effort.working_on("a", containers, 0.5 * SURVEY_SECONDS):
            clock.now += 0.5 * share * SURVEY_SECONDS
            with effort.working_on("a", 1):
                effort.check()
                clock.now += 0.001
                with pytest.raises(Overspent):
                    effort.check()


def test_all_that_is_asked_of_a_node_for_one_pod_has_one_share_and_other_nodes_have_their_own() -> None:
    clock = Clock(0.0)

    def work(node: str, effort: Shares) -> None:
        with effort.working_on(node, 1):
            clock.now += 0.9 * ADMISSION_SECONDS
            effort.check()

    effort = Shares(clock)
    for _ in range(round(SURVEY_SECONDS / ADMISSION_SECONDS)):
        work("a", effort)
    work("b", effort)
    with pytest.raises(Overspent, match="replay of a takes too long"):
        work("a", effort)
    work("b", effort)
    work("a", Shares(clock))


def test_pods_one_after_the_other_do_not_use_up_the_share_of_a_healthy_node() -> None:
    clock = Clock(0.0)
    effort = Shares(clock)
    for _ in range(100):
        effort.next_pod()
        with effort.working_on("a", 1):
            clock.now += ADMISSION_SECONDS / 2
            effort.check()


def test_what_is_worked_out_for_no_node_has_no_share() -> None:
    clock = Clock(0.0)
    effort = Shares(clock)
    clock.now += 1000.0
    effort.check()


def test_a_turn_is_over_after_its_seconds_and_shares_without_turns_have_no_end() -> None:
    clock = Clock(0.0)
    turn, endless = Shares(clock, turn_seconds=1.0), Shares(clock)
    clock.now += 1.0
    turn.end_turn()
    clock.now += 0.001
    endless.end_turn()
    with pytest.raises(TurnOver):
        turn.end_turn()


def test_unlimited_effort_has_no_state_that_threads_could_share() -> None:
    assert not hasattr(UNLIMITED, "__dict__")
    with UNLIMITED.working_on("a", 1, -1.0):
        UNLIMITED.check()
    UNLIMITED.end_turn()


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
        admit(state, pod("p", asked), Shares(time.thread_time))
        assert time.thread_time() - began < 0.5 * ADMISSION_SECONDS
