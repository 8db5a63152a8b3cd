"""topomend as a user installs it: the image, ``deploy/`` as it is, real containers. One story, told in order.

topomend is installed by the first test and uninstalled by the last; each in between leaves no pod of its own.
"""

import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from tests.e2e import images
from tests.e2e.api import Object
from tests.e2e.cgroups import Memory
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import NEXT_TAG, TAG
from tests.e2e.node import Node
from tests.e2e.pods import (
    NAMESPACE,
    NODE_TOPOLOGIES,
    PODS,
    allowed_cpus,
    deployment,
    has_run,
    is_gated,
    is_refused,
    is_running,
    pod,
    published_cpus,
)
from tests.e2e.programs import wait_for
from tests.e2e.timeline import Timeline
from tests.patience import stretched

from topomend.model.quantity import parse_quantity, value

HERE, THERE = "node-1", "node-2"
AGENT, OPERATOR = "topomend-agent", "topomend-system"
"""The namespaces of the two parts, as ``deploy/`` names them."""

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR}/leases/topomend-operator"

LIVES = 10
"""Pods that come, are refused and are relaunched while topomend is replaced by its next version."""

REASONED = {
    r"INFO": "an ordinary line",
}
"""Lines that a container of ours may write, and why. Whatever no pattern matches from its start fails the story."""


@dataclass
class Story:
    """The cluster, what happened to pods and events since it started, and what was measured."""

    cluster: Cluster
    pods: Timeline
    events: Timeline
    figures: dict[str, str] = field(default_factory=dict)
    memory: dict[str, Memory] = field(default_factory=dict)
    killed: set[str] = field(default_factory=set)
    """Pods of which a container was killed by the story itself."""

    def ours(self) -> list[Object]:
        """The pods of agents and operators."""
        return [
            item for name in (AGENT, OPERATOR) for item in self.cluster.api.items(f"/api/v1/namespaces/{name}/pods")
        ]

    def leader(self) -> Object:
        """The operator's pod that holds the Lease: the Lease's holder is the pod's name and uid."""
        holder = wait_for("an operator to lead", 30, self._holder)
        (pod_name, _, _) = holder.partition("_")
        return self.cluster.api.get(f"/api/v1/namespaces/{OPERATOR}/pods/{pod_name}")

    def refusal(self, name: str) -> float:
        """When pod ``name`` was seen refused."""
        return self.pods.first(f"{name} to be refused", 30, lambda item: _name(item) == name and is_refused(item)).at

    def explained(self, name: str) -> float:
        """When it was seen explained."""
        return self.events.first(
            f"the refusal of {name} to be explained",
            30,
            lambda item: item["reason"] == "TopologyRefusalExplained" and item["regarding"]["name"] == name,
        ).at

    def running(self, name: str, since: float) -> tuple[float, Object]:
        """When the pod ``name`` was seen running again, and the pod."""
        what = f"{name} to run again"
        moment = self.pods.first(what, 60, lambda item: _name(item) == name and is_running(item), since=since)
        return moment.at, moment.object

    def wait_until_published(self, name: str) -> tuple[str, str]:
        """The node and CPUs of a pod, as soon as its agent tells."""
        return wait_for(f"the CPUs of {name} to be published", 30, lambda: published_cpus(self.cluster.api, name))

    def fill(self, node: str, name: str) -> Object:
        """Have pod ``name`` run on ``node``, with the one CPU that it has to give away, and wait until all know."""
        self.cluster.kubectl("create", "--filename=-", stdin=json.dumps(pod(name, node)))
        _, item = self.running(name, 0)
        assert self.wait_until_published(name)[0] == item["spec"]["nodeName"] == node
        return item

    def clear(self) -> None:
        """Remove all pods but topomend's, and wait until all agents know that."""
        for kind in ("deployments", "pods"):
            self.cluster.kubectl("delete", kind, "--all", f"--namespace={NAMESPACE}")
        wait_for("no pod to be published", 30, lambda: not any(map(_holders, self._topologies())))

    def _topologies(self) -> list[Object]:
        found = self.cluster.api.find(NODE_TOPOLOGIES)
        return found["items"] if found else []

    def read_memory(self) -> None:
        """Note what our containers take now, and the most that each kind ever took."""
        for item in self.ours():
            (container,) = (container["name"] for container in item["spec"]["containers"])
            now = self.cluster.memory(item, container)
            before = self.memory.get(container, Memory(0, 0))
            self.memory[container] = Memory(max(now.working_set, before.working_set), max(now.peak, before.peak))

    def _holder(self) -> str:
        lease = self.cluster.api.find(LEASE)
        return str(lease["spec"].get("holderIdentity") or "") if lease else ""


