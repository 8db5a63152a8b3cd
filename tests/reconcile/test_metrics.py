"""What Prometheus scrapes, from the registry and by a real operator that relaunched a pod."""

import socket
import urllib.request
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.builders import node_state, snapshot_of
from tests.clusters import NODE_A, Cluster, pod
from tests.operator_process import Operator
from tests.reconcile.threads import at_once
from tests.waiting import eventually, stretched

from topomend.cache.snapshot import Snapshot
from topomend.decide.plan import Explained, ReplayMismatch
from topomend.reconcile.metrics import Metrics, largest_admissible_cpus


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(Snapshot, lambda: 3, lambda: True)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"topomend_operator_{name}", labels)


def test_a_refusal_counts_once_however_often_it_is_explained(metrics: Metrics) -> None:
    for _ in range(3):
        metrics.refusal_explained("1", Explained("why", "cpu"))
        metrics.refusal_explained("2", ReplayMismatch("what"))
    assert value(metrics, "refusals_total", resource="cpu") == 1
    assert value(metrics, "refusals_total", resource="unknown") == 1
    assert value(metrics, "replay_disagreements_total", kind="refused") == 1


def test_a_refusal_counts_once_though_several_threads_explain_it(metrics: Metrics) -> None:
    uids = [str(number) for number in range(3000)]

    def explain_all() -> None:
        for uid in uids:
            metrics.refusal_explained(uid, Explained("why", "cpu"))

    at_once([explain_all] * 4)
    assert value(metrics, "refusals_total", resource="cpu") == len(uids)


def test_a_relaunch_counts_once(metrics: Metrics) -> None:
    for _ in range(2):
        metrics.ended("1", "launched")
    assert value(metrics, "relaunches_total", outcome="launched") == 1


def test_gauges_are_read_when_they_are_scraped(metrics: Metrics) -> None:
    assert value(metrics, "relaunches_waiting") == 3
    assert value(metrics, "leads") == 1
    assert value(metrics, "largest_admissible_cpus") == 0


def test_the_largest_admissible_request_fits_one_numa_node() -> None:
    states = [node_state("numa:2 cores:4", name="a"), node_state("numa:1 cores:6", name="b")]
    assert largest_admissible_cpus(snapshot_of(*states).publications) == 5


def test_the_process_has_the_standard_metric_names(metrics: Metrics) -> None:
    names = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    assert {"process_resident_memory_bytes", "process_cpu_seconds_total", "python_info"} <= names


@pytest.mark.cluster
def test_a_real_relaunch_is_counted(fragmented: Cluster, start_operator: Callable[..., Operator]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    operator = start_operator(f"--metrics-address={address}")
    operator.wait_until_it_watches()
    fragmented.create(pod("train", 3, preferred=NODE_A))
    eventually("train to run again", lambda: fragmented.running("train"))
    relaunches = eventually("the relaunch to be counted", lambda: _scraped(address, "relaunches_total"))
    assert relaunches == {(("outcome", "launched"),): 1.0}
    eventually("why to be counted", lambda: _scraped(address, "refusals_total") == {(("resource", "cpu"),): 1.0})
    assert _scraped(address, "relaunch_latency_seconds_count") == {(): 1.0}
    assert _scraped(address, "replay_duration_seconds_count")[()] >= 1
    gated = pod("gated", 3)
    gated["spec"]["schedulingGates"] = [{"name": "topomend.io/fit"}]
    fragmented.create(gated)
    eventually("gated to run", lambda: fragmented.running("gated"))
    holds = eventually("its hold to be counted", lambda: _scraped(address, "gated_hold_seconds_count").get((), 0.0))
    assert holds == 1
    assert 0 < _scraped(address, "gated_hold_seconds_sum")[()] < stretched(5)
    replays = _scraped(address, "replays_total")
    admitted = (("policy", "single-numa-node"), ("scope", "container"), ("verdict", "Admits"))
    assert replays[admitted] >= 1
    assert _scraped(address, "build_info")
    assert "Traceback" not in operator.text()


def _scraped(address: str, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples]
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for sample in samples
        if sample.name == f"topomend_operator_{name}"
    }
