"""Trials of a pod that a kubelet refused, across a kill of the operator, and of the CPUs of one that ends."""

import os
import signal
import time

from tests.waiting import eventually
from verify.versions.cluster import DEVICE, OPERATOR, WIDE, cordon, refuse, remove, runs, wide_pod
from verify.versions.new_pods import STEERED, is_gated

from topomend.cache.changes.pods import UNPUBLISHED_SECONDS
from topomend.kube.client import Client
from topomend.kube.resources import NODE_TOPOLOGIES, PODS, RELAUNCHES
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.replay.gates import read_gates
from topomend.sandbox import registry


def try_kill(client: Client, sandbox: str) -> float:
    """Seconds from SIGKILL of the operator until the pod that it should relaunch runs, exactly once."""
    name = "killed"
    refused = refuse(client, name)
    cordon(client, WIDE, unschedulable=False)
    (operator,) = (program for program in registry.status(sandbox).programs if program.name == OPERATOR)
    assert operator.pid is not None
    os.kill(operator.pid, signal.SIGKILL)
    begin = time.monotonic()
    eventually(f"{name} to run on {WIDE}", lambda: runs(client, name), 120)
    seconds = time.monotonic() - begin
    uid = refused["metadata"]["uid"]
    records = [record for record in client.list(RELAUNCHES).items if record["spec"]["pod"]["uid"] == uid]
    copies = [pod for pod in client.list(PODS, namespace="default").items if pod["metadata"]["name"].startswith(name)]
    assert (len(records), len(copies)) == (1, 1), (records, copies)
    remove(client, name)
    return seconds


def try_end(client: Client, release: str) -> str:
    """Seconds from the end of a pod with CPUs, memory and a device until its node publishes all of them as free.

    Before 1.32 a kubelet keeps them until it admits another pod: there a gated pod that needs all of them runs first.
    """
    content = wide_pod("ended")
    content["spec"] |= {"restartPolicy": "Never", "nodeName": WIDE}
    container = content["spec"]["containers"][0]
    container |= {"image": "sandbox/sleep", "command": ["sleep", "2"]}
    container["resources"]["limits"][DEVICE] = "1"
    client.create(PODS, content, "default")
    eventually("its CPUs to be published", lambda: _is_published(client), 60)
    eventually("the pod to end", lambda: client.get(PODS, "ended", "default")["status"].get("phase") == "Succeeded", 60)
    begin, next_one = time.monotonic(), ""
    if read_gates(KubeletSettings(version=release)).keeps_last_admitted:
        next_one = f" after the next pod, which ran after {_run_on_both_numa_nodes(client):.1f} s"
        begin = time.monotonic()
    eventually("its node to be empty", lambda: not _is_published(client), 60)
    seconds = time.monotonic() - begin
    conditions = client.get(NODE_TOPOLOGIES, WIDE)["status"]["conditions"]
    assert all(condition["status"] == "True" for condition in conditions), conditions
    remove(client, "ended")
    return f"{seconds:.1f} s{next_one}"


def _run_on_both_numa_nodes(client: Client) -> float:
    """Seconds until a gated pod runs of which each container needs CPUs and a device of its own NUMA node of WIDE.

    The pod is created after the operator has ceased to wait for the node to publish the end of another.
    """
    time.sleep(1.5 * UNPUBLISHED_SECONDS)
    content = wide_pod("next")
    content["spec"] |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    (first,) = content["spec"]["containers"]
    first["resources"]["limits"][DEVICE] = "1"
    content["spec"]["containers"].append(first | {"name": "second"})
    begin = time.monotonic()
    made = client.create(PODS, content, STEERED)
    assert is_gated(made)
    eventually("the next pod to run", lambda: client.get(PODS, "next", STEERED)["status"]["phase"] == "Running", 60)
    seconds = time.monotonic() - begin
    client.delete(PODS, "next", STEERED, uid=made["metadata"]["uid"])
    return seconds


def _is_published(client: Client) -> bool:
    """Whether the node shows pods that hold something."""
    return bool(client.get(NODE_TOPOLOGIES, WIDE).get("status", {}).get("pods"))
