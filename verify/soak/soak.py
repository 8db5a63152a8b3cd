"""Kills the real operator again and again while pods are refused and relaunched; then the audit log decides.

First one operator runs undisturbed, which shows how long a relaunch takes. Next it is killed and restarted a few times,
as a kubelet would, which shows what a restart adds. Then several operators run side by side, each behind its own proxy,
and each is killed with SIGKILL: in turn at every write of a relaunch (before the proxy forwards it, before its answer,
after it), and at random times, even during its start. New pods keep arriving. A real kubelet refuses each, and once its
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

from tests import audit_log
from tests.clusters import Cluster
from tests.faults.proxy import HangUp, Moment, Proxy, Write
from tests.faults.steps import MAIN_LINE, step_of
from tests.operator_process import Operator, OperatorProcess
from tests.refusing_node import refused_pod, refusing_cluster
from tests.waiting import TimedOut, eventually

from topomend.kube.errors import AlreadyExists, APIError, Conflict, NotFound
from topomend.kube.resources import NAMESPACES, PODS, RELAUNCHES
from topomend.wire.group import FIT_GATE, RELAUNCH_FINALIZER, RELAUNCH_GATE

NAMESPACE = "default"
SHAPE_B = "numa:4 cores:16 memory:8Gi"
"""The machine numa-b: twenty of the pods fit."""

RELAUNCHING_PODS, UNDISTURBED_PODS = 12, 4
"""How many pods are being relaunched at any time, under kills and before."""

P50, P99 = 0.3, 2.0
"""The most seconds from a refusal to the replacement's ungating, while an operator runs."""

FLAGS = ("--relaunch-rate=100", "--relaunch-burst=200", "--max-attempts=100")
RANDOM_KILLS = 1 / 3
"""The part of all kills that come at a random time."""

RANDOM_KILL_SECONDS, WRITE_SECONDS = 1.0, 6.0
"""After an operator's start: a random kill comes within the first, and a kill at a write by the second even if the
operator has not sent that write."""

POLL_SECONDS = 0.25
MAX_RECORDS = 40
"""How many ended records stay: each start of an operator lists all records."""

CONVERGE_SECONDS = 180.0


@dataclass(frozen=True)
class Report:
    """The result of a soak. Latencies are seconds from a refusal to the replacement's ungating."""

    seed: int
    kills: dict[str, int]
    relaunched: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    leftovers: tuple[str, ...]
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
        return not (self.lost or self.doubled or self.leftovers or self.faults)

    def lines(self) -> list[str]:
        """The report as text."""
        by_place = ", ".join(f"{place} {count}" for place, count in sorted(self.kills.items()))
        return [
            f"seed                        {self.seed}",
            f"kills                       {sum(self.kills.values())}: {by_place}",
            f"pods relaunched             {self.relaunched}",
            f"lost                        {len(self.lost)} {' '.join(self.lost[:10])}",
            f"doubled                     {len(self.doubled)} {' '.join(self.doubled[:10])}",
            f"left over                   {len(self.leftovers)} {' '.join(self.leftovers[:10])}",
            f"unexpected                  {len(self.faults)} {' | '.join(self.faults[:3])}",
            f"refused to ungated          {_quantiles(self.undisturbed)} while up (limits {P50:g} and {P99:g})",
            f"                            {_quantiles(self.across_restarts)} across one restart",
            f"  restarted and listed in   {_quantiles(self.restarts)}",
            f"                            {_quantiles(self.under_kills)} under kills",
            f"converged after last kill   {self.converged_in:.1f} s",
            f"took                        {self.took:.0f} s, {sum(self.kills.values()) / self.took:.2f} kills/s",
        ]


