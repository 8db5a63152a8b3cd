"""Rounds of random pods on real kubelets with a made-up DRA driver, and how they are aligned by two readings.

Each round creates pods on every node. The scheduler allocates their claims, and the kubelet gives them CPUs, memory and
devices without a look at those. ``kubectl numa aligned`` then tells their alignment: by what agents publish, claims and
ResourceSlices. The other reading is that of the kubelets' pod-resources and state files, of each claim's allocation by
the requests that the container names, and of the NUMA nodes in the shapes of the machines.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.agent.kubelet_alignment import Alignments, kubelet_alignments
from tests.agent.kubelet_allocations import NOTHING, Container, PodResources, read_state_files
from tests.builders import pod_manifest
from tests.clusters import Cluster, agents_on, cluster_of, shown
from tests.waiting import TimedOut, eventually
from verify.room.real import wait_for_agents

from topomend.kube.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from topomend.sandbox import NodeSpec

SHAPES = {
    "single": (
        "numa:2 cores:10 memory:8Gi device:vendor.com/fpga@0=1,1=1 dra:vendor.com/nic@0=3,1=3 dra:vendor.com/gpu@1=2",
        {"topology_manager_policy": "single-numa-node"},
    ),
    "restricted": (
        "sockets:2 numa:1 cores:6 threads:2 memory:8Gi dra:vendor.com/nic@1=4 dra:vendor.com/gpu@0=2,1=2",
        {"topology_manager_policy": "restricted"},
    ),
    "best-effort": (
        "sockets:2 numa:2 cores:3 threads:2 memory:4Gi device:vendor.com/fpga@0=1,3=1 dra:vendor.com/nic@0=2,1=2,3=2",
        {"topology_manager_policy": "best-effort"},
    ),
}
"""The nodes: shape and settings of the kubelet. The sandbox names a device nic-<NUMA node>-<index>."""

CONTAINERS = (
    *(f"cpu={cpus} memory=64Mi" for cpus in (1, 2, 2, 3, 4)),
    "cpu=500m memory=64Mi",
    "cpu=2 memory=64Mi vendor.com/fpga=1",
    "request:cpu=250m",
)
CLASSES = {"single": ("nic", "gpu"), "restricted": ("nic", "gpu"), "best-effort": ("nic",)}

UNSCHEDULABLE = "Unschedulable"

PODS_OF_A_ROUND = (3, 8)
"""How many pods a round creates on each node, at least and at most."""

PROGRAM = (sys.executable, "-c", "from topomend.cli.kubectl_numa import main; main()", "aligned", "-A", "-o", "json")


def specs() -> list[NodeSpec]:
    """The nodes of a sandbox on which pods are tried."""
    return [NodeSpec.of_shape(name, shape, **settings) for name, (shape, settings) in SHAPES.items()]


@dataclass
class Round:
    """One round: how many pods ran and did not, how often each alignment was told, and what was told otherwise."""

    running: int
    refused: int
    told: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def rounds(seed: int, pods: int) -> Iterator[Round]:
    """Rounds on the nodes of a sandbox until so many pods have run."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topomend-dra-")))
        cluster = stack.enter_context(cluster_of(specs()))
        stack.enter_context(agents_on(cluster, folder / "agents.log"))
        wait_for_agents(cluster)
        yield from rounds_on(cluster, seed, pods)


def rounds_on(cluster: Cluster, seed: int, pods: int) -> Iterator[Round]:
    """The same on a cluster whose nodes are those of ``specs`` and have agents."""
    random, ran, number = Random(seed), 0, 0
    with ExitStack() as stack:
        readers = {name: _Reader(cluster, name) for name in cluster.states}
        for reader in readers.values():
            stack.callback(reader.close)
        while ran < pods:
            one = _round(cluster, readers, random, number)
            ran, number = ran + one.running, number + 1
            yield one


