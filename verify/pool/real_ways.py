"""The ways that a scheduler of today has, on real kubelets: the same pods, with time that passes faster.

Each way has a cluster of its own, which is empty at its start. Agents run beside the kubelets in every one, to tell
what is free; an operator runs only where it steers. Elsewhere a stand-in for their owners creates refused pods anew.
"""

import heapq
import json
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from queue import Empty
from statistics import median
from typing import Any

from tests.operator_process import Operator
from tests.processes import end
from verify.contended.arrivals import Arrival
from verify.contended.hold import is_gated_at_birth
from verify.contended.outcome import Outcome, Stay
from verify.contended.run import agents_on, wait, wait_for_account, webhook_flags
from verify.pool.by_totals import RECREATED
from verify.pool.figures import Watched
from verify.pool.observed import Clock, Observed
from verify.pool.scenario import GPUS_A_MACHINE, LONGEST, MEAN_SECONDS, gpus_of, machines, runner
from verify.pool.ways import ONE_POOL, STEERED, fleets

from topomend.decide.queue import order
from topomend.kube.client import Client, connect
from topomend.kube.errors import AlreadyExists, NotFound
from topomend.kube.resources import NAMESPACES, NODE_TOPOLOGIES, NODES, PODS, Resource
from topomend.reconcile.gated import reservation_turns
from topomend.runtime.backoff import Exponential
from topomend.sandbox import NodeSpec, Sandbox
from topomend.sandbox.layout import CONTROL_PLANE_LINK

NAMESPACE = "pool"

FLEET_LABEL = "fleet"

PACKING = "packing-scheduler"
"""The name of the scheduler whose profile has the strategy MostAllocated."""

TICK_SECONDS = 0.02
"""How often, in real seconds, it is looked whether a pod is due."""

QUIET = LONGEST * MEAN_SECONDS + reservation_turns.TURN_SECONDS
"""A run ends after so many virtual seconds without a change: no pod runs for longer, and a turn is over by then."""

TRIED = 5
"""Pods whose start is timed on the empty cluster."""


@dataclass(frozen=True)
class Setting:
    """What a way's cluster is. Pods of 8 GPUs have the nodes ``wide`` of their own, if there are any."""

    machines: Sequence[NodeSpec] = field(default_factory=lambda: machines(ONE_POOL))
    wide: Collection[str] = ()
    packs: bool = False
    steers: bool = False


def settings() -> Mapping[str, Setting]:
    """The ways by their names in virtual time."""
    narrow, wide = fleets()
    return {
        "plain scheduler": Setting(),
        "MostAllocated": Setting(packs=True),
        "two fleets": Setting([*narrow, *wide], wide={spec.name for spec in wide}, packs=True),
        STEERED: Setting(steers=True),
    }


@dataclass(frozen=True)
class Ran:
    """A way's run. ``starts`` is the median time from creation to running on the empty cluster, in virtual seconds."""

    outcome: Outcome
    watched: Watched
    refusals: Mapping[str, int]
    starts: float


def run(setting: Setting, arrivals: Sequence[Arrival], speed: float, folder: Path) -> Ran:
    """Create the pods as they arrive, and wait until all have run. Logs go to ``folder``. Raises DidNotStart."""
    with ExitStack() as stack:
        sandbox = stack.enter_context(Sandbox.up(setting.machines))
        client = connect(str(sandbox.kubeconfig))
        stack.callback(client.close)
        stack.enter_context(agents_on(sandbox, client, setting.machines, folder))
        for spec in setting.machines:
            fleet = _fleet(setting, is_wide=spec.name in setting.wide)
            _patiently(lambda: client.merge(NODES, spec.name, {"metadata": {"labels": {FLEET_LABEL: fleet}}}))  # noqa: B023
        labels = {"topomend.io/steer": "enabled"} if setting.steers else {}
        metadata = {"name": NAMESPACE, "labels": labels}
        _create(client, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        wait_for_account(client, NAMESPACE)
        if setting.packs:
            stack.enter_context(packing_scheduler(sandbox, folder))
        if setting.steers:
            stack.enter_context(operator_on(sandbox, client, speed, folder))
        starts = speed * _start_seconds(client, setting)
        return _play(client, setting, arrivals, speed, starts)


@contextmanager
def packing_scheduler(sandbox: Sandbox, folder: Path) -> Iterator[None]:
    """A second kube-scheduler of the cluster's release, whose profile packs."""
    configuration, log = folder / "scheduler.json", folder / "scheduler.log"
    configuration.write_text(json.dumps(packing_configuration(sandbox.kubeconfig)))
    command = [
        str(sandbox.folder / CONTROL_PLANE_LINK),
        "kube-scheduler",
        f"--config={configuration}",
        "--secure-port=0",
    ]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    try:
        yield
    finally:
        end(process)


def packing_configuration(kubeconfig: Path) -> Mapping[str, Any]:
    """The default profile but for its strategy, which it has for the default resources."""
    strategy = {"type": "MostAllocated", "resources": [{"name": name, "weight": 1} for name in ("cpu", "memory")]}
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 300, "burst": 600},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": PACKING, "pluginConfig": [fit]}],
    }


