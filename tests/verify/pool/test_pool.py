"""A small run of the pool: every way with the same pods, and the bound that they are compared with."""

from collections.abc import Sequence
from heapq import heapify, heappushpop
from itertools import pairwise
from random import Random

import pytest
from tests.seeds import SEED
from verify.contended.arrivals import Arrival
from verify.contended.outcome import Outcome
from verify.pool.__main__ import bound, measured, rows, targets
from verify.pool.figures import WIDE, Figures, common, union
from verify.pool.scenario import GPU, GPUS_A_MACHINE, MACHINES, RUNNERS, arrivals, gpus_of, machines, runner
from verify.pool.ways import ALL_KNOWING, STEERED, WAYS, WIDE_MACHINES

GPUS = MACHINES * GPUS_A_MACHINE


def in_use(outcome: Outcome) -> int:
    """The most GPUs that pods ran on at a time."""
    changes = sorted(
        (moment, sign * gpus_of(stay.arrival))
        for stay in outcome.stays
        for moment, sign in ((stay.ran, 1), (stay.ended, -1))
        if moment is not None
    )
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def figures_of(name: str, pods: Sequence[Arrival]) -> Figures:
    figures = Figures()
    figures.add(pods, *WAYS[name](pods, Random(SEED)))
    return figures


def first_come_first_served(pods: Sequence[Arrival], machines: int) -> list[float]:
    """The waits of pods of which each takes a machine (J. Kiefer, J. Wolfowitz, 1955)."""
    free_at, waits = [0.0] * machines, []
    heapify(free_at)
    for pod in pods:
        begin = max(pod.at, free_at[0])
        heappushpop(free_at, begin + pod.seconds)
        waits.append(begin - pod.at)
    return waits


def test_a_machine_has_eight_gpus_and_88_cpus_fit_on_each_of_its_numa_nodes() -> None:
    (spec,) = machines("restricted", number=1)
    assert [device.resource for device in spec.devices] == [GPU] * GPUS_A_MACHINE
    assert len(spec.machine.cpus_of_numa_node) == 2
    reserved = spec.kubelet.reserved_cpus or 0
    assert all((cpus & ~reserved).bit_count() >= 88 for cpus in spec.machine.cpus_of_numa_node.values())


def test_arrivals_ask_for_the_load_that_they_are_drawn_for_in_the_mix_of_the_site() -> None:
    pods = arrivals(Random(1), 3000, load=0.75)
    asked = sum(gpus_of(pod) * pod.seconds for pod in pods)
    assert asked / (GPUS * pods[-1].at) == pytest.approx(0.75)
    for gpus, number in RUNNERS.items():
        assert sum(gpus_of(pod) == gpus for pod in pods) / 3000 == pytest.approx(number / 90, abs=0.04)


def test_a_fleet_of_their_own_has_the_part_of_the_machines_that_the_widest_pods_ask_for() -> None:
    assert WIDE_MACHINES == 2


@pytest.mark.parametrize("name", WAYS)
def test_no_way_has_more_gpus_in_use_than_there_are_and_each_runs_every_pod(name: str) -> None:
    outcome, watched = WAYS[name](arrivals(Random(SEED), 80, load=1.5), Random(SEED))
    assert outcome.never_ran == 0
    assert GPUS / 2 <= in_use(outcome) <= GPUS
    assert watched.most_in_use() == GPUS_A_MACHINE


@pytest.mark.parametrize("name", WAYS)
def test_room_for_a_pod_of_four_is_never_where_fewer_are_free_in_total(name: str) -> None:
    _, watched = WAYS[name](arrivals(Random(SEED), 60, load=1.2), Random(SEED))
    assert common(watched.admitting(), watched.in_total()) == watched.admitting()


def test_a_seed_gives_the_same_table() -> None:
    first, second = (list(rows(0.9, measured(30, 0.9, [SEED]))) for _ in range(2))
    assert first == second
    assert len(first) == len(WAYS)


def test_no_pod_is_refused_and_no_node_is_empty_for_long_while_a_pod_waits_under_steering() -> None:
    steered = figures_of(STEERED, arrivals(Random(SEED), 60, load=1.2))
    assert (steered.refused, steered.never_ran) == (0, 0)
    assert steered.longest_empty < 300


def test_the_plain_scheduler_has_pods_refused_where_nodes_are_fragmented() -> None:
    assert figures_of("plain scheduler", arrivals(Random(1), 100, load=0.9)).refused > 0


def test_the_bound_is_no_longer_than_the_wait_of_any_way_with_this_seed() -> None:
    found = measured(80, 0.9, [1])
    for gpus in WIDE:
        assert bound(found, gpus) == min(figures.wait(gpus) for figures in found.values())


@pytest.mark.parametrize("name", ALL_KNOWING)
def test_pods_that_take_a_machine_each_wait_under_the_bound_as_first_come_first_served(name: str) -> None:
    pods = arrivals(Random(SEED), 40, load=1.2)
    wide = [Arrival(pod.name, pod.at, pod.seconds, 176, runner(pod.name, 8)) for pod in pods]
    outcome, _ = WAYS[name](wide, Random(SEED))
    waits = [stay.ran - stay.came for stay in outcome.stays if stay.ran is not None]
    assert waits == pytest.approx(first_come_first_served(wide, MACHINES))


def test_no_pod_delays_an_older_one_where_ends_are_known() -> None:
    pods = arrivals(Random(SEED), 100, load=1.5)
    foreseen = ALL_KNOWING["all-knowing, ends known"]
    began = [[stay.ran for stay in foreseen(pods[:number], Random(0))[0].stays] for number in (40, 70, 100)]
    for fewer, more in pairwise(began):
        assert more[: len(fewer)] == fewer


def test_a_target_that_is_missed_is_reported_as_missed() -> None:
    found = {name: Figures(counted=100.0, admissible=96.0) for name in WAYS}
    assert all(target.is_met for target in targets(0.75, found))
    found[STEERED] = Figures(refused=1, counted=100.0, admissible=94.0, waits={gpus: [9.0] for gpus in RUNNERS})
    missed = [target.name for target in targets(0.75, found) if not target.is_met]
    assert len(missed) == 4


def test_spans_that_touch_are_one_and_what_two_lists_share_is_in_both() -> None:
    assert union([(3, 4), (0, 1), (1, 2), (5, 5)]) == [(0, 2), (3, 4)]
    assert common([(0, 2), (3, 6)], [(1, 4), (5, 9)]) == [(1, 2), (3, 4), (5, 6)]
