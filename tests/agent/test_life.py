"""Random pods start and end on real kubelets: after every step the agents publish each kubelet's allocations.

The kubelets' state files and pod-resources answers are read by the tests' own code (``kubelet_allocations``). Slow
because kubelets take their time; ``make agent-life PODS=1000`` plays it long. ``TOPOMEND_SEED`` repeats a run's
choices.
"""

import os
import random
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from kubernetes.client import CustomObjectsApi
from kubernetes.config import new_client_from_config
from kubernetes.watch import Watch
from tests.agent.kubelet_alignment import kubelet_alignments, published_alignments
from tests.agent.kubelet_allocations import (
    PodResources,
    StateFiles,
    published_book,
    published_holdings,
    read_state_files,
)
from tests.agent.test_agent_on_cluster import FRESH_SECONDS, Kubernetes, Looks, running
from tests.seeds import SEED, cases
from tests.waiting import awake, eventually, stretched
from urllib3.exceptions import HTTPError

from topomend.kube.client import Client, connect
from topomend.kube.resources import NODE_TOPOLOGIES, PODS
from topomend.model.bitmask import format_id_list
from topomend.model.condition import WOULD_NOT_START_AGAIN
from topomend.replay.admission import shared_pool
from topomend.sandbox import NodeSpec, Sandbox
from topomend.wire.published.node_topology import read_node_topology

PODS_IN_ALL = int(os.environ.get("TOPOMEND_LIFE_PODS", cases(16, 32)))
SETTLE_SECONDS = 30.0
"""Longer than a kubelet takes to start or to end a pod on a busy machine."""

SAMPLE_SECONDS = 0.05

MOST_LOAD = 5.0
"""Of a CPU, up to which the agent's delays are its own. Kubelets, API server and agents here come to two or three."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240 + 15 * PODS_IN_ALL)]

SPECS = (
    NodeSpec.of_shape(
        "life-single",
        "sockets:1 numa:2 cores:6 memory:8Gi hugepages-2Mi:512 device:vendor.com/gpu@0=1,1=2",
        topology_manager_policy="single-numa-node",
    ),
    NodeSpec.of_shape(
        "life-restricted",
        "sockets:2 numa:2 cores:3 threads:2 memory:4Gi hugepages-2Mi:256 device:vendor.com/gpu@0=1,3=1",
        topology_manager_policy="restricted",
    ),
    NodeSpec.of_shape(
        "life-pod-scope",
        "sockets:2 numa:1 cores:6 memory:8Gi hugepages-2Mi:128 device:vendor.com/gpu@0=2,1=1 device:vendor.com/nic@1=2",
        topology_manager_policy="best-effort",
        topology_manager_scope="pod",
    ),
    NodeSpec.of_shape(
        "life-listed",
        "sockets:2 numa:1 cores:4 threads:2 memory:8Gi hugepages-2Mi:128 device:vendor.com/gpu@0=1,1=1",
        topology_manager_policy="restricted",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
    ),
)
# All have huge pages: a kubelet's Memory Manager panics when asked for those of a size that its machine has none of.
WITHOUT_STATE = {"life-listed"}
"""Its agent is not given the kubelet's state files, as the agent is installed by default."""

COVERED = {"life-restricted", "life-pod-scope"}
"""Their agents find the folders beside the state files empty, as the overlay kubelet-state shows them."""


@dataclass
class Node:
    """One node: its kubelet's own words, and the pods that were started on it and not yet ended, uid by name."""

    name: str
    sandbox: Sandbox
    kubelet: PodResources
    looks: Looks
    pods: dict[str, str] = field(default_factory=dict)

    def files(self) -> StateFiles:
        return read_state_files(self.sandbox.folder / "nodes" / self.name / "kubelet")


