"""The real operator has the memory of its pod, whatever the pods, records and publications of others are like.

It runs in a cgroup with the limit of ``deploy/base/operator.yaml``: where it needs more, the kernel kills it. Each test
also has pods of another namespace ungated meanwhile, which takes hardly longer than where nothing else is. HUGE,
RECORDS, PUBLICATIONS and GATED in the environment are how many there are of each; ``make attacks`` sets the largest
numbers and prints the figures of ``docs/contribute/measurements.md``.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tests.builders import node_state, node_topology_object
from tests.clusters import NODE_B, ROOT, Cluster, pod
from tests.operator_process import Operator
from tests.waiting import awake, eventually, stretched
from verify.e2e.containers.cgroups import CgroupsUnavailable, GroupTree

from topomend.kube.errors import AlreadyExists, Invalid, NotFound
from topomend.kube.resources import NAMESPACES, NODE_TOPOLOGIES, PODS, RELAUNCHES, Resource
from topomend.wire.group import API_VERSION, FIT_GATE, RELAUNCH
from topomend.wire.pods.scheduling import MAX_AFFINITY_VALUES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

LIMIT = 512 << 20
HUGE = int(os.environ.get("HUGE", "60"))
RECORDS = int(os.environ.get("RECORDS", "200"))
PUBLICATIONS = int(os.environ.get("PUBLICATIONS", "6"))
GATED = int(os.environ.get("GATED", "300"))
NEVER_FITS = 5
"""CPUs that no NUMA node has."""
TENANT = "tenant"
AT_ONCE = 4
IN_TIME = 30.0
"""Seconds after which another namespace's pod that is still gated counts as forgotten."""

LATE_SECONDS = 1.0
"""By how much a tenant may delay another's pods."""

SILENT_SECONDS = 0.5
"""A request that the API server answers later says something about the API server only."""

FILLERS = ("fills-0", "fills-1")
WAITS = 3
"""Pods of two CPUs on numa-b, and as many CPUs as it has on one NUMA node only once one of them has ended."""

TRIED = 5
"""How many pods of the other namespace are ungated at a time, one after another."""

SAMPLE_SECONDS = 0.1

ENDED_LONG_AGO = {
    "type": "Succeeded",
    "status": "False",
    "reason": "Cancelled",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}

RELIST = int(os.environ.get("RELIST", "5"))
"""Seconds after which the operator lists everything again; in an installation they are 300."""

_numbers = count()


