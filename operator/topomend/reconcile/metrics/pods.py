"""The operator's metrics for Prometheus: refusals, replays, relaunches, mismatches, and pods that wait.

Owns names, labels and that a pod, record or mismatch counts once, however often it is reconciled. No pod's or node's
name is a label, and each label has one of a bounded number of values. Leaves pools of nodes to ``pools``.
"""

import collections
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

import topomend
from topomend.base.bounded_dict import BoundedDict
from topomend.cache.snapshot import PodKey, Snapshot
from topomend.decide.diagnosis.feasibility import Diagnosis
from topomend.decide.plan import Explained, ReplayMismatch
from topomend.model.pods.scheduling import WatchedPod
from topomend.model.relaunch_record import Relaunch
from topomend.reconcile.metrics.fragmentation import Fragmentation
from topomend.reconcile.metrics.pools import Pools
from topomend.replay.qos import CPU, MEMORY
from topomend.runtime.http.process_metrics import add_process_metrics

_PREFIX = "topomend_operator"
_MAX_COUNTED = 10_000

MAX_RESOURCES = 50
"""How many resources are told apart; those that come later are OTHER. A pod may ask for any name."""

MOVED, ELSEWHERE, KEPT, LOST = RESULTS = ("moved", "elsewhere", "kept", "lost")
"""What became of a move: the next pod runs where it was told, or elsewhere; the API server kept the pod, or its
controller began to change; or no next pod runs in time."""

FITS, UNFIT, UNDECIDED, UNCHECKED = DECISIONS = ("fits", "unfit", "undecided", "unchecked")
"""What was decided about a workload of Kueue: its pods fit; they do not; that took too long; or they are too many."""

