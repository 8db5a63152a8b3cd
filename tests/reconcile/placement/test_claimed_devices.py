"""What is asked of an API server before a pod with claims is let go, how often, and what is not known afterwards."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.builders import TWO_NUMA_NODES, applied, gated_pod, node_state, snapshot_of
from tests.cli.numa.cluster.devices.test_device_claims import GPU, OF_OTHERS, slice_of, three_nodes, train
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import ServedLists
from tests.clock import Clock
from tests.intercepted import Intercepted

from topomend.cache import changes
from topomend.decide import plan as plans
from topomend.kube.client import connect
from topomend.kube.errors import Unanswered
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.placement import claimed_devices
from topomend.reconcile.placement.claimed_devices import (
    BOUND_SECONDS,
    CLAIMS_SECONDS,
    LISTING_SHARE,
    LISTS_SECONDS,
    MAX_NODES,
    OFF_SECONDS,
    READING_SECONDS,
    REST_SECONDS,
    SLICES_SECONDS,
    ClaimedDevices,
)
from topomend.reconcile.store import Store
from topomend.wire.pods.pod import read_pod

ASKED = {"resourceslices", "resourceclaims", "deviceclasses", "devicetaintrules"}


class Scene:
    """Nodes a, b and c, of which c alone has a device beside the CPUs.

    ``asked`` has the kind of each request, and each takes so many ``seconds``.
    """

    def __init__(self, cluster: ServedLists, kubeconfig: Path, *, enabled: bool = True) -> None:
        self.cluster, self.clock, self.cpu, self.store = cluster, Clock(), Clock(0.0), Store()
        self.asked, self.seconds = list[str](), 0.0
        self.fails = False
        client = Intercepted(connect(str(kubeconfig)), self._seen)
        self.is_served = True
        self.part = ClaimedDevices(
            client,
            self.store,
            enabled=enabled,
            is_served=lambda: self.is_served,
            clock=self.clock,
            cpu_clock=self.cpu,
        )
        self.store.snapshot = snapshot_of(*(node_state(TWO_NUMA_NODES, name=name) for name in "abc"))
        self.pod = waiting("train")

    def _seen(self, _: str, target: str) -> None:
        path, _, query = target.partition("?")
        selected = "".join(part for part in query.split("&") if part.startswith("fieldSelector"))
        self.clock.now += self.seconds
        self.asked.append(path.rpartition("/")[2] + selected.removeprefix("fieldSelector=spec.nodeName%3D"))
        if self.fails:
            raise Unanswered("it does not answer")

    def best(self, pod: WatchedPod | None = None) -> str:
        """The preferred node of the pod, which is let go for it; empty where none is preferred."""
        pod = pod or self.pod
        devices = self.part.left(self.part.on_best_nodes((pod,)), pod)
        choice = plans.choose(self.store.snapshot, pod, None, devices=devices)
        node, parts = plans.devices_of(choice)
        self.part.note(pod, node, parts)
        return node if parts else ""


def waiting(name: str) -> WatchedPod:
    pod = gated_pod(name, 2, namespace="default", scheduler_rules=("resourceClaims",))
    return replace(pod, pod=replace(pod.pod, namespace="default"))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    cluster = three_nodes(train())
    other = train()
    other["metadata"]["name"] = "other"
    cluster.items["pods"] = [train(), other]
    with kubeconfig_of(cluster, tmp_path) as kubeconfig:
        yield Scene(cluster, kubeconfig)


def test_the_slices_of_the_nodes_that_admit_the_pod_are_read_and_those_of_no_node(scene: Scene) -> None:
    assert scene.best() == "c"
    assert [one for one in scene.asked if one.startswith("resourceslices")] == [
        f"resourceslices{node}" for node in ("", "a", "b", "c")
    ]
    assert [one for one in scene.asked if one in ("train", "gpu", *ASKED)].count("resourceclaims") == 1
    assert scene.asked[-2:] == ["train", "gpu"], "the pod itself and the template that it names"


def test_what_was_read_is_remembered_for_a_while(scene: Scene) -> None:
    scene.best()
    scene.asked.clear()
    assert scene.best() == "c"
    assert scene.asked == []
    scene.clock.now += LISTS_SECONDS
    assert scene.best() == "c"
    assert scene.asked == ["devicetaintrules", "deviceclasses", "resourceclaims"]
    scene.clock.now += SLICES_SECONDS
    assert scene.best() == "c"
    assert scene.asked.count("resourceslicesc") == 1


def test_the_longer_it_takes_to_list_all_claims_the_more_seldom_that_is_done(scene: Scene) -> None:
    read = scene.part._client.read

    def slowly(*arguments: object, **named: object) -> object:
        scene.cpu.now += 0.1
        return read(*arguments, **named)  # type: ignore[arg-type]

    scene.part._client.read = slowly  # type: ignore[method-assign, assignment]
    scene.best()
    scene.clock.now += 0.3 / LISTING_SHARE - 0.01
    scene.asked.clear()
    scene.best()
    assert scene.asked.count("resourceclaims") == 0
    scene.clock.now += 0.02
    scene.best()
    assert scene.asked.count("resourceclaims") == 1


def test_the_device_of_a_pod_that_was_just_let_go_is_not_free_for_the_next_one(scene: Scene) -> None:
    other = waiting("other")
    assert scene.best() == "c"
    its = replace(scene.pod.pod, containers=())  # no CPUs: these are not the matter here
    scene.store.snapshot = applied(changes.PodAssumed(its, ("c",), 0.0), to=scene.store.snapshot)
    scene.clock.now += LISTS_SECONDS + BOUND_SECONDS
    assert scene.best(other) == "", "it is on its way, and no list of claims has its device yet"
    gone = changes.PodForgotten(scene.pod.namespace, scene.pod.name, scene.pod.uid)
    scene.store.snapshot = applied(gone, to=scene.store.snapshot)
    scene.clock.now += LISTS_SECONDS
    assert scene.best(other) == "c"


def test_a_device_that_a_claim_has_is_not_free(scene: Scene) -> None:
    result = {"request": "one", "driver": GPU, "pool": "c", "device": "gpu-0"}
    allocated = {"allocation": {"devices": {"results": [result]}}}
    scene.cluster.items["resourceclaims"] = [{"metadata": {"name": "x", "namespace": "y"}, "status": allocated}]
    assert scene.best() == ""


@pytest.mark.parametrize("plural", ["resourceslices", "resourceclaims"])
def test_without_the_right_nobody_is_asked_for_a_while_and_the_log_says_it_once(
    plural: str, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.cluster.forbidden.add(plural)
    assert scene.best() == ""
    scene.asked.clear()
    scene.clock.now += OFF_SECONDS - 1
    assert scene.best() == ""
    assert scene.asked == []
    scene.clock.now += 1
    assert scene.best() == ""
    assert scene.asked != []
    assert [record.message for record in caplog.records] == [
        f"no node is preferred for the devices of claims: they cannot be read: {caplog.records[0].args[0]}"  # type: ignore[index]
    ]
    scene.cluster.forbidden.clear()
    scene.clock.now += OFF_SECONDS
    assert scene.best() == "c"


def test_where_the_api_is_not_served_nothing_is_preferred(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """As before Kubernetes 1.34, which serves no resource.k8s.io/v1."""
    for plural in ASKED:
        scene.cluster.items.pop(plural, None)
    assert scene.best() == ""
    assert "they cannot be read: 404" in caplog.text


def test_nobody_is_asked_while_the_api_is_known_not_to_be_served(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.is_served = False
    assert scene.best() == ""
    assert (scene.asked, caplog.records) == ([], [])
    scene.is_served = True
    assert scene.best() == "c"


@pytest.mark.parametrize("named", OF_OTHERS)
def test_a_broken_object_takes_no_preference_away_and_the_log_names_it_once(
    named: str, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    plural, content = OF_OTHERS[named]
    spec = content.get("spec", {}) | ({"nodeName": "c"} if plural == "resourceslices" else {})
    broken = {**content, "metadata": {"name": "other"}, "spec": spec}
    scene.cluster.items[plural] = [*scene.cluster.items.get(plural, ()), broken]
    for _ in range(2):
        assert scene.best() == "c"
        scene.clock.now += SLICES_SECONDS
    (record,) = caplog.records
    assert f"{named.removesuffix(' of nothing')} cannot be read: " in record.message


def test_an_api_server_that_does_not_answer_is_left_alone_for_a_while(scene: Scene) -> None:
    scene.fails = True
    assert scene.best() == ""
    scene.fails = False
    assert scene.best() == ""
    scene.clock.now += REST_SECONDS
    assert scene.best() == "c"


def test_claims_for_which_there_is_no_time_are_unknown_for_a_while(scene: Scene) -> None:
    """Each claim of a pod costs a request, and the API server takes its time for each."""
    content = train()
    content["spec"]["resourceClaims"] = [
        {"name": f"gpu-{number}", "resourceClaimTemplateName": "gpu"} for number in range(30)
    ]
    scene.cluster.items["pods"] = [content]
    scene.seconds = 0.2
    assert scene.best() == ""
    assert READING_SECONDS / scene.seconds <= len(scene.asked) <= READING_SECONDS / scene.seconds + 1
    scene.asked.clear()
    scene.clock.now += CLAIMS_SECONDS - 1
    scene.best()
    assert "train" not in scene.asked


def test_the_devices_of_a_node_that_offers_too_many_are_unknown(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has a node's credentials may write slices of that node, as many as etcd takes."""
    assert scene.best() == "c"
    monkeypatch.setattr(claimed_devices, "MAX_DEVICES", 3)
    scene.cluster.items["resourceslices"] = [slice_of("b", 0, 0, 0, 0), slice_of("c", 0, 0, 0)]
    for _ in range(2):
        scene.clock.now += SLICES_SECONDS
        assert scene.best() == "c"
    assert [record.getMessage() for record in caplog.records] == [
        "no node is preferred for the devices of claims by it: the ResourceSlices of b have more than 3 devices"
    ]