class Publications:
    """When each pod was first published, and first no longer, by a watch of the NodeTopologies."""

    def __init__(self, kubeconfig: str) -> None:
        self.status: dict[str, dict[str, Any]] = {}
        self.published: dict[str, float] = {}
        self.released: dict[str, float] = {}
        self._api = CustomObjectsApi(new_client_from_config(kubeconfig))
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        group, version = NODE_TOPOLOGIES.api_version.split("/")
        # The end of the sandbox is the end of the watch.
        with suppress(HTTPError):
            events: Any = Watch().stream(self._api.list_cluster_custom_object, group, version, NODE_TOPOLOGIES.plural)
            for event in events:
                self._note(event["raw_object"], time.time())

    def _note(self, content: dict[str, Any], now: float) -> None:
        node, status = content["metadata"]["name"], content.get("status", {})
        before = {entry["name"] for entry in self.status.get(node, {}).get("pods", ())}
        shown = {entry["name"] for entry in status.get("pods", ())}
        for name in shown - before:
            self.published.setdefault(name, now)
        for name in before - shown:
            self.released.setdefault(name, now)
        self.status[node] = status


class AwakeClock:
    """Of any wall time while it runs, the time without that in which the machine stood still."""

    def __init__(self) -> None:
        self._samples = [(time.time(), awake())]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._samples.append((time.time(), awake()))

    def between(self, earlier: float, later: float) -> float:
        """The seconds between two wall times, by the samples that follow them."""
        return self._at(later) - self._at(earlier)

    def _at(self, wall: float) -> float:
        following = bisect_left(self._samples, (wall, 0.0))
        return self._samples[min(following, len(self._samples) - 1)][1]

    def close(self) -> None:
        """Sample no more."""
        self._ended.set()
        self._thread.join()


@pytest.fixture
def clock() -> Iterator[AwakeClock]:
    """A machine that stands still for seconds delays publications, which is no agent's doing."""
    made = AwakeClock()
    yield made
    made.close()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """The kubelets of SPECS."""
    with Sandbox.up(SPECS, on_progress=print) as up:
        yield up


@pytest.fixture
def nodes(sandbox: Sandbox) -> Iterator[list[Node]]:
    """All of them with their agents, which have published."""
    kubernetes = Kubernetes(sandbox)
    with ExitStack() as stack:
        made = []
        for spec in SPECS:
            socket = sandbox.folder / "nodes" / spec.name / "kubelet" / "pod-resources" / "kubelet.sock"
            made.append(Node(spec.name, sandbox, PodResources(socket), Looks()))
            stack.callback(made[-1].kubelet.close)
            given = {"state": spec.name not in WITHOUT_STATE, "covered": spec.name in COVERED}
            stack.enter_context(running(sandbox, kubernetes, spec.name, made[-1].looks.flag, **given))
        yield made


def test_after_every_start_and_end_the_published_state_is_the_kubelets(
    sandbox: Sandbox, nodes: list[Node], clock: AwakeClock
) -> None:
    chance = random.Random(SEED)
    client, seen = connect(str(sandbox.kubeconfig)), Publications(str(sandbox.kubeconfig))
    outcomes: Counter[str] = Counter()
    started, ended = [], []
    number = 0
    while number < PODS_IN_ALL or any(node.pods for node in nodes):
        begun, gone = [], []
        for node in nodes:
            if node.pods and (number >= PODS_IN_ALL or chance.random() < len(node.pods) / 8):
                name = chance.choice(sorted(node.pods))
                client.delete(PODS, name, "default", uid=node.pods.pop(name))
                gone.append((node, name))
                outcomes["ended"] += 1
            elif number < PODS_IN_ALL:
                number += 1
                pod = random_pod(f"p{number}", node.name, chance)
                made = client.create(PODS, pod, "default")
                node.pods[pod["metadata"]["name"]] = made["metadata"]["uid"]
                begun.append((node, pod["metadata"]["name"]))
        for node, name in begun:
            answer = _until(f"the kubelet's answer to {name}", lambda name=name: _answered(client, name))
            outcomes[answer] += 1
            if answer != "admitted":
                client.delete(PODS, name, "default", uid=node.pods.pop(name))
        moments = {name: _decided(node, name) for node, name in begun if name in node.pods}
        moments |= {
            name: _until(f"{name} to be gone", lambda node=node, name=name: _gone(node, name)) for node, name in gone
        }
        for node in nodes:
            outcomes[_settle(node, client)] += 1
        _have_agents_look(begun)
        for node, name in begun:
            if moments.get(name) and _holdings(node, name):
                _until(f"the watch to tell {name}", lambda name=name: name in seen.published)
                started.append(clock.between(moments[name], seen.published[name]))
        ended += [
            max(0.0, clock.between(moments[name], seen.released[name])) for _, name in gone if name in seen.released
        ]
    print(dict(outcomes))
    print(_ranks("the kubelet's decision -> published", started))
    print(_ranks("ended on the kubelet -> published  ", ended))
    assert outcomes["admitted"] > PODS_IN_ALL // 4
    assert outcomes["books compared"] > PODS_IN_ALL // 4
    judge_delays(started, ended)
    assert {node.name: node.files().pods for node in nodes if node.kubelet.holdings()} == {}
    client.close()


