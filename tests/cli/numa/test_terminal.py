"""What hostile objects have an administrator's terminal show: every verb, on a terminal, against a real API server.

A compromised agent writes what the schema lets it into its node's object, and whoever may write a pod's status or a
record does the same.
"""

import json
import os
import pty
import struct
from collections.abc import Iterator
from contextlib import suppress
from fcntl import ioctl
from multiprocessing import get_context
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Any

import pytest
import tests.operator_process  # noqa: F401  it has the fork server load the modules once
import yaml
from click import unstyle
from tests.clusters import NODE_A, NODE_B, Cluster, pod
from tests.terminals import written

from topomend.kube.errors import AlreadyExists
from topomend.kube.resources import NODE_TOPOLOGIES, NODES, PODS, RELAUNCHES
from topomend.wire.published.node_topology import node_topology

pytestmark = pytest.mark.cluster

POISON = "\x1b]0;pwned\x07\x1b[2J\u202e\u200b\x9b31m\r\nforged: line"
SHOWN = r"\x1b]0;pwned\x07\x1b[2J\u202e\u200b\x9b31m"
"""As which all of it but its end is to be seen."""

COLUMNS = 200

WITHOUT_AGENT = "hostile-c"


@pytest.fixture(scope="module")
def hostile(two_nodes: Cluster) -> Iterator[Cluster]:
    """Three nodes whose agents lie, a refused pod and a record; all with escapes wherever the API server takes them."""
    for state in list(two_nodes.states.values()):
        two_nodes.publish(state)
    _poison_allocations(two_nodes)
    _poison_condition(two_nodes, NODE_B, "False")
    with suppress(AlreadyExists):
        two_nodes.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": WITHOUT_AGENT}})
    two_nodes.client.create(NODE_TOPOLOGIES, node_topology(WITHOUT_AGENT, {}))
    _poison_settings(two_nodes)
    _refuse(two_nodes)
    _record(two_nodes)
    yield two_nodes
    two_nodes.client.delete(NODES, WITHOUT_AGENT, uid=two_nodes.client.get(NODES, WITHOUT_AGENT)["metadata"]["uid"])
    uid = two_nodes.client.get(NODE_TOPOLOGIES, WITHOUT_AGENT)["metadata"]["uid"]
    two_nodes.client.delete(NODE_TOPOLOGIES, WITHOUT_AGENT, uid=uid)
    two_nodes.clear()


def _write_status(cluster: Cluster, node: str, **status: Any) -> None:
    cluster.client.merge(NODE_TOPOLOGIES, node, {"status": status}, subresource="status")


def _poison_allocations(cluster: Cluster) -> None:
    device: dict[str, Any] = {"resource": f"evil.com/{POISON}", "ids": [f"id-{POISON}"]}
    container = {"name": f"c-{POISON}", "cpus": "2,5-6", "devices": [{**device, "numaNodes": [0]}]}
    held = {"namespace": f"n-{POISON}", "name": f"p-{POISON}", "uid": f"u-{POISON}", "containers": [container]}
    claim: dict[str, Any] = {
        "namespace": "default",
        "pod": f"p-{POISON}",
        "container": f"c-{POISON}",
        "claim": f"l-{POISON}",
    }
    claim |= {"driver": f"d-{POISON}"[:63], "pool": f"o-{POISON}", "devices": [f"v-{POISON}"[:63]]}
    devices = [{"resource": device["resource"], "groups": [{"numaNodes": [0], "ids": device["ids"]}]}]
    _write_status(cluster, NODE_A, devices=devices, pods=[held], claims=[claim])


def _poison_condition(cluster: Cluster, node: str, status: str) -> None:
    condition = {"type": "Ready", "status": status, "reason": "Gone", "message": f"Ready says {POISON}"}
    _write_status(cluster, node, conditions=[condition | {"lastTransitionTime": "2026-01-01T00:00:00Z"}])


def _poison_settings(cluster: Cluster) -> None:
    status = cluster.client.get(NODE_TOPOLOGIES, NODE_B)["status"]
    settings = status["kubelet"] | {"topologyManagerPolicy": POISON, "version": POISON}
    _write_status(cluster, WITHOUT_AGENT, **{**status, "kubelet": settings})
    _poison_condition(cluster, WITHOUT_AGENT, "True")


