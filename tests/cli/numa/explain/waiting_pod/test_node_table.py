"""The table of what each node lacks for a pod that waits."""

from tests.builders import guaranteed_pod, node_state, snapshot_of

from topomend.cli.numa.explain.waiting_pod.node_table import HEADING, node_rows, table_lines
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.model.pods.scheduling import Placement

POD = guaranteed_pod(cpus=3)
SNAPSHOT = snapshot_of(
    node_state(name="full", pods=[guaranteed_pod("low", 3), guaranteed_pod("high", 4)]),
    node_state(name="half", pods=[guaranteed_pod("low", 2), guaranteed_pod("high", 2)]),
)


def test_the_node_that_lacks_least_comes_first_with_its_nearest_amount_and_whose_end_helps() -> None:
    rows = node_rows(SNAPSHOT, POD, diagnose(SNAPSHOT, POD, Placement()), None)
    heading, half, full = table_lines(rows, None)
    assert heading.split("   ")[0] == HEADING[0]
    assert half.startswith("half   1 of 3 cpu   ")
    assert half.split()[-3:] == ["2", "CPUs", "ns/low"]
    assert full.startswith("full   3 of 3 cpu   ")


def test_a_long_table_says_how_many_nodes_were_left_out() -> None:
    rows = node_rows(SNAPSHOT, POD, diagnose(SNAPSHOT, POD, Placement()), None)
    assert table_lines(rows, 1)[2:] == ["and 1 more nodes, with -o wide"]
    assert table_lines((), None) == []
