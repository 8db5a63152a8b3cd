"""topomend watched by a real Prometheus, real containers. One story; the tests run in order."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from deploy.watch.alerts import ALERTS
from deploy.watch.board import queries
from tests.waiting import consistently, eventually, stretched
from verify.e2e import images
from verify.e2e.cluster import Cluster
from verify.e2e.conftest import TAG
from verify.e2e.installed import Installed
from verify.e2e.node import Node
from verify.e2e.scraping import EVALUATION_SECONDS, SCRAPE_SECONDS, Prometheus

HERE, THERE = "node-1", "node-2"

ALERT_SECONDS = 60.0

ROUND = SCRAPE_SECONDS + EVALUATION_SECONDS
"""Seconds after which every rule has been evaluated with what every pod exports by then."""


@pytest.fixture(scope="module")
def story(archives: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    imported = [archives["idle"], archives[TAG]]
    with Cluster.up([Node(HERE), Node(THERE)], imported, pause=images.IDLE) as cluster:
        story = Installed.to_be(cluster)
        story.components.append("scrape-annotations")
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


def test_an_installation_that_works_fires_no_alert(prometheus: Prometheus) -> None:
    eventually("an operator to be seen to lead", lambda: prometheus.asked("topomend_operator_leads == 1"), ROUND)
    consistently("no alert firing", lambda: prometheus.firing() == set(), ROUND, poll=EVALUATION_SECONDS)


def test_the_first_refusal_fires_an_alert_within_a_minute(story: Installed, prometheus: Prometheus) -> None:
    assert [float(series["value"][1]) for series in prometheus.asked("topomend_operator_refused_pods_total")] == [0, 0]
    story.relaunch("pod", HERE, THERE)
    refused = story.refusal("pod-2")
    eventually("an alert to fire", lambda: "TopomendPodRefused" in prometheus.firing(), stretched(ALERT_SECONDS) * 2)
    seconds = time.monotonic() - refused
    print(f"refused to alert: {seconds:.1f} s")
    assert seconds <= stretched(ALERT_SECONDS)
    assert prometheus.firing() == {"TopomendPodRefused"}


@pytest.mark.parametrize("expression", [*(alert.query for alert in ALERTS), *queries()])
def test_every_query_of_rules_and_board_has_a_series(prometheus: Prometheus, expression: str) -> None:
    eventually("it to have a series", lambda: prometheus.asked(expression), SCRAPE_SECONDS * 2)


def test_the_relaunch_is_counted_and_nothing_unexpected_was_logged(story: Installed, prometheus: Prometheus) -> None:
    (launched,) = prometheus.asked('sum(topomend_operator_relaunches_total{outcome="launched"})')
    assert float(launched["value"][1]) == 1
    assert story.unexpected_lines() == []
