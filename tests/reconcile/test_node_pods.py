"""The list of the pods on a node, by a clock that the test moves, from pods that the test makes up."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.builders import pod, pod_manifest
from tests.clock import Clock
from tests.reconcile.threads import at_once

from topomend.kube.client import Reading, Resource
from topomend.model.pod import Pod
from topomend.reconcile.node_pods import FRESH_SECONDS, NodePods


class Pods:
    """The pods on any node, by their uids."""

    def __init__(self, *uids: str, containers: Sequence[str] = ()) -> None:
        self.uids, self.containers, self.lists = list(uids), containers, 0

    def read(
        self, _: Resource, reader: Callable[[dict[str, Any]], Iterable[Pod]], *, fields: str, cached: bool
    ) -> Reading[Pod]:
        self.lists += 1
        assert fields.startswith("spec.nodeName=")
        assert cached
        contents = (pod_manifest(uid, *self.containers, namespace="ns", uid=uid) for uid in self.uids)
        return Reading(tuple(value for content in contents for value in reader(content)), "1")


def test_a_list_is_used_for_a_moment_with_the_pods_assumed_since() -> None:
    clock, api = Clock(), Pods("a")
    pods = NodePods(api, clock)  # type: ignore[arg-type]
    assert pods.listed("node") is None
    assert set(pods.list("node")) == {"a"}
    pods.assume(pod("b"), ["node", "other"])
    api.uids = []
    clock.now += FRESH_SECONDS / 2
    assert set(pods.listed("node") or ()) == {"a", "b"}
    assert pods.listed("other") is None
    clock.now += FRESH_SECONDS
    assert pods.listed("node") is None
    assert api.lists == 1


def test_of_a_pod_of_thousands_of_containers_its_requests_alone_are_kept() -> None:
    containers = ["request:cpu=1m", *["request:cpu=0"] * 5_000]
    pods = NodePods(Pods("a", containers=containers))  # type: ignore[arg-type]
    assert pods.list("node") == {"a": {"cpu": 1}}


def test_listing_again_replaces_the_list() -> None:
    api = Pods("a")
    pods = NodePods(api)  # type: ignore[arg-type]
    pods.list("node")
    api.uids = ["b"]
    assert set(pods.list("node")) == {"b"}
    assert set(pods.listed("node") or ()) == {"b"}


def test_a_pod_assumed_while_another_node_is_listed_is_not_lost() -> None:
    pods, assumed = NodePods(Pods(), Clock()), [str(number) for number in range(4000)]  # type: ignore[arg-type]
    for number in range(500):  # so that forgetting old lists takes a while
        pods.list(f"other-{number}")
    pods.list("node")
    done = threading.Event()

    def assume_all() -> None:
        for uid in assumed:
            pods.assume(pod(uid), ["node"])
        done.set()

    def list_others() -> None:
        while not done.is_set():
            pods.list("other-0")

    at_once([assume_all, list_others, list_others])
    assert set(pods.listed("node") or ()) == set(assumed)
