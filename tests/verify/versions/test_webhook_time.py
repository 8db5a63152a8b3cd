"""The waits for the webhook, read of a page of metrics as the API server and the operator serve it."""

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from verify.versions.webhook_time import MOST_P99_SECONDS, WebhookTime, read_histogram

NAME = "waits_seconds"


def page(**waits: list[float]) -> str:
    """These waits for webhooks of these names."""
    registry = CollectorRegistry()
    histogram = Histogram(NAME, "Waits.", ["name"], buckets=(0.005, 0.025, 0.1), registry=registry)
    for webhook, seconds in waits.items():
        for wait in seconds:
            histogram.labels(f"{webhook}.gating.topomend.io").observe(wait)
    histogram.labels("limits.example.com").observe(0.09)
    return generate_latest(registry).decode()


def test_the_waits_for_all_webhooks_of_topomend_count_and_no_others() -> None:
    read = read_histogram(page(steer=[0.001] * 3, creator=[0.02, 7.0]), NAME, ".gating.topomend.io")
    assert dict(read.counts) == {0.005: 3, 0.025: 4, 0.1: 4, float("inf"): 5}
    assert read.total == 5


def test_only_what_came_since_counts() -> None:
    before, after = (read_histogram(page(steer=[0.001] * number), NAME) for number in (3, 10))
    assert after.since(before).total == 7


def test_a_percentile_lies_in_its_bucket_as_far_as_its_rank() -> None:
    read = read_histogram(page(steer=[0.001] * 98 + [0.02] * 2), NAME, ".gating.topomend.io")
    assert read.quantile(0.49) == pytest.approx(0.0025)
    assert read.quantile(0.99) == pytest.approx(0.015)
    assert read_histogram(page(steer=[7.0]), NAME, ".gating.topomend.io").quantile(0.99) == pytest.approx(0.1)


@pytest.mark.parametrize(("slow", "is_met"), [(1, True), (5, False)])
def test_the_target_is_a_wait_of_twenty_milliseconds_for_99_of_100(slow: int, is_met: bool) -> None:
    read = read_histogram(page(steer=[0.001] * (100 - slow) + [0.02] * slow), NAME, ".gating.topomend.io")
    target = WebhookTime(read, read).target("v1.34.4")
    assert (target.is_met, target.limit) == (is_met, 1000 * MOST_P99_SECONDS)


def test_where_no_webhook_is_asked_the_table_says_so() -> None:
    read = read_histogram(page(), NAME, ".gating.topomend.io")
    assert WebhookTime(read, read).text() == "not asked"