OTHER, UNKNOWN = "other", "unknown"
_INSTANTS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_LATENCIES = (0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """A registry of its own. May be used by several threads.

    ``snapshot``, ``waiting`` and ``leads`` are called at each scrape. What other parts know they show by
    ``show_while_leading``: ``gated_though_fits``, ``braked``, ``oldest_brake``, ``kueue_waiting`` and
    ``certificate_expiry``.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], waiting: Callable[[], int], leads: Callable[[], bool]) -> None:
        self.registry = CollectorRegistry()
        add_process_metrics(self.registry)
        self._counted: BoundedDict[tuple[str, str], None] = BoundedDict(_MAX_COUNTED)
        self._resources, self._leads = {CPU, MEMORY, UNKNOWN}, leads
        self._lock = threading.Lock()
        Info(f"{_PREFIX}_build", "The version that runs.", registry=self.registry).info(
            {"version": topomend.__version__}
        )
        self._replays = self._counter(
            "replays",
            "Admissions replayed, by policy, scope and verdict; like nodes and pods share one.",
            "policy",
            "scope",
            "verdict",
        )
        self._disagreements = self._counter(
            "replay_disagreements", "Decisions of kubelets that replay did not predict, by kind.", "kind"
        )
        self._disagreements.labels("refused")  # from 0, so that the first one is an increase
        self._refusals = self._counter("refused_pods", "Pods that a kubelet refused.")
        self._causes = self._counter(
            "refusal_causes",
            "Resources for which a kubelet refused a pod, or its reason; a pod counts in each that it lacked.",
            "resource",
        )
        self._relaunches = self._counter("relaunches", "Relaunches that ended, by outcome.", "outcome")
        self._moves = self._counter(
            "moves", f"Pods that the campaign moved or tried to, by result: {', '.join(RESULTS)}.", "result"
        )
        for result in RESULTS:
            self._moves.labels(result)
        self._decisions = self._counter(
            "kueue_decisions", f"Decisions about workloads of Kueue, by result: {', '.join(DECISIONS)}.", "result"
        )
        for result in DECISIONS:
            self._decisions.labels(result)
        self._deciding = self._histogram(
            "kueue_decision", "Time to decide whether all pods of a workload of Kueue fit together.", _INSTANTS
        )
        self._durations = self._histogram("replay_duration", "Time to diagnose all nodes for one pod.", _INSTANTS)
        self._latency = self._histogram(
            "relaunch_latency",
            "Time from the first observation of the refusal to the ungating of the replacement.",
            _LATENCIES,
        )
        self._holds = self._histogram(
            "gated_hold",
            "Time from the creation of a gated pod to its ungating.",
            (*_INSTANTS, *(seconds for seconds in _LATENCIES if seconds > _INSTANTS[-1])),
        )
        self._answers = self._histogram(
            "webhook", "Time in which the operator answers the API server about a new pod.", (0.0005, *_INSTANTS)
        )
        self._duties = Gauge(
            f"{_PREFIX}_duty_last_success_timestamp_seconds",
            "When each periodic duty of the leader was last done without a failure, by duty.",
            ("duty",),
            registry=self.registry,
        )
        self._gauge("relaunches_waiting", "Pods that wait for a node.", waiting)
        self._gauge(
            "oldest_gate_seconds",
            "The age of the oldest pod with a gate of the operator; 0 where there is none.",
            lambda: oldest_gate_seconds(snapshot().gated, datetime.now(UTC)),
        )
        self._gauge(
            "oldest_relaunch_seconds",
            "The age of the oldest open Relaunch: of a refused pod that does not run again yet; 0 where there is none.",
            lambda: oldest_relaunch_seconds(snapshot().relaunches.values(), datetime.now(UTC)),
        )
        self.gated_though_fits = self._gauge(
            "gated_though_fits_seconds",
            "How long a gated pod has waited, at most, since a node would admit it; 0 where there is none.",
        )
        self.braked = self._gauge("braked_controllers", "Controllers whose new pods are gated by the brake.")
        self.oldest_brake = self._gauge(
            "oldest_brake_seconds", "For how long one controller has been braked, at most; 0 where there is none."
        )
        self.kueue_waiting = self._gauge(
            "kueue_workloads_waiting", "Workloads that are kept out of Kueue's queue until all their pods fit."
        )
        self.certificate_expiry = self._gauge(
            "certificate_expiry_timestamp_seconds",
            "When the webhook's certificate or its authority ends, in Unix time; 0 where this operator does not lead.",
        )
        self._gauge("leads", "Whether this operator acts (1) or only watches (0).", leads)
        self.registry.register(Pools(snapshot, leads))
        self.registry.register(Fragmentation(snapshot, leads))

    def diagnosed(self, diagnosis: Diagnosis, seconds: float) -> None:
        """Count the admissions that a diagnosis replayed, and how long it took."""
        self._durations.observe(seconds)
        replays = collections.Counter(
            (kubelet.topology_manager_policy, kubelet.topology_manager_scope, verdict)
            for kubelet, verdict in diagnosis.replayed
        )
        for labels, count in replays.items():
            self._replays.labels(*labels).inc(count)

    def refusal_explained(self, uid: str, explanation: Explained | ReplayMismatch) -> None:
        """Count the refusal of the pod of this uid, by the resource that explains it."""
        if self._is_first("refusal", uid):
            self._refusals.inc()
            for resource in (isinstance(explanation, Explained) and explanation.resources) or (UNKNOWN,):
                self._causes.labels(self._told_apart(resource)).inc()
        if isinstance(explanation, ReplayMismatch) and self._is_first("mismatch", uid):
            self._disagreements.labels("refused").inc()

    def ended(self, record_uid: str, outcome: str) -> None:
        """Count a relaunch that ended."""
        if self._is_first("record", record_uid):
            self._relaunches.labels(outcome).inc()

    def move_ended(self, result: str) -> None:
        """Count a move of the campaign; ``result`` is one of RESULTS."""
        self._moves.labels(result).inc()

    def kueue_decided(self, result: str, seconds: float) -> None:
        """It was decided about a workload of Kueue: one of DECISIONS."""
        self._decisions.labels(result).inc()
        if result != UNCHECKED:
            self._deciding.observe(seconds)

    def launched_after(self, seconds: float) -> None:
        """Observe the time from a refusal to the ungating of the replacement."""
        self._latency.observe(seconds)

    def gated_for(self, seconds: float) -> None:
        """Observe the time that a pod was gated."""
        self._holds.observe(seconds)

    def show_while_leading(self, gauge: Gauge, value: Callable[[], float]) -> None:
        """Have a gauge read ``value`` at each scrape. What an operator knew when it ceased to lead goes out of date."""
        gauge.set_function(lambda: value() if self._leads() else 0.0)

    def duties_begin(self, names: Iterable[str]) -> None:
        """Note the duties of this operator: one that is never done counts from now on."""
        for name in names:
            self.duty_done(name)

    def duty_done(self, name: str) -> None:
        """Note that a periodic duty was done."""
        self._duties.labels(name).set_to_current_time()

    def answered_in(self, seconds: float) -> None:
        """Observe the time that the webhook took for an answer."""
        self._answers.observe(seconds)

    def _histogram(self, name: str, help_text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"{_PREFIX}_{name}_seconds", help_text, buckets=buckets, registry=self.registry)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", help_text, labels, registry=self.registry)

    def _gauge(self, name: str, help_text: str, value: Callable[[], float] | None = None) -> Gauge:
        gauge = Gauge(f"{_PREFIX}_{name}", help_text, registry=self.registry)
        if value is not None:
            gauge.set_function(value)
        return gauge

    def _told_apart(self, resource: str) -> str:
        """The resource as a label's value."""
        with self._lock:
            if resource not in self._resources and len(self._resources) >= MAX_RESOURCES:
                return OTHER
            self._resources.add(resource)
            return resource

    def _is_first(self, kind: str, uid: str) -> bool:
        with self._lock:
            if (kind, uid) in self._counted:
                return False
            self._counted[(kind, uid)] = None
            return True


def oldest_gate_seconds(gated: Mapping[PodKey, WatchedPod], now: datetime) -> float:
    """The age of the oldest gated pod, by its creation; 0 where there is none."""
    return _oldest_seconds((pod.creation_time for pod in gated.values()), now)


def oldest_relaunch_seconds(records: Iterable[Relaunch], now: datetime) -> float:
    """The age of the oldest relaunch that has not ended, by its record's creation; 0 where there is none."""
    return _oldest_seconds((record.creation_time for record in records if not record.step.ended), now)


def _oldest_seconds(times: Iterable[str], now: datetime) -> float:
    oldest = min(filter(None, times), default="")
    return max(0.0, (now - datetime.fromisoformat(oldest)).total_seconds()) if oldest else 0.0