def _have_agents_look(begun: list[tuple[Node, str]]) -> None:
    """An agent's look shows nowhere for a pod that holds nothing: of pods that it sees first at one moment, some of
    which hold something for init containers alone, it cannot tell which they are."""
    for node, name in begun:
        if name in node.pods and not _holdings(node, name):
            node.looks.wait()


def judge_delays(*delays: list[float]) -> None:
    """Publications are fast enough, unless the machine is too busy for that to be told."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    if load > MOST_LOAD:
        print(f"{load:.0f} processes wait for each CPU: whether that is fast enough is not judged")
        return
    for delays_of_pods in delays:
        assert _rank(delays_of_pods, 0.99) <= stretched(FRESH_SECONDS)


def random_pod(name: str, node: str, chance: random.Random) -> dict[str, Any]:
    """A pod for a node: half of them Guaranteed, the others Burstable or BestEffort; some after init containers or
    beside a sidecar, some with devices or huge pages, some larger than any node."""
    quality = chance.choice(["guaranteed"] * 6 + ["burstable", "burstable", "best-effort"])
    spec: dict[str, Any] = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "containers": [_container(f"c{index}", quality, chance) for index in range(chance.choice([1, 1, 2]))],
    }
    init = []
    if chance.random() < 0.35:
        init.append(_container("i0", quality, chance) | {"command": ["true"]})
    if chance.random() < 0.2:
        init.append(_container("s0", quality, chance) | {"restartPolicy": "Always"})
    if init:
        spec["initContainers"] = init
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _container(name: str, quality: str, chance: random.Random) -> dict[str, Any]:
    limits: dict[str, str] = {}
    if chance.random() < 0.25:
        limits["vendor.com/gpu"] = chance.choice(["1", "1", "2"])
    if chance.random() < 0.1:
        limits["vendor.com/nic"] = "1"
    if quality == "best-effort":
        return {"name": name, "image": "none", "resources": {"limits": limits}}
    limits |= {"cpu": chance.choice(["1", "1", "2", "2", "3", "4", "1500m"])}
    limits["memory"] = chance.choice(["64Mi", "256Mi", "512Mi", "1Gi", "3Gi"])
    if chance.random() < 0.2:
        limits["hugepages-2Mi"] = chance.choice(["64Mi", "256Mi"])
    resources: dict[str, Any] = {"limits": limits}
    if quality == "burstable":
        resources["requests"] = {"cpu": "100m"}
    return {"name": name, "image": "none", "resources": resources}


def _answered(client: Client, name: str) -> str:
    """``admitted``, the kubelet's reason to refuse, or empty as long as it has not answered."""
    status = client.get(PODS, name, "default").get("status", {})
    if status.get("phase") == "Failed":
        return str(status["reason"])
    return "admitted" if status.get("containerStatuses") or status.get("initContainerStatuses") else ""


def _gone(node: Node, name: str) -> float:
    """The time, once the kubelet no longer tells of the pod."""
    return 0.0 if name in node.kubelet.holdings() else time.time()


