"""topomend watched by a real Prometheus, beside the kinds of Node Feature Discovery, real containers. One story; the
tests run in order.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from deploy.watch.alerts import ALERTS
from deploy.watch.board import queries
from tests.waiting import awake, eventually, stretched
from verify.e2e import images
from verify.e2e.conftest import TAG
from verify.e2e.containers.cluster import Cluster
from verify.e2e.containers.node import Node
from verify.e2e.steps.installed import AGENT, Installed, name_of
from verify.e2e.steps.pods import NAMESPACE, NODE_TOPOLOGIES
from verify.e2e.steps.scraping import EVALUATION_SECONDS, SCRAPE_SECONDS, Prometheus
from verify.nfd import programs as nfd

HERE, THERE = "node-1", "node-2"
NODE_FEATURES = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{AGENT}/nodefeatures"

ALERT_SECONDS = 60.0

ROUND = SCRAPE_SECONDS + EVALUATION_SECONDS
"""Seconds after which every rule has been evaluated with what every pod exports by then."""


@pytest.fixture(scope="module")
def story(archives: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    imported = [archives["idle"], archives[TAG]]
    with Cluster.up([Node(HERE), Node(THERE)], imported, pause=images.IDLE) as cluster:
        story = Installed.to_be(cluster)
        story.components += ["scrape-annotations", "node-features"]
        kinds_of_nfd = {"apiVersion": "v1", "kind": "List", "items": nfd.kinds()}
        cluster.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(kinds_of_nfd))
        story.install([HERE, THERE], story.manifests(tmp_path_factory.mktemp("install")))
        yield story


@pytest.fixture(scope="module")
def prometheus(story: Installed) -> Prometheus:
    return Prometheus.beside(story.cluster)


def test_every_pod_as_installed_is_found_and_scraped(story: Installed, prometheus: Prometheus) -> None:
    pods = {item["metadata"]["name"] for item in story.ours()}
    up = "up == 1"
    eventually(
        "every pod to be scraped",
        lambda: {series["metric"]["pod"] for series in prometheus.asked(up)} == pods,
        SCRAPE_SECONDS * 3,
    )
    assert len(pods) == 4


def test_each_agent_writes_the_labels_that_nfd_gives_its_node(story: Installed) -> None:
    policy = "topomend.io/topology-manager-policy"
    expected = {
        name_of(item): {
            "topomend.io/topology-ready": "true",
            policy: item["status"]["kubelet"]["topologyManagerPolicy"],
        }
        for item in story.cluster.api.items(NODE_TOPOLOGIES)
    }

    def written() -> dict[str, dict[str, str]]:
        labels = {name_of(item): item["spec"]["labels"] for item in story.cluster.api.items(NODE_FEATURES)}
        return {node: {key: labels[node].get(key, "") for key in keys} for node, keys in expected.items()}

    assert expected.keys() == {HERE, THERE}
    eventually("both nodes' labels", lambda: written() == expected)


def test_an_installation_that_works_fires_no_alert(prometheus: Prometheus) -> None:
    eventually("an operator to be seen to lead", lambda: prometheus.asked("topomend_operator_leads == 1"), ROUND)
    began = time.time()
    prometheus.wait_for_a_round()
    assert prometheus.fired_since(began) == set()


def test_the_first_refusal_fires_an_alert_within_a_minute(story: Installed, prometheus: Prometheus) -> None:
    assert [float(series["value"][1]) for series in prometheus.asked("topomend_operator_refused_pods_total")] == [0, 0]
    stalled = time.monotonic() - awake()
    story.relaunch("pod", HERE, THERE)
    refused = story.refusal("pod-2")
    eventually("an alert to fire", lambda: "TopomendPodRefused" in prometheus.firing(), stretched(ALERT_SECONDS) * 2)
    seconds = time.monotonic() - refused
    print(f"refused to alert: {seconds:.1f} s")
    stalled = (time.monotonic() - awake()) - stalled
    assert seconds - stalled <= stretched(ALERT_SECONDS)
    assert prometheus.firing() == {"TopomendPodRefused"}


@pytest.fixture(scope="module")
def room(story: Installed) -> None:
    """A node has its CPU free again: of nothing there is no fragmentation."""
    story.cluster.kubectl("delete", "pod", "pod-1", f"--namespace={NAMESPACE}")


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("expression", [*(alert.query for alert in ALERTS), *queries()])
def test_every_query_of_rules_and_board_has_a_series(prometheus: Prometheus, expression: str) -> None:
    eventually("it to have a series", lambda: prometheus.asked(expression), SCRAPE_SECONDS * 2)


def test_the_relaunch_is_counted_and_nothing_unexpected_was_logged(story: Installed, prometheus: Prometheus) -> None:
    (launched,) = prometheus.asked('sum(topomend_operator_relaunches_total{outcome="launched"})')
    assert float(launched["value"][1]) == 1
    assert story.unexpected_lines() == []
