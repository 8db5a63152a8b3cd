"""The operator's metrics for Prometheus: what was refused, replayed and relaunched, and what waits.

Owns names and labels; counts what it is told. A pod, a record or a disagreement counts once, however often it is
looked at. No pod's or node's name is a label.
"""

from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

import topomend
from topomend.cache.snapshot import Publication, Snapshot
from topomend.decide.feasibility import Diagnosis
from topomend.decide.plan import Explained, ReplayMismatch
from topomend.model import node_state
from topomend.model.bounded_dict import BoundedDict
from topomend.runtime.process_metrics import add_process_metrics

_PREFIX = "topomend_operator"
_REMEMBERED = 10_000
_INSTANTS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_LATENCIES = (0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """All metrics in a registry of their own. ``snapshot`` and ``waiting`` are asked when they are scraped."""

    def __init__(self, snapshot: Callable[[], Snapshot], waiting: Callable[[], int], leads: Callable[[], bool]) -> None:
        self.registry = CollectorRegistry()
        add_process_metrics(self.registry)
        self._seen: BoundedDict[tuple[str, str], None] = BoundedDict(_REMEMBERED)
        Info(f"{_PREFIX}_build", "The version that runs.", registry=self.registry).info(
            {"version": topomend.__version__}
        )
        self._replays = self._counter(
            "replays", "Kubelets asked by replay, once about all pods that are alike.", "policy", "scope", "verdict"
        )
        self._disagreements = self._counter("replay_disagreements", "Kubelets that decided otherwise.", "kind")
        self._refusals = self._counter("refusals", "Pods that a kubelet refused.", "resource")
        self._relaunches = self._counter("relaunches", "Relaunches that ended.", "outcome")
        self._durations = self._histogram("replay_duration", "Asking every node about one pod.", _INSTANTS)
        self._latency = self._histogram(
            "relaunch_latency", "From a refusal's first sight until its replacement was let go.", _LATENCIES
        )
        self._holds = self._histogram(
            "gated_hold",
            "From the first sight of a pod that was gated at birth until it was let go.",
            (*_INSTANTS, *(each for each in _LATENCIES if each > _INSTANTS[-1])),
        )
        self._gauge("relaunches_waiting", "Pods that wait for a node.", waiting)
        self._gauge("leads", "Whether this operator acts (1) or only watches (0).", leads)
        self._gauge(
            "largest_admissible_cpus",
            "The most CPUs that are free on one NUMA node of any node.",
            lambda: largest_hole(snapshot().publications),
        )

    def diagnosed(self, diagnosis: Diagnosis, seconds: float) -> None:
        """The kubelets that were asked about one pod, and how long all answers took."""
        self._durations.observe(seconds)
        for kubelet, verdict in diagnosis.replayed:
            self._replays.labels(kubelet.topology_manager_policy, kubelet.topology_manager_scope, verdict).inc()

    def judged(self, uid: str, judgement: Explained | ReplayMismatch) -> None:
        """Why a node refused the pod of this uid."""
        if self._is_first("refusal", uid):
            self._refusals.labels(judgement.resource if isinstance(judgement, Explained) else "unknown").inc()
        if isinstance(judgement, ReplayMismatch) and self._is_first("disagreement", uid):
            self._disagreements.labels("refused").inc()

    def ended(self, record_uid: str, outcome: str) -> None:
        """A relaunch ended."""
        if self._is_first("record", record_uid):
            self._relaunches.labels(outcome).inc()

    def launched_after(self, seconds: float) -> None:
        """A replacement was let go so long after its pod's refusal was seen."""
        self._latency.observe(seconds)

    def held_for(self, seconds: float) -> None:
        """A pod that was gated at birth was let go so long after it was first seen."""
        self._holds.observe(seconds)

    def _histogram(self, name: str, told: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"{_PREFIX}_{name}_seconds", told, buckets=buckets, registry=self.registry)

    def _counter(self, name: str, told: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", told, labels, registry=self.registry)

    def _gauge(self, name: str, told: str, value: Callable[[], float]) -> None:
        Gauge(f"{_PREFIX}_{name}", told, registry=self.registry).set_function(value)

    def _is_first(self, kind: str, uid: str) -> bool:
        if (kind, uid) in self._seen:
            return False
        self._seen[(kind, uid)] = None
        return True


def largest_hole(publications: Mapping[str, Publication]) -> int:
    """The most CPUs free on one NUMA node of any node, pods on their way counted; 0 where nothing is published."""
    return max((node_state.largest_hole(each.state_with_assumed) for each in publications.values()), default=0)
