"""What Prometheus scrapes, from the registry and by a real operator that relaunched a pod."""

import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.clusters import NODE_A, Cluster, pod
from tests.operator_process import Operator
from tests.reconcile.threads import at_once
from tests.waiting import eventually

from topomend.cache.snapshot import Snapshot
from topomend.decide.plan import Explained, ReplayMismatch
from topomend.model.relaunch_record import Relaunch, Step
from topomend.reconcile.metrics.pods import MAX_RESOURCES, OTHER, Metrics, oldest_relaunch_seconds
from topomend.sandbox.processes.host import free_ports


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(Snapshot, lambda: 3, lambda: True)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"topomend_operator_{name}", labels)


def test_a_refusal_counts_once_however_often_it_is_explained(metrics: Metrics) -> None:
    for _ in range(3):
        metrics.refusal_explained("1", Explained("why", ("cpu",)))
        metrics.refusal_explained("2", ReplayMismatch("what"))
    assert value(metrics, "refused_pods_total") == 2
    assert value(metrics, "refusal_causes_total", resource="cpu") == 1
    assert value(metrics, "refusal_causes_total", resource="unknown") == 1
    assert value(metrics, "replay_disagreements_total", kind="refused") == 1


def test_a_refusal_counts_once_though_several_threads_explain_it(metrics: Metrics) -> None:
    uids = [str(number) for number in range(3000)]

    def explain_all() -> None:
        for uid in uids:
            metrics.refusal_explained(uid, Explained("why", ("cpu",)))

    at_once([explain_all] * 4)
    assert value(metrics, "refused_pods_total") == len(uids)


def test_a_refusal_for_two_resources_counts_in_both_and_is_one_pod(metrics: Metrics) -> None:
    metrics.refusal_explained("1", Explained("why", ("cpu", "nvidia.com/gpu")))
    assert value(metrics, "refused_pods_total") == 1
    assert value(metrics, "refusal_causes_total", resource="cpu") == 1
    assert value(metrics, "refusal_causes_total", resource="nvidia.com/gpu") == 1


def test_however_many_resources_are_named_few_are_told_apart(metrics: Metrics) -> None:
    for number in range(MAX_RESOURCES + 10):
        metrics.refusal_explained(str(number), Explained("why", (f"example.com/{number}",)))
    metrics.refusal_explained("late", Explained("why", ("memory",)))
    assert value(metrics, "refusal_causes_total", resource=OTHER) == 10 + len(("cpu", "memory", "unknown"))
    assert value(metrics, "refusal_causes_total", resource="memory") == 1
    assert value(metrics, "refused_pods_total") == MAX_RESOURCES + 10 + 1


def test_what_an_alert_counts_is_there_before_the_first_time(metrics: Metrics) -> None:
    assert value(metrics, "refused_pods_total") == 0
    assert value(metrics, "replay_disagreements_total", kind="refused") == 0


def test_the_oldest_open_record_tells_how_long_a_refused_pod_waits() -> None:
    now = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    records = [_record("2026-01-01T11:50:00Z"), _record("2026-01-01T11:59:00Z"), _record("")]
    records.append(replace(_record("2026-01-01T11:00:00Z"), step=Step.LAUNCHED))
    assert oldest_relaunch_seconds(records, now) == 600
    assert oldest_relaunch_seconds([], now) == 0


def _record(created: str) -> Relaunch:
    return Relaunch("default", "r", "p", "1", "a", "TopologyAffinityError", "why", 1, creation_time=created)


def test_a_relaunch_counts_once(metrics: Metrics) -> None:
    for _ in range(2):
        metrics.ended("1", "launched")
    assert value(metrics, "relaunches_total", outcome="launched") == 1


def test_gauges_are_read_when_they_are_scraped(metrics: Metrics) -> None:
    assert value(metrics, "relaunches_waiting") == 3
    assert value(metrics, "leads") == 1
    assert value(metrics, "oldest_relaunch_seconds") == 0
    assert value(metrics, "gated_though_fits_seconds") == 0


def test_an_operator_that_no_longer_leads_shows_nothing_of_what_it_knew() -> None:
    leads = True
    metrics = Metrics(Snapshot, lambda: 0, lambda: leads)
    metrics.show_while_leading(metrics.oldest_brake, lambda: 4000.0)
    assert value(metrics, "oldest_brake_seconds") == 4000
    leads = False
    assert value(metrics, "oldest_brake_seconds") == 0


def test_a_duty_that_was_never_done_counts_from_the_start(metrics: Metrics) -> None:
    before = time.time()
    metrics.duties_begin(["preemption"])
    began = value(metrics, "duty_last_success_timestamp_seconds", duty="preemption")
    assert began is not None
    assert before <= began <= time.time()


def test_the_process_has_the_standard_metric_names(metrics: Metrics) -> None:
    names = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    assert {"process_resident_memory_bytes", "process_cpu_seconds_total", "python_info"} <= names


@pytest.mark.cluster
def test_a_real_relaunch_is_counted(fragmented: Cluster, start_operator: Callable[..., Operator]) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    operator = start_operator(f"--metrics-address={address}")
    operator.wait_until_it_watches()
    fragmented.create(pod("train", 3, preferred=NODE_A))
    eventually("train to run again", lambda: fragmented.running("train"))
    relaunches = eventually("the relaunch to be counted", lambda: _scraped(address, "relaunches_total"))
    assert relaunches == {(("outcome", "launched"),): 1.0}
    eventually("why to be counted", lambda: _scraped(address, "refusal_causes_total") == {(("resource", "cpu"),): 1.0})
    assert _scraped(address, "refused_pods_total") == {(): 1.0}
    eventually("how long it took", lambda: _scraped(address, "relaunch_latency_seconds_count") == {(): 1.0})
    assert _scraped(address, "replay_duration_seconds_count")[()] >= 1
    gated = pod("gated", 3)
    gated["spec"]["schedulingGates"] = [{"name": "topomend.io/fit"}]
    created = int(time.time())  # as the API server notes it, in whole seconds
    fragmented.create(gated)
    eventually("gated to run", lambda: fragmented.running("gated"))
    holds = eventually("its hold to be counted", lambda: _scraped(address, "gated_hold_seconds_count").get((), 0.0))
    assert holds == 1
    assert 0 < _scraped(address, "gated_hold_seconds_sum")[()] <= time.time() - created
    replays = _scraped(address, "replays_total")
    admitted = (("policy", "single-numa-node"), ("scope", "container"), ("verdict", "Admits"))
    assert replays[admitted] >= 1
    assert _scraped(address, "build_info")
    assert "Traceback" not in operator.text()


def _scraped(address: str, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples]
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for sample in samples
        if sample.name == f"topomend_operator_{name}"
    }
