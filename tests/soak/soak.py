"""Kill the real operator again and again while pods are refused and relaunched, then have the audit log judge.

First one operator is let live, so that it is known how long a relaunch takes; then it is killed and started anew a few
times, as a kubelet would, for what a restart adds. Then several operators run side by side, each behind a proxy of its
own, and each is killed with SIGKILL: by turns at every write of a relaunch (before it is forwarded, before its answer,
after it), and at random times, its start included. Pods keep coming: a real kubelet refuses each, and once its
replacement runs and its record has ended, it is removed.
"""

import math
import random
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from tests.controller.conftest import Cluster, Operator, wait_for
from tests.controller.life import Life
from tests.faults import judge
from tests.faults.proxy import HangUp, Moment, Proxy, Write
from tests.faults.stage import lopsided_cluster, refused_pod
from tests.faults.steps import MAIN_LINE, step_of

from topomend.kube.client import NAMESPACES, PODS, RELAUNCHES
from topomend.kube.errors import APIError, Conflict, NotFound
from topomend.wire.group import FIT_GATE, RELAUNCH_FINALIZER, RELAUNCH_GATE

NAMESPACE = "default"
ROOM = "numa:4 cores:16 memory:8Gi"
"""numa-b: room for twenty of our pods."""

AT_ONCE, AT_ONCE_IN_CALM = 12, 4
"""Pods that are being relaunched at any time, under kills and before."""

P50, P99 = 0.3, 2.0
"""Seconds from a refusal until the replacement is let go, at most, where an operator is up."""

FLAGS = ("--relaunch-rate=100", "--relaunch-burst=200", "--max-attempts=100")
OF_RANDOM_KILLS = 1 / 3
LATEST, PATIENCE = 1.0, 6.0
"""Seconds after an operator's start: a random kill comes by then, and one at a write where no such write came."""

LOOK_SECONDS = 0.25
RECORDS_KEPT = 40
"""Records of pods that are done with, before the oldest are removed: each start of an operator lists all."""

END_PATIENCE = 180.0


@dataclass(frozen=True)
class Report:
    """What a soak found. Latencies are from a refusal until the replacement was let go, in seconds."""

    seed: int
    kills: dict[str, int]
    relaunched: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    left_over: tuple[str, ...]
    faults: tuple[str, ...]
    undisturbed: Sequence[float]
    across_restarts: Sequence[float]
    under_kills: Sequence[float]
    restarts: Sequence[float]
    converged_in: float
    took: float

    @property
    def passed(self) -> bool:
        """Whether nothing was lost, doubled, left behind or unexpected."""
        return not (self.lost or self.doubled or self.left_over or self.faults)

    def lines(self) -> list[str]:
        """The report for people."""
        by_place = ", ".join(f"{place} {count}" for place, count in sorted(self.kills.items()))
        return [
            f"seed                        {self.seed}",
            f"kills                       {sum(self.kills.values())}: {by_place}",
            f"pods relaunched             {self.relaunched}",
            f"lost                        {len(self.lost)} {' '.join(self.lost[:10])}",
            f"doubled                     {len(self.doubled)} {' '.join(self.doubled[:10])}",
            f"left over                   {len(self.left_over)} {' '.join(self.left_over[:10])}",
            f"unexpected                  {len(self.faults)} {' | '.join(self.faults[:3])}",
            f"refused to let go           {_quantiles(self.undisturbed)} while up (at most {P50:g} and {P99:g})",
            f"                            {_quantiles(self.across_restarts)} across one restart",
            f"  restarted and listed in   {_quantiles(self.restarts)}",
            f"                            {_quantiles(self.under_kills)} under kills",
            f"converged after the last    {self.converged_in:.1f} s",
            f"took                        {self.took:.0f} s, {sum(self.kills.values()) / self.took:.2f} kills/s",
        ]


@dataclass
class Feed:
    """Pods that come, are refused, and go when they run again.

    ``refused`` are the uids of each name that a record says were refused; ``done`` the names that ran again.
    """

    cluster: Cluster
    first: dict[str, str] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    refused: dict[str, set[str]] = field(default_factory=dict)
    at_once: int = AT_ONCE_IN_CALM
    number: int = 0

    def look(self) -> None:
        """Take away what runs again, and bring as many anew. Raises APIError."""
        client = self.cluster.client
        pods = {each["metadata"]["name"]: each for each in client.list(PODS, namespace=NAMESPACE).items}
        records = client.list(RELAUNCHES, namespace=NAMESPACE).items
        for record in records:
            of_pod = record["spec"]["pod"]
            self.refused.setdefault(of_pod["name"], set()).add(of_pod["uid"])
        open_names = {each["spec"]["pod"]["name"] for each in records if not _has_ended(each)}
        for name, uid in list(self.first.items()):
            found = pods.get(name)
            is_new = found is not None and found["metadata"]["uid"] != uid
            if found and is_new and found["status"].get("phase") == "Running" and name not in open_names:
                self.cluster.remove(found)
                del self.first[name]
                self.done.append(name)
        self._remove_old(records)
        while len(self.first) < self.at_once:
            self.number += 1
            made = client.create(PODS, refused_pod(f"soak-{self.number}"), NAMESPACE)
            self.first[made["metadata"]["name"]] = made["metadata"]["uid"]

    def flow(self, until: threading.Event) -> None:
        """Look again and again."""
        while not until.wait(LOOK_SECONDS):
            with suppress(APIError):
                self.look()

    def _remove_old(self, records: Iterable[dict[str, Any]]) -> None:
        over = set(self.done[:-RECORDS_KEPT])
        for record in records:
            if record["spec"]["pod"]["name"] in over and _has_ended(record):
                metadata = record["metadata"]
                with suppress(NotFound, Conflict):
                    self.cluster.client.delete(RELAUNCHES, metadata["name"], NAMESPACE, uid=metadata["uid"])