class Limited:
    """The operator in a cgroup of its own, on a cluster with a tenant."""

    def __init__(self, cluster: Cluster, group: GroupTree, folder: Path) -> None:
        self.cluster, self.group, self._folder = cluster, group, folder
        self.operator: Operator | None = None
        self._most, self._ending = 0, threading.Event()
        self._watching = threading.Thread(target=self._watch_memory)
        self._watching.start()

    def _watch_memory(self) -> None:
        while not self._ending.wait(SAMPLE_SECONDS):
            self._most = max(self._most, self.group.resident())

    def start(self) -> None:
        """Start a process that shares no page with any other."""
        operator = Operator(
            self.cluster.sandbox.kubeconfig,
            self._folder / "operator.log",
            f"--relist-seconds={RELIST}",
            module="topomend.cli",
        )
        assert hasattr(operator.process, "pid")
        self.group.add_to_memory(operator.process.pid)
        self.operator = operator
        eventually("the operator to know the cluster or to end", lambda: self._knows() or self._ended(), 120)

    def _knows(self) -> bool:
        return all(said in self.text() for said in ("the cluster is listed", "every kind is watched"))

    def delays(self, beside: str) -> list[float]:
        """For how long pods of another namespace stay gated, in seconds; ``beside`` is for the output."""
        delays = [self._delay() for _ in range(TRIED)]
        self._say(beside, "ungated after", delays)
        return delays

    def delays_of_waiting(self, beside: str) -> list[float]:
        """For how long such pods stay gated once the pod has ended that they wait for, in seconds."""
        for name in FILLERS:
            self.cluster.occupy(NODE_B, name, 2)
        delays = [self._delay_of_waiting() for _ in range(TRIED)]
        for name in FILLERS:
            self.cluster.vacate(NODE_B, name)
        self._say(beside, "waiting for room, ungated after", delays)
        return delays

    def _say(self, beside: str, measure: str, delays: list[float]) -> None:
        shown = ", ".join(f"{delay:.2f}" for delay in delays)
        print(f"\nbeside {beside}: {measure} {shown} s, at most {self._most >> 20} MiB so far")

    def _delay(self) -> float:
        name = self._create(1)
        delay = self._ungated_after(name)
        self.cluster.remove(self.cluster.get(name))
        return delay

    def _delay_of_waiting(self) -> float:
        name = self._create(WAITS, schedulerName="nobody")  # a kubelet would give its CPUs back late
        eventually("the operator's word", lambda: f"UngateDeferred default/{name}" in self.text() or self._ended())
        self.cluster.vacate(NODE_B, FILLERS[0])
        delay = self._ungated_after(name)
        self.cluster.remove(self.cluster.get(name))
        self.cluster.occupy(NODE_B, FILLERS[0], 2)
        return delay

    def _create(self, cpus: int, **spec: str) -> str:
        name = f"other-{next(_numbers)}"
        content = pod(name, cpus)
        content["spec"] |= spec | {"schedulingGates": [{"name": FIT_GATE}]}
        self.cluster.create(content)
        return name

    def _ungated_after(self, name: str) -> float:
        """Without the seconds in which the API server, whose disk may be busy, answers nobody."""
        begun, silent = awake(), 0.0

        def is_ungated_or_ended() -> bool:
            nonlocal silent
            asked = awake()
            is_ungated = self._is_ungated(name)
            answered_after = awake() - asked
            silent += answered_after if answered_after > SILENT_SECONDS else 0.0
            return is_ungated or self._ended()

        eventually("another namespace's pod to be ungated", is_ungated_or_ended, IN_TIME, poll=0.01)
        delay = awake() - begun - silent
        if silent:
            print(f"\nthe API server did not answer for {silent:.2f} s of {delay + silent:.2f} s")
        assert (self.group.killed_for_memory(), self._ended()) == (0, False), self.text()[-2000:]
        return delay

    def wait_for_relist(self) -> None:
        """Wait until the operator has listed everything again: last of all it removes records that ended long ago."""
        name = f"ended-{next(_numbers)}"
        content = record(name, step="Cancelled", conditions=[ENDED_LONG_AGO])
        self.create([content], RELAUNCHES, "default")
        eventually("the operator to list everything again", lambda: self._is_removed(name) or self._ended())

    def _is_removed(self, name: str) -> bool:
        try:
            self.cluster.client.get(RELAUNCHES, name, "default")
        except NotFound:
            return True
        return False

    def text(self) -> str:
        """The operator's log."""
        assert self.operator is not None
        return self.operator.text()

    def _is_ungated(self, name: str) -> bool:
        return "schedulingGates" not in self.cluster.get(name)["spec"]

    def _ended(self) -> bool:
        return self.operator is not None and self.operator.process.poll() is not None

    def create(self, contents: Iterable[dict[str, Any]], resource: Resource = PODS, namespace: str = TENANT) -> None:
        """Create these objects of the tenant's, and write the status of those that have one."""

        def create(content: dict[str, Any]) -> None:
            goal = f"{content['metadata']['name']} to be created"
            eventually(goal, lambda: self._exists(content, resource, namespace), 120)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(create, contents))

    def _exists(self, content: dict[str, Any], resource: Resource, namespace: str) -> bool:
        try:
            with suppress(AlreadyExists):  # the answer to an earlier request came too late
                self.cluster.client.create(resource, content, namespace)
            if "status" in content:
                status = {"status": content["status"]}
                self.cluster.client.merge(resource, content["metadata"]["name"], status, namespace, "status")
        except Invalid as error:
            pytest.fail(str(error))
        return True

    def end(self) -> None:
        """Stop the operator, and remove what the tenant has."""
        self._ending.set()
        self._watching.join()
        if self.operator and not self._ended():
            self.operator.terminate()
        if self.operator:
            about_others = (line for line in self.operator.text().splitlines() if f" {TENANT}/" not in line)
            print("\n".join(about_others)[-10_000:])
        eventually("no record to keep a finalizer", self._has_no_finalizers, 120)
        for path in (PODS.path(TENANT), RELAUNCHES.path(TENANT)):
            delete_collection(self.cluster, path)
        eventually("the ghosts to be deleted", self._has_no_ghosts, 120)

    def _has_no_finalizers(self) -> bool:
        finalized = self.cluster.client.read(RELAUNCHES, _finalized, namespace=TENANT).items
        for name in finalized:
            self.cluster.client.merge(RELAUNCHES, name, {"metadata": {"finalizers": None}}, TENANT)
        return not finalized

    def _has_no_ghosts(self) -> bool:
        """Delete the publications of nodes that do not exist. A busy API server may leave a request unanswered."""
        ghosts = self.cluster.client.read(NODE_TOPOLOGIES, _ghosts).items
        for name in ghosts:
            self.cluster.client._ask("DELETE", NODE_TOPOLOGIES.path("", name))
        return not ghosts


def _finalized(record: dict[str, Any]) -> Iterator[str]:
    if record["metadata"].get("finalizers"):
        yield record["metadata"]["name"]