@dataclass
class Feed:
    """Creates pods that are refused, and removes them once they have been relaunched and run.

    ``uids`` are the first pods of the names being relaunched, empty where the answer to the creation was lost, and
    ``refused`` the uids of each name that a record calls refused. ``removed`` are the names whose pods ran and were
    removed, perhaps without an answer, and ``done`` those of which that is known. ``size`` is how many are being
    relaunched at any time.
    """

    cluster: Cluster
    uids: dict[str, str] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    refused: dict[str, set[str]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    size: int = UNDISTURBED_PODS
    number: int = 0

    def refill(self) -> None:
        """Remove relaunched pods that run, and create as many new ones. Raises APIError."""
        client = self.cluster.client
        pods = {pod["metadata"]["name"]: pod for pod in client.list(PODS, namespace=NAMESPACE).items}
        records = client.list(RELAUNCHES, namespace=NAMESPACE).items
        for record in records:
            of_pod = record["spec"]["pod"]
            self.refused.setdefault(of_pod["name"], set()).add(of_pod["uid"])
        open_names = {record["spec"]["pod"]["name"] for record in records if not _has_ended(record)}
        for name, uid in list(self.uids.items()):
            pod = pods.get(name)
            is_new = pod is not None and pod["metadata"]["uid"] != uid
            if pod and is_new and pod["status"].get("phase") == "Running" and name not in open_names:
                self.removed.add(name)
                self.cluster.remove(pod)
                pod = None
            if pod is None and name in self.removed:
                del self.uids[name]
                self.done.append(name)
        self._remove_old(records)
        while len(self.uids) < self.size:
            name = f"soak-{self.number + 1}"
            try:
                self.uids[name] = client.create(PODS, refused_pod(name), NAMESPACE)["metadata"]["uid"]
            except AlreadyExists:  # by a request whose answer was lost; whatever its uid, that pod never runs
                self.uids[name] = ""
            self.number += 1

    def run(self, until: threading.Event) -> None:
        """Refill until the event is set."""
        while not until.wait(POLL_SECONDS):
            with suppress(APIError):
                self.refill()

    def _remove_old(self, records: Iterable[dict[str, Any]]) -> None:
        old_names = set(self.done[:-MAX_RECORDS])
        for record in records:
            if record["spec"]["pod"]["name"] in old_names and _has_ended(record):
                metadata = record["metadata"]
                with suppress(NotFound, Conflict):
                    self.cluster.client.delete(RELAUNCHES, metadata["name"], NAMESPACE, uid=metadata["uid"])


class Undisturbed:
    """One operator that is killed only a few times and restarted at once.

    ``restarts`` are pairs of times: of a kill, and of the next operator's first list. ``ended`` is when this phase did.
    """

    def __init__(self, cluster: Cluster, folder: Path, feed: Feed) -> None:
        self._cluster, self._folder, self._feed = cluster, folder, feed
        self.logs: list[Path] = []
        self.restarts: list[tuple[float, float]] = []
        self.ended = math.inf

    def run(self, feeding: threading.Thread, relaunches: int, restarts: int) -> None:
        """Start feeding pods, wait for the relaunches, then restart, with some relaunches after each restart."""
        operator = self._start()
        operator.wait_until_it_watches()
        feeding.start()
        self._wait_for(relaunches)
        for _ in range(restarts):
            down = time.time()
            operator.kill()
            operator = self._start()
            self.restarts.append((down, time.time()))
            self._wait_for(len(self._feed.done) + 2 * UNDISTURBED_PODS)
        self.ended = time.time()
        operator.kill()

    def _start(self) -> Operator:
        self.logs.append(self._folder / f"undisturbed-{len(self.logs)}.log")
        operator = Operator(self._cluster.sandbox.kubeconfig, self.logs[-1], *FLAGS)
        eventually("the operator to list", lambda: "the cluster is listed" in operator.text())
        return operator

    def _wait_for(self, relaunches: int) -> None:
        deadline = time.monotonic() + CONVERGE_SECONDS
        while len(self._feed.done) < relaunches and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


class Killer:
    """Starts one operator after another and kills each, until the tally is full."""

    def __init__(self, cluster: Cluster, folder: Path, number: int, tally: "Tally") -> None:
        self._folder = folder / f"killer-{number}"
        self._folder.mkdir(parents=True)
        self._tally = tally
        self.proxy = Proxy(cluster.sandbox.kubeconfig, self._folder, ("events", "brakes", "steerings"))
        self.log = self._folder / "operator.log"

    def run(self) -> None:
        """Start and kill operators until the tally gives no further place."""
        while (place := self._tally.next_place()) is not None:
            self._run_one(place)
        self.proxy.close()

    def _run_one(self, place: "Place") -> None:
        self.proxy.forget()
        killed = threading.Event()
        operator = OperatorProcess(self.proxy.kubeconfig, self.log, FLAGS)

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
            self._tally.faults.append(f"an operator exited on its own with {code}")


@dataclass(frozen=True)
class Place:
    """Where to kill an operator: at a moment of a write, or after so many seconds at the latest."""

    seconds: float
    step: str = ""
    moment: Moment | None = None


class Tally:
    """Counts the kills and chooses the places of the next ones."""

    def __init__(self, kills: int, until: float, seed: int) -> None:
        self._limit, self._until, self._random = kills, until, random.Random(seed)
        self._places = list(product(MAIN_LINE, Moment))
        self._lock = threading.Lock()
        self._chosen = 0
        self.kills: dict[str, int] = {}
        self.faults: list[str] = []

    def next_place(self) -> Place | None:
        """The next place; None once the kills are used up or the time is over."""
        with self._lock:
            if self._chosen == self._limit or time.monotonic() > self._until:
                return None
            self._chosen += 1
            if self._random.random() < RANDOM_KILLS:
                return Place(self._random.uniform(0.0, RANDOM_KILL_SECONDS))
            step, moment = self._places[self._chosen % len(self._places)]
            return Place(WRITE_SECONDS, step, moment)

    def killed(self, where: str) -> None:
        """Count a kill."""
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
    relaunches: int = 40,
    restarts: int = 5,
    seconds: float = math.inf,
) -> Report:
    """Run both phases: one operator for ``relaunches`` relaunches and ``restarts`` restarts, then the kills.

    ``operators`` run side by side during the kills. After ``seconds`` the killing stops early. Logs go to ``folder``.
    """
    begun = time.monotonic()
    with refusing_cluster(SHAPE_B) as cluster:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "topomend-system"}}
        cluster.client.create(NAMESPACES, namespace)
        feed, ended = Feed(cluster), threading.Event()
        feeding = threading.Thread(target=feed.run, args=(ended,), name="feed", daemon=True)
        undisturbed = Undisturbed(cluster, folder, feed)
        undisturbed.run(feeding, relaunches, restarts)
        feed.size = RELAUNCHING_PODS
        tally = Tally(kills, begun + seconds, seed)
        killers = [Killer(cluster, folder, number, tally) for number in range(operators)]
        with ThreadPoolExecutor(operators) as pool:
            killing = [pool.submit(killer.run) for killer in killers]
            _print_progress(killing, tally, kills, feed)
        for future in killing:
            future.result()
        converged_in = _converge(cluster, folder, feed)
        ended.set()
        feeding.join()
        return _judge(
            cluster,
            feed=feed,
            tally=tally,
            seed=seed,
            undisturbed=undisturbed,
            logs=[*undisturbed.logs, *(killer.log for killer in killers), folder / "last.log"],
            converged_in=converged_in,
            took=time.monotonic() - begun,
        )