@contextmanager
def operator_on(sandbox: Sandbox, client: Client, speed: float, folder: Path) -> Iterator[None]:
    """The operator, once it gates new pods."""
    operator = Operator(
        sandbox.kubeconfig, folder / "operator.log", *webhook_flags(), constants=faster_constants(speed)
    )
    try:
        operator.wait_until_it_watches()
        wait("new pods to be gated", lambda: is_gated_at_birth(client, NAMESPACE))
        yield
    finally:
        operator.terminate()


def faster_constants(speed: float) -> Mapping[str, object]:
    """How long pods and namespaces have turns and rests, which is as long for the pods as at a speed of 1."""
    turns, rests = "reconcile.gated.reservation_turns", reservation_turns.RESTS
    return {
        "decide.queue.order.PATIENCE_SECONDS": order.PATIENCE_SECONDS / speed,
        f"{turns}.TURN_SECONDS": reservation_turns.TURN_SECONDS / speed,
        f"{turns}.RESTS": Exponential(rests.first / speed, rests.longest / speed, rests.jitter),
        f"{turns}.NAMESPACE_REST_SECONDS": reservation_turns.NAMESPACE_REST_SECONDS / speed,
        f"{turns}.RETRY_SECONDS": reservation_turns.RETRY_SECONDS / speed,
    }


def manifest(arrival: Arrival, setting: Setting, speed: float) -> dict[str, Any]:
    """The arrival's pod, which ends by itself after its seconds: ``speed`` of them pass in a real one."""
    ending = {"image": "sandbox/sleep", "command": ["sleep", f"{arrival.seconds / speed:.3f}"]}
    fleet = _fleet(setting, is_wide=gpus_of(arrival) == GPUS_A_MACHINE)
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {FLEET_LABEL: fleet},
        "containers": [arrival.manifest["spec"]["containers"][0] | ending],
    }
    return {**arrival.manifest, "spec": spec | ({"schedulerName": PACKING} if setting.packs else {})}


def _fleet(setting: Setting, *, is_wide: bool) -> str:
    return "wide" if setting.wide and is_wide else "all"


def _start_seconds(client: Client, setting: Setting) -> float:
    """The median time from creation to running, in real seconds. The cluster is empty again afterwards."""
    taken, names = [], [f"start-{number}" for number in range(TRIED)]
    for name in names:
        began = time.monotonic()
        _create(client, PODS, manifest(Arrival(name, 0.0, 1, 22, runner(name, 1)), setting, 1.0))
        wait(f"{name} to run", lambda: _phase(client, name) in ("Running", "Succeeded"))  # noqa: B023
        taken.append(time.monotonic() - began)
    wait("them to end", lambda: all(_phase(client, name) == "Succeeded" for name in names))
    wait("the agents to say so", lambda: not _published(client) & set(names))
    return median(taken)


def _phase(client: Client, name: str) -> str:
    return str(client.get(PODS, name, NAMESPACE)["status"].get("phase", ""))


def _published(client: Client) -> set[str]:
    """The names of all pods that hold something, as the agents tell it."""
    statuses = [content.get("status", {}) for content in client.list(NODE_TOPOLOGIES).items]
    return {pod["name"] for status in statuses for pod in status.get("pods", ())}


def _play(client: Client, setting: Setting, arrivals: Sequence[Arrival], speed: float, starts: float) -> Ran:
    stays = {arrival.name: Stay(arrival, arrival.at) for arrival in arrivals}
    watched, now, order_of_due = Watched(setting.wide), Clock(speed), count()
    observed = Observed(stays, watched, now)
    due = [(arrival.at, next(order_of_due), manifest(arrival, setting, speed)) for arrival in arrivals]
    came = set[str]()
    with observed.following(client, NAMESPACE):
        while any(stay.ran is None for stay in stays.values()) and (due or now() < observed.last_change + QUIET):
            while due and due[0][0] <= now():
                _, _, content = heapq.heappop(due)
                name = content["metadata"]["name"]
                if name not in came:
                    came.add(name)
                    stays[name].came = now()
                _create(client, PODS, content)
            for refused in _taken(observed) if not setting.steers else ():
                _remove(client, refused)
                again = manifest(stays[refused["metadata"]["name"]].arrival, setting, speed)
                heapq.heappush(due, (now() + RECREATED[0], next(order_of_due), again))
            time.sleep(TICK_SECONDS)
    return Ran(Outcome("real kubelets", list(stays.values())), watched, dict(observed.refusals), starts)


def _taken(observed: Observed) -> Iterator[dict[str, Any]]:
    """The refused pods that nobody has taken yet."""
    with suppress(Empty):
        while True:
            yield observed.to_replace.get_nowait()


def _create(client: Client, resource: Resource, content: dict[str, Any]) -> None:
    """Create it; where an answer was lost, it may be there already."""

    def create() -> None:
        with suppress(AlreadyExists):
            client.create(resource, content, NAMESPACE if resource.namespaced else "")

    _patiently(create)


def _remove(client: Client, content: dict[str, Any]) -> None:
    metadata = content["metadata"]

    def remove() -> None:
        with suppress(NotFound):
            client.delete(PODS, metadata["name"], NAMESPACE, uid=metadata["uid"])

    _patiently(remove)


def _patiently(act: Callable[[], object]) -> None:
    """Act; where the API server of a busy machine does not answer in time, do so again."""

    def has_acted() -> bool:
        act()
        return True

    wait("the API server to answer", has_acted)