class Calm:
    """One operator that is killed a few times only, and started anew at once.

    ``restarts`` are the times from a kill until the cluster was listed again, ``ended`` when the last kill came.
    """

    def __init__(self, cluster: Cluster, folder: Path, feed: Feed) -> None:
        self._cluster, self._folder, self._feed = cluster, folder, feed
        self.logs: list[Path] = []
        self.restarts: list[tuple[float, float]] = []
        self.ended = math.inf

    def live(self, flow: threading.Thread, calm: int, restarts: int) -> None:
        """Begin the ``flow`` of pods; ``calm`` relaunches, then the restarts with some relaunches after each."""
        operator = self._start()
        time.sleep(2)  # the streams are up
        flow.start()
        self._wait_for(calm)
        for _ in range(restarts):
            down = time.time()
            operator.kill()
            operator = self._start()
            self.restarts.append((down, time.time()))
            self._wait_for(len(self._feed.done) + 2 * AT_ONCE_IN_CALM)
        self.ended = time.time()
        operator.kill()

    def _start(self) -> Operator:
        self.logs.append(self._folder / f"calm-{len(self.logs)}.log")
        operator = Operator(self._cluster.sandbox.kubeconfig, self.logs[-1], *FLAGS)
        wait_for("the operator to list", lambda: "the cluster is listed" in operator.text())
        return operator

    def _wait_for(self, relaunches: int) -> None:
        deadline = time.monotonic() + END_PATIENCE
        while len(self._feed.done) < relaunches and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)


class Killer:
    """One operator after another, each killed, until ``tally`` says that it is enough."""

    def __init__(self, cluster: Cluster, folder: Path, number: int, tally: "Tally") -> None:
        self._folder = folder / f"killer-{number}"
        self._folder.mkdir(parents=True)
        self._tally = tally
        self.proxy = Proxy(cluster.sandbox.kubeconfig, self._folder, ("events", "brakes", "steerings"))
        self.log = self._folder / "operator.log"

    def kill_on(self) -> None:
        """Until there were enough."""
        while (place := self._tally.next_place()) is not None:
            self._live(place)
        self.proxy.close()

    def _live(self, place: "Place") -> None:
        self.proxy.forget()
        killed = threading.Event()
        operator = Life(self.proxy.kubeconfig, self.log, FLAGS)

        def kill(write: Write, moment: Moment) -> None:
            if place.moment is moment and step_of(write) == place.step and not killed.is_set():
                operator.kill()
                killed.set()
                self._tally.killed(f"{moment.name.lower()} {place.step}")
            if killed.is_set() and moment is Moment.BEFORE:
                raise HangUp("the client is dead")

        self.proxy.fault = kill
        if not killed.wait(place.seconds):
            operator.kill()
            killed.set()
            self._tally.killed("at a random time")
        code = operator.wait(60)
        if code != -signal.SIGKILL:
            self._tally.faults.append(f"an operator ended by itself with {code}")


@dataclass(frozen=True)
class Place:
    """Where an operator is to be killed: at a step's moment, or after so many seconds at the latest."""

    seconds: float
    step: str = ""
    moment: Moment | None = None


class Tally:
    """How many kills there were, and where the next ones are to be."""

    def __init__(self, kills: int, until: float, seed: int) -> None:
        self._most, self._until, self._random = kills, until, random.Random(seed)
        self._places = list(product(MAIN_LINE, Moment))
        self._lock = threading.Lock()
        self._given = 0
        self.kills: dict[str, int] = {}
        self.faults: list[str] = []

    def next_place(self) -> Place | None:
        """None once there were enough, or it is late enough."""
        with self._lock:
            if self._given == self._most or time.monotonic() > self._until:
                return None
            self._given += 1
            if self._random.random() < OF_RANDOM_KILLS:
                return Place(self._random.uniform(0.0, LATEST))
            step, moment = self._places[self._given % len(self._places)]
            return Place(PATIENCE, step, moment)

    def killed(self, where: str) -> None:
        """One was."""
        with self._lock:
            self.kills[where] = self.kills.get(where, 0) + 1

    @property
    def total(self) -> int:
        """All kills so far."""
        with self._lock:
            return sum(self.kills.values())