def _ghosts(topology: dict[str, Any]) -> Iterator[str]:
    if topology["metadata"]["name"].startswith("ghost-"):
        yield topology["metadata"]["name"]


def delete_collection(cluster: Cluster, path: str) -> None:
    """Delete all objects of a kind in a namespace at once: of 20,000 each request deletes some until it times out."""
    options = {"gracePeriodSeconds": 0}
    eventually("all to be deleted", lambda: cluster.client._ask("DELETE", path, options) and True, 300)


@contextmanager
def limited_operator(cluster: Cluster, folder: Path) -> Iterator[Limited]:
    """The operator is not started yet."""
    with suppress(AlreadyExists):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}}
        cluster.client.create(NAMESPACES, namespace)
    group = GroupTree(f"topomend-memory-{os.getpid()}-{next(_numbers)}")
    try:
        group.create()
        group.limit_memory(LIMIT)
    except (CgroupsUnavailable, OSError) as error:
        group.remove()
        pytest.skip(f"memory cannot be limited here: {error}")
    tenant = Limited(cluster, group, folder)
    try:
        yield tenant
    finally:
        tenant.end()
        group.remove()


@dataclass(frozen=True)
class Quiet:
    """For how long a pod stays gated, and one that waits for room once there is some, in seconds."""

    delay: float
    delay_of_waiting: float


