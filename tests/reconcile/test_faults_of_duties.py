"""Whatever becomes of a request of one duty, all others are done again: at random, on a real API server.

Each duty has something to do with which it asks the API server. One request, and each later one for the same object,
is refused with any status, gets no answer, hangs for as long as the test looks, is not permitted, or reveals an object
that cannot be read.
"""

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import applied, guaranteed_pod, node, node_state, running, snapshot_of
from tests.clusters import NODE_A, NODE_B, SYSTEM, Cluster, pod
from tests.intercepted import Intercepted
from tests.reconcile.emitted import Emitted
from tests.reconcile.parts import EMPTY_A, EMPTY_B
from tests.refused_pods import gated, watched
from tests.seeds import SEED
from tests.waiting import eventually

from topomend.cache import changes
from topomend.cache.changes import SILENT
from topomend.cache.snapshot import AssumedPod
from topomend.kube.client import Client
from topomend.kube.errors import AlreadyExists, DeniedForNow, NotPermitted, Unanswered, answered
from topomend.kube.resources import BRAKES
from topomend.model.nodes.node import Taint
from topomend.model.pods.scheduling import Owner, WatchedPod
from topomend.reconcile.autoscaling import placeholders
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.nodes.staleness import Staleness
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.reconciler import Reconciler
from topomend.reconcile.settings import Settings
from topomend.reconcile.store import Store
from topomend.runtime.duties import Duties, Duty
from topomend.wire.document import MalformedObject
from topomend.wire.group import BRAKE, BRAKE_NAME, STARTUP_TAINTS

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("brake")]

TRIALS = 24

STATUSES = (400, 401, 403, 404, 405, 409, 410, 413, 422, 429, 431, 500, 502, 503, 504)

LONG_AGO = 1_000.0
"""Seconds: longer than any duty waits with what it does for a pod."""

SILENT_NODES = ("silent-1", "silent-2")
"""What agents have left of nodes that are gone."""

FULL_B = running(EMPTY_B, guaranteed_pod("low", 3), guaranteed_pod("high", 4))

Failure = Callable[[threading.Event], None]
"""Raises the error of a request; one that hangs waits until the event is set."""


def _status(status: int) -> Failure:
    def fail(_: threading.Event) -> None:
        answered(status, b"by the test", "it")

    return fail


def _raise(error: Exception) -> Failure:
    def fail(_: threading.Event) -> None:
        raise error

    return fail


def _hang(ended: threading.Event) -> None:
    ended.wait()
    raise Unanswered("hung until the end of the trial")


FAILURES: dict[str, Failure] = {
    **{str(status): _status(status) for status in STATUSES},
    "no answer": _raise(Unanswered("no answer within 15 s")),
    "not permitted": _raise(NotPermitted("another operator leads")),
    "denied for now": _raise(DeniedForNow(429, "TooManyRequests", "by a webhook", 1.0)),
    "unreadable": _raise(MalformedObject("spec.tolerations: more than 1000 values")),
    "a bug": _raise(KeyError("metadata")),
    "hangs": _hang,
}

OWN_FAULTS = {*map(str, STATUSES), "denied for now", "unreadable", "a bug"} - {"401", "403", "429"}
"""The failures that are an object's own: not even the duty that meets them ends with them, where it is one object's."""


class Trial:
    """The duties of a new operator, each in its thread; ``done`` is how often each has been done."""

    def __init__(self, client: Client, pods: dict[str, WatchedPod]) -> None:
        self.done: Counter[str] = Counter()
        self.asked: list[tuple[str, str]] = []
        self.ended, self.failed = threading.Event(), threading.Event()
        self.fails: Callable[[str, str], Failure | None] = lambda _, __: None
        self._stopped, self._threads = threading.Event(), set[threading.Thread]()
        store, emitted = Store(), Emitted()
        store.snapshot = _snapshot(pods)
        behind = Intercepted(client, self._intercept)
        metrics = Metrics(lambda: store.snapshot, lambda: 0, lambda: True)
        settings = Settings(namespace=SYSTEM, startup_taint=True, placeholders=True)
        reconciler = Reconciler(
            behind,
            store,
            emitted.announcer,
            settings,
            lambda _: None,
            metrics=metrics,
            why_not_gating=lambda: "",
        )
        for name in ("small", "large"):
            reconciler.reconcile(PodID("default", name, pods[name].uid))
        self.asked.clear()
        agents = Duty("agents", Staleness(behind, store, emitted.announcer).report, 0.0)
        self.duties = [replace(duty, period=0.01) for duty in (*reconciler.duties(lambda: None), agents)]

    def _intercept(self, method: str, target: str) -> None:
        duty, request = threading.current_thread().name, f"{method} {target}"
        self.asked.append((duty, request))
        if self.ended.is_set():
            raise Unanswered("the trial is over")
        if failure := self.fails(duty, request):
            self.failed.set()
            failure(self.ended)

    def start(self) -> None:
        duties = Duties(
            self.duties,
            stopped=self._stopped,
            are_due=lambda: True,
            pause_after=lambda _: 0.0,
            succeeded=lambda name: self.done.update([name]),
        )
        before, names = set(threading.enumerate()), {duty.name for duty in self.duties}
        duties.start()
        self._threads = {thread for thread in threading.enumerate() if thread.name in names} - before

    def go_on(self, names: set[str]) -> None:
        """Wait until each of them has been done twice more: the first time may have begun before."""
        before = self.done.copy()
        for name in sorted(names):
            eventually(f"{name} to be done", lambda: self.done[name] >= before[name] + 2)  # noqa: B023

    def end(self) -> None:
        """Wait until no duty asks any more: what it creates would be there in the next trial."""
        self._stopped.set()
        self.ended.set()
        for thread in self._threads:
            thread.join()