def _refuse(cluster: Cluster) -> None:
    """A pod of a node without a kubelet, of which somebody says that it was refused."""
    made = cluster.create(pod("train", 3, node=WITHOUT_AGENT))
    said = {"phase": "Failed", "reason": f"Topology{POISON}", "message": f"Pod was rejected: {POISON}"}
    cluster.client.merge(PODS, "train", {"status": said}, "default", subresource="status")
    waiting = {"type": "PodScheduled", "status": "False", "reason": POISON, "message": POISON}
    gated = pod("gated", 3)
    gated["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    cluster.create(gated)
    cluster.client.patch_status(PODS, "gated", {"status": {"conditions": [waiting]}}, "default")
    assert made


def _record(cluster: Cluster) -> None:
    uid = cluster.get("train")["metadata"]["uid"]
    spec = {"pod": {"name": "train", "uid": uid}, "refusedBy": POISON, "reason": POISON, "message": POISON}
    head = {"apiVersion": RELAUNCHES.api_version, "kind": "Relaunch", "metadata": {"name": "train-1"}}
    cluster.client.create(RELAUNCHES, head | {"spec": spec | {"attempt": 1, "manifestHash": "0" * 64}}, "default")
    condition = {"type": "Succeeded", "status": "False", "reason": "NoNodeAdmitsNow", "message": f"waits {POISON}"}
    condition |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {
        "step": "Recorded",
        "conditions": [condition],
        "verdicts": [{"node": POISON, "admitted": False, "reason": POISON, "explanation": POISON}],
        "counts": [{"reason": POISON, "nodes": 1}],
    }
    cluster.client.merge(RELAUNCHES, "train-1", {"status": status}, "default", subresource="status")


VERBS = [
    ("show",),
    ("show", "-o", "wide"),
    ("check",),
    ("explain", "pod/train"),
    ("explain", "pod/train", "-o", "wide"),
    ("explain", "pod/gated"),
    ("explain", "-f", "POD"),
    ("fit", "-f", "POD"),
    ("fit", "-f", "POD", "-o", "wide"),
    ("aligned", "-A"),
    ("relaunches", "-A"),
    ("relaunches", "-o", "wide"),
    ("drain", "--dry-run"),
    ("what-if", "--policy", "none"),
    ("show", f"no-{POISON}"),
    ("explain", f"pod/no-{POISON}"),
    ("fit", "-f", f"/no-{POISON}"),
    ("simulate", "--node", "NODE", "--pods", "POD"),
    ("simulate", "--node", f"/no-{POISON}", "--pods", "POD"),
    (f"no-{POISON}",),
    ("show", f"--no-{POISON}"),
]
DATA = [("show", "-o", "json"), ("show", "-o", "yaml"), ("export", "-A"), ("relaunches", "-A", "-o", "yaml")]

SILENT = {("aligned", "-A"), ("drain", "--dry-run"), ("fit", "-f", "POD"), ("what-if", "--policy", "none")}
"""What has nothing to say of these objects but their numbers."""


@pytest.fixture(scope="module")
def folder(hostile: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pod to ask about, and a hostile node, as files."""
    files = tmp_path_factory.mktemp("terminal")
    (files / "POD").write_text(yaml.safe_dump(pod("asked", 3)))
    (files / "NODE").write_text(json.dumps(hostile.client.get(NODE_TOPOLOGIES, NODE_A)))
    return files


@pytest.mark.parametrize("verb", [*VERBS, *DATA], ids=lambda verb: " ".join(verb).encode("unicode_escape").decode())
def test_no_verb_passes_a_byte_on_that_a_terminal_obeys(hostile: Cluster, folder: Path, verb: tuple[str, ...]) -> None:
    arguments = [str(folder / word) if word in ("POD", "NODE") else word for word in verb]
    text = on_terminal(hostile.sandbox.kubeconfig, arguments)
    lines = text.replace("\r\n", "\n").split("\n")
    assert [line for line in lines if not line.replace("\t", "").isprintable()] == []
    assert not any(line.startswith("forged") for line in lines)
    assert "Traceback" not in text
    assert SHOWN[:12] in text or verb in SILENT or verb in DATA, text


@pytest.fixture
def refused(two_nodes: Cluster, hostile: Cluster, tmp_path: Path) -> Path:
    """A pod that no node admits, asked about on nodes that publish again what they have."""
    del hostile
    for state in list(two_nodes.states.values()):
        two_nodes.publish(state)
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump(pod("asked", 300)))
    return path


@pytest.mark.parametrize(
    ("verb", "painted"),
    [
        (("explain", "-f", "POD", "--node", NODE_A), "\x1b[31mrefuses\x1b[0m"),
        (("fit", "-f", "POD"), "\x1b[31moverall: 0 of 1 fit now\x1b[0m"),
        (("make-room", "-f", "POD"), "no node would admit it"),
    ],
)
def test_answers_are_painted_on_a_terminal_and_say_the_same_without(
    two_nodes: Cluster, refused: Path, verb: tuple[str, ...], painted: str
) -> None:
    arguments = [str(refused) if word == "POD" else word for word in verb]
    told = on_terminal(two_nodes.sandbox.kubeconfig, arguments, no_colour="")
    assert painted in told
    assert "\x1b[31m" in told
    assert unstyle(told) == on_terminal(two_nodes.sandbox.kubeconfig, arguments)


def on_terminal(kubeconfig: Path, arguments: list[str], no_colour: str = "1") -> str:
    """What the plugin writes to a terminal of its own, errors too."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    process = get_context("forkserver").Process(
        target=_run, args=(os.ttyname(theirs), kubeconfig, arguments, no_colour)
    )
    process.start()
    text = written(ours, theirs, process.sentinel)
    process.join()
    return text


def _run(terminal: str, kubeconfig: Path, arguments: list[str], no_colour: str) -> None:
    """In a process of its own, whose terminal this is."""
    from topomend.cli.kubectl_numa import numa  # noqa: PLC0415
    from topomend.cli.output import waiting  # noqa: PLC0415

    waiting.PATIENCE_SECONDS = 3600.0  # its line has codes of our own

    end = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
    for stream in range(3):
        os.dup2(end, stream)
    os.environ |= {"KUBECONFIG": str(kubeconfig), "NO_COLOR": no_colour}  # ours are no part of what objects contain
    numa(arguments, prog_name="kubectl numa")
