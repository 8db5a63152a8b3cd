"""topomend as a user installs it by helm: the chart as it is, real containers. One story; the tests run in order."""

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from deploy.helm.chart import CHART
from tests.waiting import eventually, stretched
from tools.chart import programs
from verify.e2e import images
from verify.e2e.conftest import NEXT_TAG, TAG
from verify.e2e.containers.cluster import Cluster
from verify.e2e.containers.node import Node
from verify.e2e.containers.programs import Failed
from verify.e2e.steps.installed import AGENT, OPERATOR, Installed, name_of, uid_of
from verify.e2e.steps.pods import NAMESPACE, PODS, is_gated, is_running, marks_on, pod
from verify.e2e.steps.waiting_pods import create_waiting_pods, ran, replica

HERE, THERE = "node-1", "node-2"
NAME = "topomend"
"""Of helm's release."""

READY_SECONDS = 60
WAIT = ("--wait", "--timeout=150s")


@pytest.fixture(scope="module")
def story(archives: Mapping[str, Path]) -> Iterator[Installed]:
    programs.program("helm4")  # built once, which takes longer than the installation may
    with Cluster.up([Node(HERE), Node(THERE)], list(archives.values()), pause=images.IDLE) as cluster:
        yield Installed.to_be(cluster)


def test_after_helm_install_everything_is_ready_within_a_minute(story: Installed) -> None:
    began = time.monotonic()
    told = story.cluster.helm("install", NAME, str(CHART), *WAIT)
    story.wait_until_it_works([HERE, THERE])
    seconds = time.monotonic() - began
    print(f"helm install to everything ready: {seconds:.1f} s")
    assert seconds <= stretched(READY_SECONDS)
    assert f"the operator in namespace {OPERATOR}, agents in {AGENT}" in told
    assert story.images() == {AGENT: {f"topomend:{TAG}"}, OPERATOR: {f"topomend:{TAG}"}}
    story.relaunch("pod", HERE, THERE)
    story.clear()


def test_helm_test_asks_whether_every_node_publishes_its_topology(story: Installed) -> None:
    told = story.cluster.helm("test", NAME, "--timeout=150s")
    assert re.search(r"^Phase: +Succeeded$", told, re.MULTILINE), told


def test_an_upgrade_and_a_rollback_lose_and_double_no_pod_that_waits(story: Installed) -> None:
    story.relaunch("before", HERE, THERE)
    once = create_waiting_pods(story, HERE)
    waiting = {*once, replica(story)}
    story.cluster.helm("upgrade", NAME, str(CHART), f"--set=image.tag={NEXT_TAG}", *WAIT)
    assert set().union(*story.images().values()) == {f"topomend:{NEXT_TAG}"}
    story.cluster.kubectl("delete", "pod", "before-2", f"--namespace={NAMESPACE}")
    eventually("one of the waiting pods to run", lambda: waiting & ran(story).keys(), 60)
    story.cluster.helm("rollback", NAME, "1", *WAIT)
    assert set().union(*story.images().values()) == {f"topomend:{TAG}"}
    story.cluster.kubectl("delete", "pod", "before-1", f"--namespace={NAMESPACE}")
    eventually("every waiting pod to run", lambda: {*once, replica(story)} <= ran(story).keys(), 60)
    assert {name: len(ran(story)[name]) for name in once} == dict.fromkeys(once, 1)
    story.cluster.kubectl("label", "namespace", NAMESPACE, "topomend.io/steer-")
    story.clear()
    story.relaunch("after", HERE, THERE)
    story.clear()
    assert story.unexpected_lines() == []


def test_helm_uninstall_drains_first_and_leaves_the_kinds_alone(story: Installed) -> None:
    story.fill(HERE, "stays")
    story.fill(THERE, "stays-too")
    story.cluster.kubectl("label", "namespace", NAMESPACE, "topomend.io/steer=enabled")
    eventually("new pods to be gated", story.gates_new_pods, 30)
    story.cluster.api.create(PODS, pod("steered", HERE))
    assert is_gated(story.cluster.api.get(f"{PODS}/steered"))
    before = {name_of(item): uid_of(item) for item in story.cluster.api.items(PODS)}
    began = time.monotonic()
    story.cluster.helm("uninstall", NAME, "--wait", "--timeout=300s", seconds=330)
    print(f"helm uninstall: {time.monotonic() - began:.1f} s")
    pods = story.cluster.api.items(PODS)
    assert {name_of(item): uid_of(item) for item in pods} == before
    assert {name_of(item): marks for item in pods if (marks := marks_on(item))} == {}
    assert {name_of(item) for item in pods if is_running(item)} >= {"stays", "stays-too"}
    eventually("only the kinds and their objects to be left", lambda: all("topomend.io" in one for one in _left(story)))
    topologies = {f"nodetopology.topomend.io/{node}" for node in (HERE, THERE)}
    eventually("both publications", lambda: {name for name in _left(story) if "/node-" in name} == topologies)
    story.cluster.kubectl("delete", "crd", "--selector=app.kubernetes.io/name=topomend")
    eventually("nothing to be left", lambda: not _left(story))


def _left(story: Installed) -> list[str]:
    """The objects that are called after topomend, or why they cannot be listed: kinds go while they are."""
    try:
        kinds = ",".join(story.cluster.kubectl("api-resources", "--verbs=list", "--output=name").split())
        names = story.cluster.kubectl("get", kinds, "--all-namespaces", "--output=name", "--ignore-not-found").split()
    except Failed as failure:
        return [f"topomend: {failure}"]
    return [name for name in names if "topomend" in name and not name.startswith(_OF_OTHERS)]


_OF_OTHERS = ("clusterrolebinding.rbac.authorization.k8s.io/topomend-e2e:nodes", "event")
"""The cluster's own binding, and what was told of topomend's objects."""
