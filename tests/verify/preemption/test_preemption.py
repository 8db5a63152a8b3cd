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


RUNS = Outcome(ran={"urgent-0": "a"}, victims={"1": "a"})
WAITS = Outcome()
TWO_VICTIMS = Outcome(ran=RUNS.ran, victims={"1": "a", "2": "a"})
IN_VAIN = Outcome(victims={"1": "b"})
REFUSED = Outcome(RUNS.ran, 1, RUNS.victims)


def compared(*runs: tuple[Outcome, Outcome]) -> Compared:
    """Plain and steered, run by run."""
    return Compared(random_cluster(SEED, 0), [plain for plain, _ in runs], [steered for _, steered in runs])


def test_a_cluster_fares_worse_where_a_pod_does_not_run_more_are_evicted_or_one_in_vain() -> None:
    assert compared((RUNS, RUNS)).worse == []
    assert compared((WAITS, RUNS)).worse == []
    assert compared((RUNS, WAITS)).worse == ["urgent-0 ran plain only"]
    assert compared((RUNS, TWO_VICTIMS)).worse == ["2 victims, 1 plain"]
    assert compared((WAITS, IN_VAIN)).worse == ["1 victims, 0 plain", "1 evicted in vain"]
    assert compared((RUNS, REFUSED)).worse == ["1 refused"]
    assert compared((REFUSED, REFUSED)).worse == ["1 refused"], "that plain does so, too, is no excuse"


def test_what_no_plain_run_does_better_each_time_is_luck() -> None:
    assert compared((RUNS, WAITS), (WAITS, RUNS)).faults == []
    assert compared((RUNS, TWO_VICTIMS), (TWO_VICTIMS, RUNS)).faults == []
    assert compared((RUNS, WAITS), (RUNS, RUNS)).faults == ["urgent-0 ran in each plain run only"]
    assert compared((RUNS, RUNS), (RUNS, TWO_VICTIMS)).faults == ["2 victims, 1 at most plain"]
    assert compared((RUNS, RUNS), (WAITS, TWO_VICTIMS)).faults == ["2 victims, 1 at most plain"]


def test_nothing_refused_or_evicted_in_vain_is_luck() -> None:
    assert compared((REFUSED, RUNS), (REFUSED, REFUSED)).faults == ["1 refused"]
    assert "1 evicted in vain" in compared((IN_VAIN, WAITS), (IN_VAIN, IN_VAIN)).faults


def test_figures_count_each_cluster_once_and_faults_apart() -> None:
    figures = Figures()
    for one in (
        compared((RUNS, RUNS)),
        compared((RUNS, WAITS), (WAITS, RUNS)),
        compared((RUNS, WAITS), (RUNS, WAITS)),
        compared((REFUSED, REFUSED), (REFUSED, REFUSED)),
    ):
        figures.add(one)
    text = figures.text()
    assert text.startswith("4 clusters with ")
    assert "; plain: 4 ran, 1 refused, 4 victims, 0 in vain; steered: 2 ran, 1 refused, 2 victims, 0 in vain" in text
    assert text.endswith("; 3 fared worse steered, 2 by a fault")