def test_a_pod_without_claims_costs_no_request(scene: Scene) -> None:
    assert scene.best(gated_pod("train", 2, namespace="default")) == ""
    assert scene.asked == []


def test_a_pod_that_asks_for_an_extended_resource_of_a_class_has_a_claim(scene: Scene) -> None:
    scene.store.snapshot = applied(
        changes.DeviceClassesListed(frozenset(("example.com/gpu",))), to=scene.store.snapshot
    )
    content = train()
    del content["spec"]["resourceClaims"], content["spec"]["containers"][0]["resources"]["claims"]
    content["spec"]["containers"][0]["resources"]["limits"] |= {"example.com/gpu": "1"}
    scene.cluster.items["pods"] = [content]
    assert scene.best(replace(scene.pod, scheduler_rules=(), pod=read_pod(content))) == "c"


def test_a_pod_that_no_node_admits_costs_no_request(scene: Scene) -> None:
    assert scene.best(replace(scene.pod, pod=gated_pod("train", 40).pod)) == ""
    assert scene.asked == []


def test_switched_off_it_asks_nobody(tmp_path: Path) -> None:
    with kubeconfig_of(three_nodes(train()), tmp_path) as kubeconfig:
        scene = Scene(three_nodes(train()), kubeconfig, enabled=False)
        assert scene.best() == ""
        assert scene.asked == []


def test_of_many_nodes_the_best_are_asked_about(scene: Scene) -> None:
    names = [f"n{number:03}" for number in range(MAX_NODES + 8)]
    scene.store.snapshot = snapshot_of(*(node_state(TWO_NUMA_NODES, name=name) for name in names))
    scene.cluster.items["resourceslices"] = [slice_of(names[MAX_NODES - 1], 0), slice_of(names[MAX_NODES], 0)]
    assert scene.best() == names[MAX_NODES - 1]
    assert len([one for one in scene.asked if one.startswith("resourceslices")]) == 1 + MAX_NODES