@pytest.fixture(scope="module")
def story(archives: Mapping[str, Path]) -> Iterator[Story]:
    began = time.monotonic()
    with Cluster.up([Node(HERE), Node(THERE)], list(archives.values()), pause=images.IDLE) as cluster:
        print(f"\nthe cluster is up after {time.monotonic() - began:.1f} s")
        events = "/apis/events.k8s.io/v1/events"
        running = Story(cluster, Timeline(cluster.api, "/api/v1/pods"), Timeline(cluster.api, events))
        yield running
        print("\n\nMeasured on containers, as installed:")
        for what, figure in running.figures.items():
            print(f"  {what:42} {figure}")


@pytest.fixture(autouse=True)
def no_pod_is_left(story: Story) -> Iterator[None]:
    yield
    story.clear()


def test_agents_and_operators_are_ready_soon_after_kubectl_apply(story: Story) -> None:
    began = time.monotonic()
    story.cluster.kubectl("apply", "--server-side", "-k", "deploy")
    for kind, namespace in (("daemonset/topomend-agent", AGENT), ("deployment/topomend-operator", OPERATOR)):
        story.cluster.kubectl("rollout", "status", kind, f"--namespace={namespace}", "--timeout=90s")

    def ready() -> bool:
        columns = story.cluster.kubectl("get", "nodetopologies", "--no-headers").splitlines()
        return sorted(line.split()[0] for line in columns if "True" in line.split()) == [HERE, THERE]

    wait_for("every NodeTopology to be ready", 30, ready)
    story.leader()
    story.figures["apply to everything ready"] = f"{time.monotonic() - began:.1f} s"
    assert {item["spec"]["nodeName"] for item in story.ours() if _name(item).startswith("topomend-operator")} == {
        HERE,
        THERE,
    }
    assert {item["spec"]["containers"][0]["image"] for item in story.ours()} == {f"topomend:{TAG}"}


def test_a_pod_with_a_cpu_of_its_own_has_it_and_nobody_else_uses_it(story: Story) -> None:
    story.fill(HERE, "alone")
    _, cpus = story.wait_until_published("alone")
    assert cpus == allowed_cpus(story.cluster, "alone")
    assert cpus.isdigit()
    for other in story.ours():
        if other["spec"]["nodeName"] == HERE:
            (container,) = other["spec"]["containers"]
            processes = story.cluster.processes(other, container["name"])
            what = f"{_name(other)} to leave CPU {cpus}"
            wait_for(what, 15, partial(_leave, processes, int(cpus)))


def test_a_refused_pod_is_explained_and_runs_on_the_other_node_with_exactly_its_cpus(story: Story) -> None:
    story.fill(HERE, "first")
    story.cluster.kubectl("create", "--filename=-", stdin=json.dumps(pod("second", HERE)))
    refused = story.refusal("second")
    explained = story.explained("second")
    running, item = story.running("second", refused)
    story.figures["refused to explained"] = f"{explained - refused:.2f} s"
    story.figures["refused to running elsewhere"] = f"{running - refused:.2f} s"
    assert item["spec"]["nodeName"] == THERE
    node, cpus = story.wait_until_published("second")
    assert (node, cpus) == (THERE, allowed_cpus(story.cluster, "second"))
    assert cpus.isdigit()
    (record,) = story.cluster.api.items(f"/apis/topomend.io/v1alpha1/namespaces/{NAMESPACE}/relaunches")
    conditions = {condition["type"]: condition["status"] for condition in record["status"]["conditions"]}
    assert conditions["Succeeded"] == "True", record["status"]
    explanation = story.cluster.kubectl("get", "events", "--field-selector=reason=TopologyRefusalExplained")
    assert "second" in explanation