def _round(cluster: Cluster, readers: Mapping[str, "_Reader"], random: Random, number: int) -> Round:
    names = [
        _create(cluster, random, node, f"{node}-{number}-{each}")
        for node in readers
        for each in range(random.randint(*PODS_OF_A_ROUND))
    ]
    ended = {name: str(eventually(f"{name} to run or not", partial(_end_of, cluster, name), 90)) for name in names}
    running = [name for name in names if ended[name] == "Running"]
    found, unknown = Round(len(running), len(names) - len(running)), dict[str, str]()
    try:
        expected = {key: each for reader in readers.values() for key, each in reader.alignments(running).items()}
        told = eventually("every container to be told", partial(_told, cluster, expected.keys(), unknown), 60)
        found.told.update(alignment for alignment, _ in told.values())
        for key, answer in expected.items():
            if told[key] != answer:
                manifest = json.dumps(cluster.get(key[0])["spec"]["containers"])
                found.faults.append(f"{key}: told {told[key]}, kubelet and claims say {answer}; {manifest}")
    except TimedOut as error:
        found.faults.append(f"{error}; unknown: {unknown}")
    finally:
        _empty(cluster, readers)
    return found


def _create(cluster: Cluster, random: Random, node: str, name: str) -> str:
    """A pod of one or two containers with up to two claims, of which each container has all, some or one request."""
    containers = random.choices(CONTAINERS, k=random.randint(1, 2))
    if node == "restricted":
        containers = [container.replace(" vendor.com/fpga=1", "") for container in containers]
    content = pod_manifest(name, *containers)
    content["spec"] |= {"terminationGracePeriodSeconds": 0, "nodeSelector": {"kubernetes.io/hostname": node}}
    claims = []
    for claim in range(random.choice((0, 1, 1, 1, 2))):
        requests = _requests(random, CLASSES[node])
        claims.append(_claim(cluster, random, f"{name}-{claim}", requests))
        for container in random.sample(content["spec"]["containers"], random.randint(1, len(containers))):
            request = {"request": random.choice(requests)["name"]} if random.random() < 0.4 else {}
            container.setdefault("resources", {}).setdefault("claims", []).append(
                {"name": claims[-1]["name"], **request}
            )
    content["spec"]["resourceClaims"] = claims
    cluster.create(content)
    return name


def _requests(random: Random, classes: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"r{number}",
            "exactly": {"deviceClassName": f"{random.choice(classes)}.vendor.com", "count": random.choice((1, 1, 2))},
        }
        for number in range(random.choice((1, 1, 2)))
    ]


