"""The random clusters of ``make preemption-differential``, and when one counts as worse off.

They run in ``make verify`` alone: some still fare worse (docs/contribute/measurements-of-preemption.md), and a change
must not fail by chance. The scenes that are known to hold run on a real cluster in tests/controller/test_preemption.py.
"""

from tests.seeds import SEED
from verify.preemption.__main__ import Figures
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
    assert Compared(cluster, runs, Outcome()).worse == ["urgent-0 ran at first only"]
    two = Outcome(ran=runs.ran, victims={"1": "a", "2": "a"})
    assert Compared(cluster, runs, two).worse == ["2 victims, 1 at first"]
    assert Compared(cluster, Outcome(), Outcome(victims={"1": "b"})).worse == [
        "1 victims, 0 at first",
        "1 evicted in vain, 0 at first",
    ]
    assert Compared(cluster, runs, Outcome(runs.ran, 1, runs.victims)).worse == ["1 refused, 0 at first"]


def test_what_plain_does_too_excuses_nothing_and_is_told_apart() -> None:
    """Beside the first plain run the steered one and a second plain one are measured alike."""
    cluster = random_cluster(SEED, 0)
    in_vain = Outcome(refused=1, victims={"1": "a"})
    alike = Compared(cluster, in_vain, in_vain, again=in_vain)
    assert alike.worse == ["1 evicted in vain, 1 at first", "1 refused, 1 at first"]
    assert alike.worse_than_plain == alike.worse_by_itself == []
    twice = Outcome(refused=2, victims={"1": "a", "2": "a"})
    more = Compared(cluster, in_vain, twice, again=twice)
    assert more.worse_than_plain == more.worse_by_itself
    assert more.worse_by_itself == ["2 victims, 1 at first", "2 evicted in vain, 1 at first", "2 refused, 1 at first"]
    assert Compared(cluster, in_vain, in_vain).worse_by_itself == []


def test_figures_count_each_cluster_once_for_each_way_in_which_it_fares_worse() -> None:
    figures, cluster = Figures(), random_cluster(SEED, 0)
    runs = Outcome(ran={"urgent-0": "a"}, victims={"1": "a"})
    refused = Outcome(refused=1)
    for one in (
        Compared(cluster, runs, runs, again=runs),
        Compared(cluster, runs, refused, again=runs),
        Compared(cluster, refused, refused, again=refused),
        Compared(cluster, runs, runs, again=refused),
    ):
        figures.add(one)
    text = figures.text()
    assert text.startswith("4 clusters with ")
    assert "; plain: 3 ran, 1 refused, 3 victims, 0 in vain; steered: 2 ran, 2 refused, 2 victims, 0 in vain" in text
    assert text.endswith("; 2 fare worse steered, 1 of them than plain; 1 fare worse than plain when plain again")