def _holdings(node: Node, name: str) -> Any:
    """What the agent can know that the pod holds: without the files, nothing of init containers."""
    return (
        node.kubelet.holdings().get(name)
        if node.name in WITHOUT_STATE
        else node.files().pods.get(node.pods.get(name, ""))
    )


def _decided(node: Node, name: str) -> float:
    """When the kubelet last wrote what is held, which was for this pod; zero where it holds no CPU and no memory."""
    containers = node.files().pods.get(node.pods[name], {})
    kubelet = node.sandbox.folder / "nodes" / node.name / "kubelet"
    files = [
        kubelet / file
        for file, has in (
            ("cpu_manager_state", any(cpus for cpus, _, _ in containers.values())),
            ("memory_manager_state", any(memory for _, _, memory in containers.values())),
        )
        if has
    ]
    return max((file.stat().st_mtime for file in files), default=0.0)


def _settle(node: Node, client: Client) -> str:
    """Wait until the kubelet and the publication say the same; how much could be compared."""
    began = awake()
    while True:
        content = client.get(NODE_TOPOLOGIES, node.name)
        differences, compared = _compare(node, content)
        if not differences:
            return compared
        if awake() > began + stretched(SETTLE_SECONDS):
            pytest.fail(f"{node.name} after {SETTLE_SECONDS:.0f} s: " + "\n".join(differences))
        time.sleep(0.05)


def _how_known(node: Node, reasons: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """Some pods leave a state with which no kubelet starts: ``make restore-oracle`` and ``tests/live/test_restart``
    compare with real kubelets when the agent says so."""
    if node.name in WITHOUT_STATE:
        return "True", "PodResourcesOnly"
    would_start = reasons.get("AllocationsRead") != ("True", WOULD_NOT_START_AGAIN)
    return "True", "Read" if would_start else WOULD_NOT_START_AGAIN


def _compare(node: Node, content: dict[str, Any]) -> tuple[list[str], str]:
    """Where publication and kubelet differ; and whether the kubelet's files held nothing but what lives."""
    status, listed, files = content.get("status", {}), node.kubelet.holdings(), node.files()
    alive = {uid: name for name, uid in node.pods.items() if name in listed}
    holdings = {name: containers for uid, name in alive.items() if (containers := files.pods.get(uid))}
    state = read_node_topology(content)
    reasons = {
        condition["type"]: (condition["status"], condition["reason"]) for condition in status.get("conditions", ())
    }
    pairs: list[tuple[str, Any, Any]] = [
        ("the pods that the kubelet lists", set(listed), set(node.pods)),
        (
            "what pod-resources lists",
            {name: containers for name, containers in listed.items() if containers},
            published_holdings(status, with_init=False),
        ),
        ("Ready", "True", reasons.get("Ready", ("", ""))[0]),
        ("how the allocations are known", _how_known(node, reasons), reasons.get("AllocationsRead")),
    ]
    if node.name not in WITHOUT_STATE:
        uids = {pod["name"]: pod["uid"] for pod in status.get("pods", ())}
        pairs += [
            ("what the state files hold", holdings, published_holdings(status)),
            ("uids", {name: uid for uid, name in alive.items() if name in holdings}, uids),
            ("the shared pool", format_id_list(files.pool_without(alive)), format_id_list(shared_pool(state))),
        ]
        kubelets = kubelet_alignments(state.machine, holdings, files.pool_without(alive))
        pairs.append(("how containers are aligned", kubelets, published_alignments(state, with_init=True)))
    clean = node.name not in WITHOUT_STATE and set(files.pods) <= set(alive)
    if clean:
        pairs.append(("the memory book", files.book, published_book(status)))
    return (
        [f"{aspect}: kubelet {theirs}, published {ours}" for aspect, theirs, ours in pairs if theirs != ours],
        "books compared" if clean else "holdings compared",
    )


def _until(goal: str, look: Any) -> Any:
    return eventually(goal, look, SETTLE_SECONDS)


def _rank(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def _ranks(name: str, values: list[float]) -> str:
    return f"{name}  {len(values)} times  p50 {_rank(values, 0.5):.2f} s  p99 {_rank(values, 0.99):.2f} s"