def _claim(cluster: Cluster, random: Random, name: str, requests: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The entry of a pod, for a claim that is there or a template of one."""
    spec = {"devices": {"requests": list(requests)}}
    if random.random() < 0.5:
        cluster.client.create(RESOURCE_CLAIMS, _object("ResourceClaim", name, spec), "default")
        return {"name": f"c-{name}", "resourceClaimName": name}
    cluster.client.create(RESOURCE_CLAIM_TEMPLATES, _object("ResourceClaimTemplate", name, {"spec": spec}), "default")
    return {"name": f"c-{name}", "resourceClaimTemplateName": name}


def _object(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": RESOURCE_CLAIMS.api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _end_of(cluster: Cluster, name: str) -> str:
    """What became of the pod. One that is unschedulable is deleted: it would run once a refused one has left room."""
    content = cluster.get(name)
    answer, metadata = _answer(content), content["metadata"]
    if answer == UNSCHEDULABLE:
        cluster.client.delete(PODS, name, "default", uid=metadata["uid"], version=metadata["resourceVersion"])
    return answer


def _answer(content: Mapping[str, Any]) -> str:
    """The pod's phase once it has an end, or UNSCHEDULABLE."""
    status = content["status"]
    waits = any(
        (each["type"], each["status"], each.get("reason")) == ("PodScheduled", "False", UNSCHEDULABLE)
        for each in status.get("conditions", ())
    )
    return UNSCHEDULABLE if waits else status["phase"] if status["phase"] in ("Running", "Failed") else ""


class _Reader:
    """What one node's kubelet and its pods' claims say."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster, self._node = cluster, node
        self._kubelet = cluster.sandbox.folder / "nodes" / node / "kubelet"
        self._socket = PodResources(self._kubelet / "pod-resources" / "kubelet.sock")

    def alignments(self, names: Sequence[str]) -> Alignments:
        """How those of the pods are aligned that are on the node; nothing of containers that hold nothing."""
        contents = {name: content for name in names if self._is_here(content := self._cluster.get(name))}
        pool = read_state_files(self._kubelet).pool_without([each["metadata"]["uid"] for each in contents.values()])
        holdings, listed = self._socket.holdings(), self._socket.claims()
        held: dict[str, dict[str, Container]] = {}
        for name, content in contents.items():
            held[name] = {}
            for container in content["spec"]["containers"]:
                cpus, devices, memory = holdings.get(name, {}).get(container["name"], NOTHING)
                claimed = self._claimed(content, container, listed.get((name, container["name"]), set()))
                if (holding := (cpus, (*devices, *claimed), memory)) != NOTHING:
                    held[name][container["name"]] = holding
        return kubelet_alignments(self._cluster.states[self._node].machine, held, pool)

    def _is_here(self, content: Mapping[str, Any]) -> bool:
        return bool(content["spec"].get("nodeName") == self._node)

    def _claimed(
        self, pod: Mapping[str, Any], container: Mapping[str, Any], listed: set[tuple[str, str, str]]
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Drivers and devices by the claims' allocations. The kubelet must list them, with others of these claims."""
        made = {each["name"]: each["resourceClaimName"] for each in pod["status"].get("resourceClaimStatuses", ())}
        named = {
            each["name"]: each.get("resourceClaimName") or made[each["name"]]
            for each in pod["spec"].get("resourceClaims", ())
        }
        of_claims = set()
        for entry in container.get("resources", {}).get("claims", ()):
            claim = self._cluster.client.get(RESOURCE_CLAIMS, named[entry["name"]], "default")
            for result in claim["status"]["allocation"]["devices"]["results"]:
                of_claims.add((named[entry["name"]], result["driver"], result["device"]))
                if entry.get("request", result["request"]) == result["request"]:
                    yield result["driver"], (result["device"],)
        assert listed == of_claims, (
            f"{pod['metadata']['name']}: its kubelet lists {listed}, its claims have {of_claims}"
        )

    def close(self) -> None:
        """End the connection to the kubelet."""
        self._socket.close()


def _told(cluster: Cluster, expected: Set[tuple[str, str]], unknown: dict[str, str]) -> Alignments | None:
    """What ``aligned`` tells of each container; None before the agents have published all that hold something.

    ``unknown`` then gets why, by container.
    """
    done = subprocess.run(
        [*PROGRAM, f"--kubeconfig={cluster.sandbox.kubeconfig}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    containers = json.loads(done.stdout)["containers"]
    told = {(each["pod"], each["container"]): (each["alignment"], frozenset(each["numaNodes"])) for each in containers}
    unknown.clear()
    unknown.update({f"{pod}/{name}": "it is not told" for pod, name in expected - told.keys()})
    unknown.update(
        {f"{each['pod']}/{each['container']}": each["unknown"]["message"] for each in containers if each["unknown"]}
    )
    return None if unknown else told


def _empty(cluster: Cluster, nodes: Mapping[str, Any]) -> None:
    """Delete all pods, and the claims and templates that no controller deletes."""
    for content in cluster.client.list(PODS, namespace="default").items:
        cluster.remove(content)
    eventually("the pods to be gone", lambda: not cluster.client.list(PODS, namespace="default").items, 60)
    for resource in (RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS):
        for content in cluster.client.list(resource, namespace="default").items:
            if not content["metadata"].get("ownerReferences"):
                cluster.client.delete(resource, content["metadata"]["name"], "default", uid=content["metadata"]["uid"])
    eventually(
        "the claims to be gone", lambda: not cluster.client.list(RESOURCE_CLAIMS, namespace="default").items, 120
    )
    for node in nodes:
        eventually(f"{node} to be empty", partial(_is_empty, cluster, node), 60)


def _is_empty(cluster: Cluster, node: str) -> bool:
    return not shown(cluster, node)
