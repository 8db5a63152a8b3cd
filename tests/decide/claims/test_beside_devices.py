"""Which nodes are preferred for the devices of a pod's claims, and that no more than a preference follows."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import gated_pod, node_state, refused_pod, snapshot_of

from topomend.decide import gang
from topomend.decide import plan as plans
from topomend.decide.claims.beside_devices import KnownDevices, beside_devices, preference_words
from topomend.decide.claims.device_claims import ClaimAnswer, Sharing
from topomend.decide.diagnosis.node_status import RejectedBy
from topomend.model.devices.device_supply import DeviceSupply, PodClaim, PodClaims
from topomend.model.devices.offered_device import DeviceRequest, OfferedDevice, Selector
from topomend.model.narrowing import Narrowing
from topomend.model.pods.scheduling import PodGroup, WatchedPod

GPU = "gpu.example.com"
SNAPSHOT = snapshot_of(*(node_state(name=name) for name in "abcd"))
"""Every kubelet would place two CPUs on NUMA node 0. In what the scheduler knows the nodes are alike."""


def gpus(node: str, *numa_nodes: int) -> list[OfferedDevice]:
    return [OfferedDevice(GPU, node, f"gpu-{number}", node, on) for number, on in enumerate(numa_nodes)]


def train(name: str = "train", **fields: Any) -> WatchedPod:
    return gated_pod(name, 2, scheduler_rules=("resourceClaims",), **fields)


def known(*devices: OfferedDevice, request: DeviceRequest | None = None, nodes: str = "abcd") -> KnownDevices:
    claims = PodClaims((PodClaim("gpu", (request or DeviceRequest("one", GPU),)),), {"c0": [("gpu", "")]})
    supply = DeviceSupply(tuple(devices), classes={GPU: (Selector(GPU),)})
    pods = [train(), *members()]
    return KnownDevices(supply, frozenset(nodes), {pod.uid: claims for pod in pods})


def members() -> list[WatchedPod]:
    group = PodGroup("kueue.x-k8s.io", "train")
    return [train(f"train-{number}", group=group) for number in range(3)]


def chosen(devices: KnownDevices | None, pod: WatchedPod | None = None) -> plans.RelaunchOn:
    choice = plans.choose(SNAPSHOT, pod or train(), None, devices=devices)
    assert isinstance(choice, plans.RelaunchOn)
    return choice


def test_nodes_come_first_whose_free_device_is_where_the_cpus_would_be_and_no_other_node_is_left_out() -> None:
    apart, together = gpus("a", 1), gpus("c", 0)
    choice = chosen(known(*apart, *together))
    assert choice.nodes == ("c", "a", "b", "d")
    assert choice.narrowing == Narrowing(("c", "a", "b", "d"), preferred=1)
    assert choice.reason == (
        "c NUMA 0 admits it by replay; free devices of its claims are beside its CPUs there: c NUMA 0"
    )
    assert plans.devices_of(choice) == ("c", choice.beside["c"])


def test_where_any_device_would_be_there_is_better_than_where_the_scheduler_may_take_another() -> None:
    some, every = gpus("b", 1, 0), gpus("d", 0, 0)
    assert chosen(known(*some, *every)).nodes[:2] == ("d", "a")
    assert chosen(known(*some)).nodes[:2] == ("b", "a")


def test_all_nodes_are_preferred_that_are_equally_good_and_the_event_names_three() -> None:
    devices = [device for name in "bcd" for device in gpus(name, 0)]
    choice = chosen(known(*devices))
    assert choice.narrowing.preferred == 3
    assert choice.reason.endswith("there: b NUMA 0, c NUMA 0, d NUMA 0")
    assert chosen(known(*devices, *gpus("a", 0))).reason.endswith("there: a NUMA 0, b NUMA 0, c NUMA 0 and 1 more")


def test_where_every_node_is_as_good_the_order_is_the_usual_one() -> None:
    every = chosen(known(*(device for name in "abcd" for device in gpus(name, 0))))
    assert every.narrowing == chosen(None).narrowing


@pytest.mark.parametrize(
    "devices",
    [
        known(),
        known(*gpus("c", 1)),
        known(*gpus("c", 0), request=DeviceRequest("one", "other")),
        known(*gpus("c", 0), request=DeviceRequest("one", GPU, selectors=(None,))),
        known(*(replace(device, not_judged="unread") for device in gpus("c", 0))),
        known(*gpus("c", 0), nodes="abd"),
        replace(known(*gpus("c", 0)), claims={}),
        None,
    ],
    ids=["no device", "apart", "no class", "CEL", "an unread slice", "not asked", "another pod", "switched off"],
)
def test_what_is_not_known_to_be_together_is_not_preferred(devices: KnownDevices | None) -> None:
    choice = chosen(devices)
    assert (choice.nodes, choice.beside) == (("a", "b", "c", "d"), {})
    assert choice.reason == "a NUMA 0 admits it by replay"


def test_one_slice_that_cannot_be_read_keeps_no_other_node_from_being_preferred() -> None:
    unread = [replace(device, not_judged="unread") for device in gpus("c", 0)]
    assert chosen(known(*unread, *gpus("d", 0))).nodes[0] == "d"


def test_a_node_left_out_afterwards_takes_its_preference_along() -> None:
    choice = chosen(known(*gpus("c", 0), *gpus("d", 0))).without(["c"])
    assert (choice.nodes, choice.narrowing.preferred) == (("d", "a", "b"), 1)
    assert choice.reason.endswith("there: d NUMA 0")
    assert choice.without(["d"]).reason == "a NUMA 0 admits it by replay"


def test_the_node_that_refused_the_pod_stays_the_last_one() -> None:
    pod = replace(refused_pod(scheduler_rules=("resourceClaims",)), uid=train().uid, pod=train().pod)
    choice = plans.choose(SNAPSHOT, pod, RejectedBy("c", None), devices=known(*gpus("c", 0)))
    assert isinstance(choice, plans.RelaunchOn)
    assert (choice.nodes[-1], choice.beside) == ("c", {})


def test_the_pods_of_a_group_prefer_devices_that_are_left_by_those_before_them() -> None:
    devices = known(*gpus("b", 0), *gpus("d", 0))
    placed = gang.choose_for_all(SNAPSHOT, members(), devices=devices)
    assert not isinstance(placed, gang.Unplaced)
    assert [(each.node, len(each.parts)) for each in placed] == [("b", 1), ("d", 1), ("a", 0)]


def test_a_node_that_does_not_admit_the_pod_has_no_answer() -> None:
    wide = replace(train().pod, containers=gated_pod("wide", 40).pod.containers)
    assert beside_devices(SNAPSHOT, wide, "abcd", known(*gpus("c", 0))) == {}


def test_a_sentence_tells_what_is_preferred_by_the_same_rule() -> None:
    def words(*sharings: Sharing) -> str:
        answers = {f"n{number}": ClaimAnswer(sharing, "") for number, sharing in enumerate(sharings)}
        return preference_words(answers, len(answers)).removeprefix(
            "with the component claims, a preferred node affinity names "
        )

    together, some, apart = Sharing.TOGETHER, Sharing.POSSIBLE, Sharing.APART
    assert words() == ""
    assert words(Sharing.NOT_PINNED, Sharing.NOT_PINNED) == ""
    assert words(apart, together, some).startswith("n1: free devices")
    assert words(*[some] * 5, apart).startswith("n0, n1, n2 and 2 more: ")
    assert words(together, together).startswith("no node: free devices of its claims are beside its CPUs on all")
    assert words(apart, Sharing.UNKNOWN).endswith("is unknown")
    assert words(apart).startswith("no node: on none")
