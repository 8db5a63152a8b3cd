"""The core of the story on an IPv6-only cluster."""

from collections.abc import Mapping
from pathlib import Path

from verify.e2e import images
from verify.e2e.conftest import TAG
from verify.e2e.containers.cluster import Cluster
from verify.e2e.containers.network import IPV6
from verify.e2e.containers.node import Node
from verify.e2e.steps.installed import Installed

HERE, THERE = "node-1", "node-2"


def test_a_refused_pod_runs_elsewhere_on_an_ipv6_only_cluster(archives: Mapping[str, Path]) -> None:
    imported = [archives["idle"], archives[TAG]]
    with Cluster.up([Node(HERE), Node(THERE)], imported, pause=images.IDLE, network=IPV6) as cluster:
        topomend = Installed.to_be(cluster)
        topomend.install([HERE, THERE])
        assert all(":" in item["status"]["podIP"] for item in topomend.ours())
        topomend.relaunch("pod", HERE, THERE)
        assert topomend.unexpected_lines() == []