@pytest.fixture(scope="module")
def quiet(two_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Quiet:
    """The delays where the tenant has nothing."""
    two_nodes.fragment()
    with limited_operator(two_nodes, tmp_path_factory.mktemp("quiet")) as operator:
        operator.start()
        delays = operator.delays("nothing")
        waiting = operator.delays_of_waiting("nothing")
    two_nodes.clear()
    return Quiet(median(delays), median(waiting))


@pytest.fixture
def limited(fragmented: Cluster, tmp_path: Path) -> Iterator[Limited]:
    """The operator is not started yet."""
    with limited_operator(fragmented, tmp_path) as limited:
        yield limited


def is_in_time(delays: list[float], quiet: float) -> bool:
    """Whether no pod waited a second longer than one where the tenant has nothing."""
    return max(delays) < quiet + stretched(LATE_SECONDS)


def huge(name: str, **spec: Any) -> dict[str, Any]:
    """A pod of 1.5 MB of JSON, of which Python makes ten times as much.

    As many variables of an environment would do the same, but cost an API server seconds: it counts who manages each.
    """
    content = pod(name, 3)
    content["spec"] |= spec
    content["spec"]["containers"][0]["args"] = [f"{index:05}" for index in range(180_000)]
    return content


def choosy(name: str, **spec: Any) -> dict[str, Any]:
    """A pod of which the operator keeps all: which nodes it may go to. Python makes two MB of 200 KB of JSON."""
    content = pod(name, 3)
    hosts = [f"{name}-{index}" for index in range(MAX_AFFINITY_VALUES - 10)]
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": hosts}]}
    required = {"nodeSelectorTerms": [term]}
    content["spec"] |= spec
    content["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return content


def choosier(name: str, **spec: Any) -> dict[str, Any]:
    """A pod of half a MB of JSON with more rules about nodes than anybody needs. Python would make seven MB of them."""
    content = pod(name, 3)
    terms = [{"matchExpressions": [{"key": f"label-{index}", "operator": "Exists"}]} for index in range(9_900)]
    required = {"nodeSelectorTerms": terms}
    content["spec"] |= spec
    content["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return content


def test_the_limit_is_the_one_that_the_operator_has_where_it_is_installed() -> None:
    assert f"memory: {LIMIT >> 20}Mi" in (ROOT / "deploy" / "base" / "operator.yaml").read_text()


@pytest.mark.night
@pytest.mark.parametrize("made", [huge, choosy, choosier])
def test_huge_pods_neither_kill_the_operator_at_its_start_nor_as_they_come(
    limited: Limited, quiet: Quiet, made: Callable[..., dict[str, Any]]
) -> None:
    """They are gated, so that the operator keeps them."""
    waiting = {"nodeSelector": {"no": "node"}, "schedulingGates": [{"name": FIT_GATE}]}
    limited.create(made(f"huge-{index}", **waiting) for index in range(HUGE))
    limited.start()
    assert is_in_time(limited.delays(f"{HUGE} {made.__name__} pods"), quiet.delay)
    limited.create(made(f"later-{index}", **waiting) for index in range(HUGE // 4))
    assert is_in_time(limited.delays(f"{HUGE // 4} more"), quiet.delay)
    limited.wait_for_relist()
    assert is_in_time(limited.delays("the same, listed again"), quiet.delay)


def record(name: str, **status: Any) -> dict[str, Any]:
    """A record of a pod that does not exist, as a stolen token of the operator's could write it."""
    spec = {
        "pod": {"name": name, "uid": f"uid-of-{name}"},
        "refusedBy": "numa-a",
        "reason": "TopologyAffinityError",
        "attempt": 1,
        "manifestHash": "0f" * 32,
    }
    head = {"apiVersion": API_VERSION, "kind": RELAUNCH, "metadata": {"name": name}, "spec": spec}
    return head | ({"status": status} if status else {})


def test_neither_many_records_nor_huge_ones_kill_the_operator(limited: Limited, quiet: Quiet) -> None:
    """The small ones end, for their pods are gone. The huge ones are the only copies of their pods."""
    manifest = {"metadata": {}, "spec": huge("any", nodeSelector={"no": "node"})["spec"]}
    few = RECORDS // 200
    limited.create((record(f"small-{index}") for index in range(RECORDS)), RELAUNCHES)
    limited.create((record(f"huge-{index}", step="Committed", manifest=manifest) for index in range(few)), RELAUNCHES)
    limited.start()
    assert is_in_time(limited.delays(f"{RECORDS} records and {few} huge ones"), quiet.delay)
    limited.create((record(f"later-{index}", step="Committed", manifest=manifest) for index in range(few)), RELAUNCHES)
    assert is_in_time(limited.delays(f"{few} more huge ones"), quiet.delay)
    limited.wait_for_relist()
    assert is_in_time(limited.delays("the same, listed again"), quiet.delay)


def ghost(index: int, **status: Any) -> dict[str, Any]:
    """The publication of a compromised agent."""
    since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [{"type": "Ready", "status": "True", "reason": "Complete", "message": ""} | since]
    content = node_topology_object(node_state(name=f"ghost-{index}"), conditions=conditions, **status)
    return content | {"metadata": {"name": f"ghost-{index}"}}


def with_sets(number: int) -> dict[str, Any]:
    """Containers that each hold the last CPU, of which Python makes two KiB; 16,000 are what an agent may write."""
    members = [{"name": f"{container}", "cpus": "16383"} for container in range(200)]
    return {"pods": [{"namespace": "a", "name": f"{pod}", "containers": members} for pod in range(number // 200)]}


def with_devices(number: int) -> dict[str, Any]:
    """Devices with short names; 200,000 are the most that etcd takes."""
    groups = [{"ids": [f"{device}" for device in range(start, start + 8_000)]} for start in range(0, number, 8_000)]
    return {"devices": [{"resource": "a/b", "groups": groups}]}


@pytest.mark.parametrize(
    ("status", "later"),
    [
        pytest.param(with_sets(16_000), with_sets(15_800), marks=pytest.mark.night),
        (with_devices(160_000), with_devices(152_000)),
    ],
    ids=["the most that an agent writes", "the most that the API server takes"],
)
def test_publications_of_the_greatest_size_do_not_kill_the_operator(
    limited: Limited, quiet: Quiet, status: dict[str, Any], later: dict[str, Any]
) -> None:
    limited.create((ghost(index, **status) for index in range(PUBLICATIONS)), NODE_TOPOLOGIES, "")
    limited.start()
    assert is_in_time(limited.delays(f"{PUBLICATIONS} publications"), quiet.delay)
    for index in range(PUBLICATIONS):
        limited.cluster.client.merge(NODE_TOPOLOGIES, f"ghost-{index}", {"status": later}, subresource="status")
    assert is_in_time(limited.delays("the same, changed"), quiet.delay)
    limited.wait_for_relist()
    assert is_in_time(limited.delays("the same, listed again"), quiet.delay)


def gated(name: str, number: int) -> dict[str, Any]:
    """A pod that fits no NUMA node, of another kind for each number: no answer about one is true of the next."""
    content = pod(name, NEVER_FITS)
    content["spec"]["schedulingGates"] = [{"name": FIT_GATE}]
    content["spec"]["containers"][0]["resources"]["limits"]["memory"] = f"{65_536 + number}Ki"
    return content


@pytest.mark.night  # test_fairness has 2,000 of them delay another tenant, without the limit of memory
def test_thousands_of_gated_pods_neither_kill_the_operator_nor_delay_another_tenant(
    limited: Limited, quiet: Quiet
) -> None:
    limited.create(gated(f"gated-{index}", index) for index in range(GATED))
    limited.start()
    assert is_in_time(limited.delays(f"{GATED} gated pods, just listed"), quiet.delay)
    limited.create(gated(f"later-{index}", GATED + index) for index in range(GATED // 10))
    assert is_in_time(limited.delays(f"{GATED // 10} more"), quiet.delay)
    assert is_in_time(limited.delays_of_waiting("the same"), quiet.delay_of_waiting)
    limited.wait_for_relist()
    assert is_in_time(limited.delays("the same, listed again"), quiet.delay)
