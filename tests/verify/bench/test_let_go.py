"""The small sister of ``make let-go``."""

from verify.bench.let_go import measure


def test_pods_are_let_go_on_a_small_cluster_half_of_which_is_full() -> None:
    assert measure(8, 4).startswith("8 nodes: ")