def soak(
    kills: int,
    seed: int,
    folder: Path,
    *,
    operators: int = 2,
    calm: int = 40,
    restarts: int = 5,
    seconds: float = math.inf,
) -> Report:
    """``kills`` kills of ``operators`` operators, or as many as ``seconds`` allow, after ``calm`` relaunches of one
    that is let live and ``restarts`` of it."""
    begun = time.monotonic()
    with lopsided_cluster(ROOM) as cluster:
        own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "topomend-system"}}
        cluster.client.create(NAMESPACES, own)
        feed, ended = Feed(cluster), threading.Event()
        flow = threading.Thread(target=feed.flow, args=(ended,), name="feed", daemon=True)
        calm_life = Calm(cluster, folder, feed)
        calm_life.live(flow, calm, restarts)
        feed.at_once = AT_ONCE
        tally = Tally(kills, begun + seconds, seed)
        killers = [Killer(cluster, folder, number, tally) for number in range(operators)]
        with ThreadPoolExecutor(operators) as pool:
            killing = [pool.submit(killer.kill_on) for killer in killers]
            _tell_progress(killing, tally, kills, feed)
        for each in killing:
            each.result()
        converged_in = _converge(cluster, folder, feed)
        ended.set()
        flow.join()
        return _judge(
            cluster,
            feed=feed,
            tally=tally,
            seed=seed,
            calm=calm_life,
            logs=[*calm_life.logs, *(each.log for each in killers), folder / "last.log"],
            converged_in=converged_in,
            took=time.monotonic() - begun,
        )


def _tell_progress(killing: "Sequence[Future[None]]", tally: Tally, kills: int, feed: Feed) -> None:
    step = max(kills // 10, 1)
    told = 0
    while wait(killing, 0.5).not_done:
        if tally.total // step > told:
            told = tally.total // step
            print(f"{tally.total} kills, {len(feed.done)} pods relaunched", flush=True)


def _converge(cluster: Cluster, folder: Path, feed: Feed) -> float:
    """Seconds until every pod runs again, by one operator that is let live."""
    feed.at_once = 0
    operator = Operator(cluster.sandbox.kubeconfig, folder / "last.log", *FLAGS)
    wait_for("the last operator to watch", lambda: "the cluster is listed" in operator.text(), END_PATIENCE)
    begun = time.monotonic()
    while feed.first and time.monotonic() - begun < END_PATIENCE:
        time.sleep(LOOK_SECONDS)
    converged_in = time.monotonic() - begun
    time.sleep(3)  # what is left over has its time to be removed
    operator.terminate()
    return converged_in


def _judge(
    cluster: Cluster,
    *,
    feed: Feed,
    tally: Tally,
    seed: int,
    calm: Calm,
    logs: Sequence[Path],
    converged_in: float,
    took: float,
) -> Report:
    assert cluster.sandbox.audit_log
    histories = judge.histories(cluster.sandbox.audit_log)
    lost, doubled = [], []
    undisturbed, across_restarts, under_kills = list[float](), list[float](), list[float]()
    for name in [*feed.done, *feed.first]:
        history = histories[(NAMESPACE, name)]
        ran = set(history.bound) - feed.refused.get(name, set())
        if not ran or name in feed.first:
            lost.append(name)
        if len(ran) > 1:
            doubled.append(name)
        if history.relaunch is None:
            continue
        refused, ungate = history.relaunch
        latencies = under_kills if ungate > calm.ended else undisturbed
        if any(refused < up and down < ungate for down, up in calm.restarts):
            latencies = across_restarts
        latencies.append(ungate - refused)
    return Report(
        seed=seed,
        kills=tally.kills,
        relaunched=len(feed.done),
        lost=tuple(lost),
        doubled=tuple(doubled),
        left_over=_left_over(cluster),
        faults=(*tally.faults, *(line for log in logs for line in log.read_text().splitlines() if _is_fault(line))),
        undisturbed=undisturbed,
        across_restarts=across_restarts,
        under_kills=under_kills,
        restarts=[up - down for down, up in calm.restarts],
        converged_in=converged_in,
        took=took,
    )


def _left_over(cluster: Cluster) -> tuple[str, ...]:
    """Pods that still are there, with what is wrong with them, and records that have not ended."""
    found = []
    for pod in cluster.client.list(PODS, namespace=NAMESPACE).items:
        gates = {each["name"] for each in pod["spec"].get("schedulingGates", ())} & {RELAUNCH_GATE, FIT_GATE}
        claimed = RELAUNCH_FINALIZER in pod["metadata"].get("finalizers", ())
        why = "gated" if gates else "claimed" if claimed else pod["status"].get("phase", "")
        found.append(f"{pod['metadata']['name']} ({why})")
    records = cluster.client.list(RELAUNCHES, namespace=NAMESPACE).items
    found += [f"{each['metadata']['name']} ({each['status'].get('step')})" for each in records if not _has_ended(each)]
    return tuple(found)


def _has_ended(record: dict[str, Any]) -> bool:
    return record.get("status", {}).get("step") in ("Launched", "Cancelled", "Superseded")


def _is_fault(line: str) -> bool:
    return "Traceback" in line or "unexpected" in line


def _quantiles(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    ordered = sorted(seconds)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99))
    return f"p50 {p50:.2f} s, p99 {p99:.2f} s of {len(ordered)}"