def _snapshot(pods: dict[str, WatchedPod]) -> Any:
    now = time.monotonic()
    base = snapshot_of(running(EMPTY_A, guaranteed_pod("a", 3), guaranteed_pod("b", 4)), FULL_B)
    tainted = [node(name, taints=(Taint(STARTUP_TAINTS[0], "", "NoSchedule"),)) for name in (NODE_A, NODE_B)]
    snapshot = applied(
        *(changes.NodeUpdated(one) for one in tainted),
        *(changes.Published(node_state(name=name), "3") for name in SILENT_NODES),
        *(changes.PodUpdated(watched, now - LONG_AGO) for watched in pods.values()),
        to=base,
    )
    assumed = {
        ("default", name): AssumedPod(pods["runs"].pod, (NODE_A,), now + LONG_AGO, departed=True)
        for name in ("departed-1", "departed-2")
    }
    silent = {
        name: replace(snapshot.publications[name], agent_problem=SILENT, heartbeat="2026-01-01T00:00:00Z")
        for name in SILENT_NODES
    }
    return replace(snapshot, assumed=assumed, publications={**snapshot.publications, **silent})


@pytest.fixture
def pods(cluster: Cluster) -> dict[str, WatchedPod]:
    """Pods that wait, that run, and that no scheduler binds to the node to which they were narrowed."""
    with suppress(AlreadyExists):  # the brake's list
        content = {"apiVersion": BRAKES.api_version, "kind": BRAKE, "metadata": {"name": BRAKE_NAME}}
        cluster.client.create(BRAKES, content, SYSTEM)
    made = {name: gated(cluster, name, cpus) for name, cpus in (("small", 2), ("large", 3))}
    made["large"] = replace(made["large"], scheduler_rules=("hostPort",))  # no placeholder can stand for it
    cluster.create(pod("runs", 1))
    eventually("it to run", lambda: cluster.running("runs"))
    made["runs"] = watched(cluster, "runs")
    owners = [
        Owner("ReplicaSet", f"web-{number}", f"0000000{number}-0000-0000-0000-000000000000", "apps/v1")
        for number in (1, 2)
    ]
    for number, owner in enumerate(owners):
        unbound = replace(made["small"], name=f"unbound-{number}", uid=f"unbound-{number}", gates=(), owner=owner)
        made[unbound.name] = replace(unbound, narrowed=True, released=True, unschedulable=True)
    return made


def _requests(cluster: Cluster, pods: dict[str, WatchedPod]) -> list[tuple[str, str]]:
    """What the duties ask when nothing fails, each once."""
    trial = Trial(cluster.client, pods)
    trial.start()
    try:
        trial.go_on({duty.name for duty in trial.duties})
        return sorted(set(trial.asked))
    finally:
        _end(trial, cluster)


def _end(trial: Trial, cluster: Cluster) -> None:
    """End the trial, and remove the placeholders that it has created: the next one is to create its own."""
    trial.end()
    for content in cluster.pods():
        if content["metadata"]["namespace"] == SYSTEM:
            cluster.remove(content)


def test_any_request_of_any_duty_may_fail_in_any_way_and_every_other_duty_is_done(
    cluster: Cluster, pods: dict[str, WatchedPod], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is asked must not depend on how long a trial lasts: placeholders are created in each.
    monkeypatch.setattr(placeholders, "PATIENCE_SECONDS", 0.0)
    chance = random.Random(SEED)
    requests = _requests(cluster, pods)
    print(f"\nrequests: {requests}")
    duties = sorted({duty for duty, _ in requests})
    for number in range(TRIALS):
        duty = duties[number % len(duties)]
        request = chance.choice([request for name, request in requests if name == duty])
        kind = chance.choice(sorted(FAILURES))
        trial = Trial(cluster.client, pods)
        trial.fails = lambda name, asked: FAILURES[kind] if (name, asked) == (duty, request) else None  # noqa: B023
        print(f"{duty}: {request}: {kind}")
        trial.start()
        try:
            eventually(f"{duty} to ask for {request}", trial.failed.is_set)
            is_own = kind in OWN_FAULTS and re.search("/(pods|nodes|nodetopologies)/", request)
            trial.go_on({other.name for other in trial.duties if other.name != duty or is_own})
        finally:
            _end(trial, cluster)
