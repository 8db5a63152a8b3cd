"""The random clusters of ``make preemption-differential``, and when one counts as worse off.

They run in ``make verify`` alone: some of them still fare worse (docs/understand/priority.md), and a change must not
fail by chance. The scenes that are known to hold run on a real cluster in tests/controller/test_preemption.py.
"""

from tests.seeds import SEED
from verify.preemption.clusters import CONTROLLERS, PRIORITIES, random_cluster
from verify.preemption.run import Compared, Outcome


def test_clusters_of_all_kinds_come_up_and_are_the_same_for_a_seed() -> None:
    clusters = [random_cluster(SEED, number) for number in range(300)]
    fillers = [filler for cluster in clusters for filler in cluster.fillers]
    urgent = [pod for cluster in clusters for pod in cluster.urgent]
    assert {filler.controller for filler in fillers} == set(CONTROLLERS)
    assert {filler.priority for filler in fillers} | {pod.priority for pod in urgent} == {*PRIORITIES, ""}
    assert {pod.disk for pod in urgent} == {None, 0, 1}
    assert {filler.kept for filler in fillers} == {filler.steered for filler in fillers} == {True, False}
    assert clusters == [random_cluster(SEED, number) for number in range(300)]


def test_a_cluster_fares_worse_where_a_pod_does_not_run_more_are_evicted_or_one_in_vain() -> None:
    cluster = random_cluster(SEED, 0)
    runs = Outcome(ran={"urgent-0": "a"}, victims={"1": "a"})
    assert Compared(cluster, runs, runs).worse == []
    assert Compared(cluster, Outcome(), runs).worse == []
    assert Compared(cluster, runs, Outcome()).worse == ["urgent-0 ran plain, not steered"]
    two = Outcome(ran=runs.ran, victims={"1": "a", "2": "a"})
    assert Compared(cluster, runs, two).worse == ["1 victims plain, 2 steered"]
    assert Compared(cluster, Outcome(), Outcome(victims={"1": "b"})).worse == [
        "0 victims plain, 1 steered",
        "1 evicted in vain, plain 0",
    ]
    assert Compared(cluster, runs, Outcome(runs.ran, 1, runs.victims)).worse == ["1 refused, plain 0"]