def _print_progress(killing: "Sequence[Future[None]]", tally: Tally, kills: int, feed: Feed) -> None:
    step = max(kills // 10, 1)
    printed = 0
    while wait(killing, 0.5).not_done:
        if tally.total // step > printed:
            printed = tally.total // step
            print(f"{tally.total} kills, {len(feed.done)} pods relaunched", flush=True)


def _converge(cluster: Cluster, folder: Path, feed: Feed) -> float:
    """Run one more operator; the seconds until every pod runs."""
    feed.size = 0
    operator = Operator(cluster.sandbox.kubeconfig, folder / "last.log", *FLAGS)
    eventually("the last operator to list", lambda: "the cluster is listed" in operator.text(), CONVERGE_SECONDS)
    begun = time.monotonic()
    while feed.uids and time.monotonic() - begun < CONVERGE_SECONDS:
        time.sleep(POLL_SECONDS)
    converged_in = time.monotonic() - begun
    with suppress(TimedOut):  # what the operator leaves is reported
        eventually("gates and finalizers to be removed", lambda: not _leftovers(cluster))
    operator.terminate()
    return converged_in


def _judge(
    cluster: Cluster,
    *,
    feed: Feed,
    tally: Tally,
    seed: int,
    undisturbed: Undisturbed,
    logs: Sequence[Path],
    converged_in: float,
    took: float,
) -> Report:
    assert cluster.sandbox.audit_log
    histories = audit_log.histories(cluster.sandbox.audit_log)
    lost, doubled = [], []
    without_kill, across_restarts, under_kills = list[float](), list[float](), list[float]()
    for name in [*feed.done, *feed.uids]:
        history = histories[(NAMESPACE, name)]
        ran = set(history.bound) - feed.refused.get(name, set())
        if not ran or name in feed.uids:
            lost.append(name)
        if len(ran) > 1:
            doubled.append(name)
        if history.relaunch is None:
            continue
        refused, ungated = history.relaunch
        latencies = under_kills if ungated > undisturbed.ended else without_kill
        if any(refused < up and down < ungated for down, up in undisturbed.restarts):
            latencies = across_restarts
        latencies.append(ungated - refused)
    return Report(
        seed=seed,
        kills=tally.kills,
        relaunched=len(feed.done),
        lost=tuple(lost),
        doubled=tuple(doubled),
        leftovers=_leftovers(cluster),
        faults=(*tally.faults, *(line for log in logs for line in log.read_text().splitlines() if _is_fault(line))),
        undisturbed=without_kill,
        across_restarts=across_restarts,
        under_kills=under_kills,
        restarts=[up - down for down, up in undisturbed.restarts],
        converged_in=converged_in,
        took=took,
    )


def _leftovers(cluster: Cluster) -> tuple[str, ...]:
    """The pods that remain, each with its state, and the records that have not ended."""
    leftovers = []
    for pod in cluster.client.list(PODS, namespace=NAMESPACE).items:
        gates = {gate["name"] for gate in pod["spec"].get("schedulingGates", ())} & {RELAUNCH_GATE, FIT_GATE}
        claimed = RELAUNCH_FINALIZER in pod["metadata"].get("finalizers", ())
        why = "gated" if gates else "claimed" if claimed else pod["status"].get("phase", "")
        leftovers.append(f"{pod['metadata']['name']} ({why})")
    records = cluster.client.list(RELAUNCHES, namespace=NAMESPACE).items
    leftovers += [
        f"{record['metadata']['name']} ({record['status'].get('step')})" for record in records if not _has_ended(record)
    ]
    return tuple(leftovers)


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
