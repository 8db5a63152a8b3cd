"""The small sister of ``make full-nodes``: a real API server and scheduler, and nodes without kubelets."""

import pytest
from verify.bench.full_nodes import measure


@pytest.mark.cluster
def test_pods_are_let_go_where_most_nodes_are_full_by_totals() -> None:
    nodes, full, pods = 20, 15, 8
    outcome = measure(nodes, full, pods=pods, rate=4.0, pods_per_node=3, steady_seconds=0.0)
    assert len(outcome.held) == pods
    assert outcome.lists