def test_a_deployment_that_no_node_has_room_for_is_braked_and_runs_once_there_is_room(story: Story) -> None:
    replicas = 2
    fillers = {HERE: "here", THERE: "there"}
    for node, name in fillers.items():
        story.fill(node, name)
    story.cluster.api.create(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", deployment("storm", HERE, replicas))

    def waiting() -> bool:
        gated = [item for item in _storm(story) if is_gated(item)]
        return len(gated) == replicas

    wait_for("all replicas to wait behind a gate", 30, waiting)
    time.sleep(8)  # a storm would make hundreds in that time
    refused = {
        _uid(moment.object) for moment in story.pods.moments() if _is_storm(moment.object) and is_refused(moment.object)
    }
    story.figures["refused pods of a Deployment of 2"] = str(len(refused))
    assert waiting()
    assert 1 <= len(refused) <= stretched(3 * replicas)  # the operator races the controller that makes them
    assert not any(is_running(item) for item in _storm(story))
    before = time.monotonic()
    story.cluster.kubectl("delete", "pod", *fillers.values(), f"--namespace={NAMESPACE}")
    wait_for("both to run", 60, lambda: sum(map(is_running, _storm(story))) == replicas)
    story.figures["room made to a braked Deployment running"] = f"{time.monotonic() - before:.1f} s"
    assert {item["spec"]["nodeName"] for item in _storm(story) if is_running(item)} == {HERE, THERE}


def test_where_the_leader_is_deleted_the_next_one_leads(story: Story) -> None:
    before = story.leader()
    began = time.monotonic()
    story.cluster.kubectl("delete", "pod", _name(before), f"--namespace={OPERATOR}", "--wait=false")
    after = wait_for("the next leader", 60, lambda: _other_leader(story, before))
    story.figures["leader deleted to next leader"] = f"{after - began:.1f} s"
    _relaunches_go_on(story, "after-deletion")


def test_where_the_leader_is_killed_it_or_the_next_one_leads(story: Story) -> None:
    story.cluster.kubectl(
        "rollout", "status", "deployment/topomend-operator", f"--namespace={OPERATOR}", "--timeout=90s"
    )
    before = story.leader()
    began = time.monotonic()
    for process in story.cluster.processes(before, "operator"):
        os.kill(process, signal.SIGKILL)
    story.killed.add(_name(before))
    # One that is started again in the same pod takes its Lease up at once; else the other one does when it is over.
    last = _lease(story)["renewTime"]
    wait_for("a leader that renews the Lease", 60, lambda: _lease(story)["renewTime"] != last)
    story.figures["leader killed to next leader"] = f"{time.monotonic() - began:.1f} s"
    _relaunches_go_on(story, "after-kill")


def test_an_upgrade_while_pods_are_refused_loses_none_and_doubles_none(story: Story) -> None:
    story.read_memory()
    for kind, namespace, container in (("daemonset", AGENT, "agent"), ("deployment", OPERATOR, "operator")):
        workload = f"{kind}/topomend-{container}"
        story.cluster.kubectl("set", "image", workload, f"{container}=topomend:{NEXT_TAG}", f"--namespace={namespace}")
    names = [f"life-{number}" for number in range(LIVES)]
    for name in names:
        story.cluster.api.create(PODS, pod(name, HERE, "for", "1s", restart="Never"))
        time.sleep(0.7)
    for kind, namespace in (("daemonset/topomend-agent", AGENT), ("deployment/topomend-operator", OPERATOR)):
        story.cluster.kubectl("rollout", "status", kind, f"--namespace={namespace}", "--timeout=120s")

    def unfinished() -> list[str]:
        phases = {_name(item): item["status"].get("phase") for item in story.cluster.api.items(PODS)}
        return [name for name in names if phases.get(name) != "Succeeded"]

    began = time.monotonic()
    wait_for("every pod to have run", 120, lambda: not unfinished())
    story.figures["upgraded to every refused pod run"] = f"{time.monotonic() - began:.1f} s"
    moments = [moment.object for moment in story.pods.moments() if _name(moment.object) in names]
    refused = {_name(item) for item in moments if is_refused(item)}
    story.figures["pods refused during the upgrade"] = f"{len(refused)} of {LIVES}"
    assert refused
    assert {name: len({_uid(item) for item in moments if _name(item) == name and has_run(item)}) for name in names} == (
        dict.fromkeys(names, 1)
    )
    assert {item["spec"]["containers"][0]["image"] for item in story.ours()} == {f"topomend:{NEXT_TAG}"}
    story.clear()
    _relaunches_go_on(story, "after-upgrade")


def test_no_container_of_ours_was_restarted(story: Story) -> None:
    restarts = {
        _name(moment.object): status["restartCount"]
        for moment in story.pods.moments()
        if moment.object["metadata"]["namespace"] in (AGENT, OPERATOR)
        for status in moment.object["status"].get("containerStatuses", ())
        if status["restartCount"]
    }
    assert restarts == dict.fromkeys(story.killed, 1)


def test_no_container_of_ours_wrote_a_line_without_a_reason(story: Story) -> None:
    logs = [log for name in (AGENT, OPERATOR) for log in story.cluster.logs.read(name)]
    assert {log.container for log in logs} == {"agent", "operator"}
    unreasoned = [
        f"{log.pod}[{log.life}]: {line}"
        for log in logs
        for line in log.lines
        if not any(re.match(rf"\d{{4}}-\d\d-\d\d [\d:,]+ {pattern} ", line) for pattern in REASONED)
    ]
    assert unreasoned == []


def test_containers_stay_below_the_memory_that_the_manifests_allow(story: Story) -> None:
    story.read_memory()
    limits = {
        container["name"]: value(parse_quantity(container["resources"]["limits"]["memory"]))
        for item in story.ours()
        for container in item["spec"]["containers"]
    }
    for name, memory in story.memory.items():
        story.figures[f"memory of the {name}'s container"] = (
            f"{memory.working_set / 2**20:.0f} MiB, with pages of files {memory.peak / 2**20:.0f} MiB at most"
            f" (limit {limits[name] / 2**20:.0f} MiB)"
        )
    assert {name: memory.peak < limits[name] for name, memory in story.memory.items()} == dict.fromkeys(limits, True)


def test_kubectl_delete_leaves_no_object_of_ours(story: Story) -> None:
    began = time.monotonic()
    story.cluster.kubectl("delete", "-k", "deploy", "--timeout=100s", seconds=150)
    story.figures["kubectl delete"] = f"{time.monotonic() - began:.1f} s"
    kinds = ",".join(story.cluster.kubectl("api-resources", "--verbs=list", "--output=name").split())
    assert "topomend.io" not in kinds
    left = story.cluster.kubectl(
        "get", kinds, "--all-namespaces", "--output=name", "--selector=app.kubernetes.io/part-of=topomend"
    )
    assert left == ""
    names = story.cluster.kubectl("get", kinds, "--all-namespaces", "--output=name").split()
    assert [name for name in names if "topomend" in name and "topomend-e2e:nodes" not in name] == []
    assert [_name(item) for item in story.cluster.api.items(PODS) if "topomend.io/" in json.dumps(item["spec"])] == []


def _relaunches_go_on(story: Story, name: str) -> None:
    """A pod that takes the one free CPU of a node, and a second one that is refused there, both run in the end."""
    names = (f"{name}-1", f"{name}-2")
    story.fill(HERE, names[0])
    story.cluster.api.create(PODS, pod(names[1], HERE))
    refused = story.refusal(names[1])
    story.explained(names[1])
    _, item = story.running(names[1], refused)
    assert item["spec"]["nodeName"] == THERE


def _other_leader(story: Story, before: Object) -> float | None:
    """The time, once another pod than ``before`` leads."""
    holder = _lease(story).get("holderIdentity") or ""
    return None if holder in {"", f"{_name(before)}_{_uid(before)}"} else time.monotonic()


def _lease(story: Story) -> Object:
    spec: Object = story.cluster.api.get(LEASE)["spec"]
    return spec


def _storm(story: Story) -> list[Object]:
    return [item for item in story.cluster.api.items(PODS) if _is_storm(item)]


def _is_storm(item: Object) -> bool:
    return bool(item["metadata"].get("labels", {}).get("app") == "storm")


def _leave(processes: list[int], cpu: int) -> bool:
    """Whether none of the processes may use the CPU."""
    return not any(cpu in os.sched_getaffinity(process) for process in processes)


def _holders(topology: Object) -> Object:
    holders: Object = topology.get("status", {}).get("pods", ())
    return holders


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def _uid(item: Object) -> str:
    return str(item["metadata"]["uid"])
