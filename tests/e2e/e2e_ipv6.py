"""The main line of the story on a cluster that has IPv6 alone."""

from collections.abc import Mapping
from pathlib import Path

from tests.e2e import images
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import TAG
from tests.e2e.installed import Installed
from tests.e2e.network import IPV6
from tests.e2e.node import Node

HERE, THERE = "node-1", "node-2"


def test_a_refused_pod_runs_elsewhere_on_a_cluster_that_has_ipv6_alone(archives: Mapping[str, Path]) -> None:
    imported = [archives["idle"], archives[TAG]]
    with Cluster.up([Node(HERE), Node(THERE)], imported, pause=images.IDLE, network=IPV6) as cluster:
        topomend = Installed.to_be(cluster)
        topomend.install([HERE, THERE])
        assert all(":" in item["status"]["podIP"] for item in topomend.ours())
        topomend.relaunch("pod", HERE, THERE)
        assert topomend.unreasoned_lines() == []
