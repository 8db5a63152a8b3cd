"""Whether the devices of a pod's claims could be where its kubelet would place it."""

import time
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import TWO_NUMA_NODES, guaranteed_pod, node, node_state, pod

from topomend.decide.claims.device_claims import ClaimAnswer, Sharing, claims_on
from topomend.model.devices.claimed_device import ClaimedDevice
from topomend.model.devices.device_supply import DeviceSupply, PodClaim, PodClaims
from topomend.model.devices.offered_device import (
    DeviceCapacity,
    DeviceRequest,
    DeviceTaint,
    DeviceToleration,
    OfferedDevice,
    Selector,
)
from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import admit

GPU = "gpu.example.com"
TRAIN = guaranteed_pod("train", 2)
"""Its container c0 gets CPUs of NUMA node 0."""


def state_with(a_pod: Any = TRAIN) -> NodeState:
    verdict, after = admit(node_state(TWO_NUMA_NODES, name="a"), a_pod)
    assert verdict.admitted
    return after


def gpu(number: int, numa_node: int | None, **fields: Any) -> OfferedDevice:
    attributes = {} if numa_node is None else {"resource.kubernetes.io/numaNode": numa_node}
    return OfferedDevice(
        GPU, "a", f"gpu-{number}", **{"node": "a", "numa_node": numa_node, "attributes": attributes} | fields
    )


def supply(*devices: OfferedDevice, **fields: Any) -> DeviceSupply:
    return DeviceSupply(devices, **{"classes": {GPU: (Selector(GPU),)}} | fields)


def claims(*requests: DeviceRequest, container: str = "c0", **fields: Any) -> PodClaims:
    requests = requests or (DeviceRequest("one", GPU),)
    return PodClaims((PodClaim("gpu", requests, **fields),), {container: [("gpu", "")]})


def answer(of: DeviceSupply, asked: PodClaims | None = None, a_pod: Any = TRAIN, **on: Any) -> ClaimAnswer:
    found = claims_on(of, node("a", **on), state_with(a_pod), a_pod, asked or claims())
    assert found is not None
    return found


def test_devices_that_are_all_where_the_cpus_would_be_are_together_whichever_the_scheduler_takes() -> None:
    assert answer(supply(gpu(0, 0), gpu(1, 0))) == ClaimAnswer(
        Sharing.TOGETHER,
        f"a: its kubelet would place container c0 on NUMA 0; all free devices of {GPU} are there too",
        answer(supply(gpu(0, 0))).parts,
    )


def test_where_some_are_elsewhere_the_claim_can_choose() -> None:
    found = answer(supply(gpu(0, 1), gpu(1, 0)))
    assert found.sharing is Sharing.POSSIBLE
    assert found.words == (
        f"a: its kubelet would place container c0 on NUMA 0; of the free devices of {GPU} some are there, and the "
        'scheduler chooses; the selector device.attributes["resource.kubernetes.io"].numaNode == 0 in the claim '
        "makes it sure"
    )
    assert [part.device.name for part in found.parts] == ["gpu-1"]
    chosen = DeviceRequest("one", GPU, selectors=(Selector(attributes=(("resource.kubernetes.io/numaNode", 0),)),))
    assert answer(supply(gpu(0, 1), gpu(1, 0)), claims(chosen)).sharing is Sharing.TOGETHER


def test_no_selector_is_advised_where_the_driver_does_not_publish_the_standard_attribute() -> None:
    own = {"attributes": {f"{GPU}/numa": 0}}
    assert answer(supply(gpu(0, 1), gpu(1, 0, **own))).words.endswith("and the scheduler chooses")


def test_where_none_is_there_they_would_be_apart() -> None:
    found = answer(supply(gpu(0, 1), gpu(1, 1)))
    assert found.sharing is Sharing.APART
    assert found.words.endswith(f"too few free devices of {GPU} are there: these would be apart")


def test_two_devices_are_together_only_if_both_can_be() -> None:
    two = claims(DeviceRequest("two", GPU, count=2))
    assert answer(supply(gpu(0, 0), gpu(1, 1)), two).sharing is Sharing.APART
    assert answer(supply(gpu(0, 0), gpu(1, 0)), two).sharing is Sharing.TOGETHER
    assert answer(supply(gpu(0, 0)), two).words == f"a: 1 of 1 devices of {GPU} are free, and request two needs 2"


def test_requests_share_the_devices_so_that_each_has_one_of_its_own() -> None:
    """The first request may have either, the second one alone: giving the first what comes first leaves none."""
    first = DeviceRequest("any", GPU)
    second = DeviceRequest("old", GPU, selectors=(Selector(attributes=((f"{GPU}/old", True),)),))
    old, new = gpu(0, 0, attributes={f"{GPU}/old": True}), gpu(1, 0, attributes={f"{GPU}/old": False})
    assert answer(supply(old, new), claims(first, second)).sharing is Sharing.TOGETHER
    assert answer(supply(old), claims(first, second)).words == f"a: too few free devices of {GPU} for all its requests"


def test_a_taken_or_tainted_device_is_not_free_unless_the_request_tolerates_that() -> None:
    tainted = gpu(1, 0, taints=(DeviceTaint("broken"),))
    found = answer(supply(gpu(0, 0), tainted, taken=frozenset([gpu(0, 0).key])))
    assert found.sharing is Sharing.NO_DEVICE
    assert (
        found.words == f"a: 0 of 2 devices of {GPU} are free (1 taken or too small, 1 tainted), and request one needs 1"
    )
    tolerant = DeviceRequest("one", GPU, tolerations=(DeviceToleration("broken", "Exists"),))
    assert answer(supply(tainted), claims(tolerant)).sharing is Sharing.TOGETHER


def test_devices_of_other_nodes_do_not_count_and_those_of_every_node_do() -> None:
    assert answer(supply(gpu(0, 0, node="b"))).sharing is Sharing.NO_DEVICE
    assert answer(supply(gpu(0, 0, node=""))).sharing is Sharing.TOGETHER


@pytest.mark.parametrize("capacity", ["memory", f"{GPU}/memory"])
def test_a_capacity_is_the_same_with_and_without_its_domain(capacity: str) -> None:
    device = gpu(0, 0, capacity={f"{GPU}/memory": DeviceCapacity(8)})
    assert answer(supply(device), claims(DeviceRequest("one", GPU, capacity={capacity: 8}))).sharing is Sharing.TOGETHER
    assert (
        answer(supply(device), claims(DeviceRequest("one", GPU, capacity={capacity: 9}))).sharing is Sharing.NO_DEVICE
    )


def test_a_capacity_named_twice_is_an_error_of_the_scheduler() -> None:
    device = gpu(0, 0, capacity={f"{GPU}/memory": DeviceCapacity(8)})
    twice = DeviceRequest("one", GPU, capacity={"memory": 1, f"{GPU}/memory": 1})
    assert "with and without its domain" in answer(supply(device), claims(twice)).words


def test_of_a_shared_device_what_is_left_counts() -> None:
    device = gpu(0, 0, is_shared=True, capacity={f"{GPU}/cpu": DeviceCapacity(8)})
    part = DeviceRequest("one", GPU, capacity={"cpu": 3})
    left = supply(device)
    for _ in range(2):
        found = answer(left, claims(part))
        assert found.sharing is Sharing.TOGETHER
        left = left.without(found.parts)
    assert answer(left, claims(part)).sharing is Sharing.NO_DEVICE


def test_what_a_pod_gets_is_taken_from_the_next_one() -> None:
    devices = supply(gpu(0, 0), gpu(1, 1))
    after = devices.without(answer(devices).parts)
    assert answer(after).sharing is Sharing.APART
    assert answer(after.without(answer(after).parts)).sharing is Sharing.NO_DEVICE
    assert devices.without(answer(devices, claims(is_own=False)).parts) == devices


def test_an_allocated_claim_is_told_as_it_is() -> None:
    def given(device: str) -> PodClaims:
        return claims(given=(ClaimedDevice("train-gpu", "one", GPU, "a", device),), is_own=False)

    devices = supply(gpu(0, 0), gpu(1, 1), gpu(2, 0, node="b"), taken=frozenset([gpu(1, 1).key]))
    assert answer(devices, given("gpu-1")).sharing is Sharing.APART
    assert answer(devices, given("gpu-0")).sharing is Sharing.TOGETHER
    assert answer(devices, given("gpu-2")).words == f"a: claim gpu is allocated to gpu-2 of {GPU} on b"
    assert answer(devices, given("gone")).sharing is Sharing.UNKNOWN


def test_two_containers_on_different_numa_nodes_cannot_both_be_near_one_device() -> None:
    both = pod("both", "cpu=3 memory=1Mi", "cpu=3 memory=1Mi")
    shared = PodClaims((PodClaim("gpu", (DeviceRequest("one", GPU),)),), {"c0": [("gpu", "")], "c1": [("gpu", "one")]})
    assert answer(supply(gpu(0, 0), gpu(1, 1)), shared, both).sharing is Sharing.APART
    apart = (DeviceRequest("a", GPU), DeviceRequest("b", GPU))
    each = PodClaims((PodClaim("gpu", apart),), {"c0": [("gpu", "a")], "c1": [("gpu", "b")]})
    found = answer(supply(gpu(0, 1), gpu(1, 0)), each, both)
    assert found.sharing is Sharing.POSSIBLE
    assert "container c0 on NUMA 0, container c1 on NUMA 1" in found.words
    assert [part.device.name for part in found.parts] == ["gpu-1", "gpu-0"]


def test_a_pod_of_which_nothing_is_pinned_has_no_nearer_device() -> None:
    shared = pod("shared", "request:cpu=1")
    assert answer(supply(gpu(0, 1)), a_pod=shared).sharing is Sharing.NOT_PINNED
    assert answer(supply(), a_pod=shared).sharing is Sharing.NO_DEVICE


@pytest.mark.parametrize(
    ("devices", "asked", "why"),
    [
        (supply(gpu(0, None)), claims(), "does not say on which NUMA nodes"),
        (supply(gpu(0, 0), problem="may not be read"), claims(), "may not be read"),
        (supply(gpu(0, 0)), claims(problem="the claim x does not exist"), "the claim x does not exist"),
        (supply(gpu(0, 0)), claims(DeviceRequest("one", "gone")), "there is no DeviceClass gone"),
        (supply(gpu(0, 0)), claims(DeviceRequest("one", GPU, not_judged="it names alternatives")), "alternatives"),
        (supply(gpu(0, 0), classes={GPU: (None,)}), claims(), "only the scheduler evaluates the selectors"),
        (supply(gpu(0, 0, not_judged="parts of one another")), claims(), "parts of one another"),
        (
            supply(gpu(0, 0, is_shared=True)),
            claims(DeviceRequest("a", GPU), DeviceRequest("b", GPU)),
            "parts of one device",
        ),
        (
            supply(gpu(0, 0, is_shared=True), gpu(1, 0, is_shared=True)),
            claims(DeviceRequest("a", GPU, 2)),
            "several parts",
        ),
    ],
)
def test_what_is_not_known_is_said(devices: DeviceSupply, asked: PodClaims, why: str) -> None:
    found = answer(devices, asked)
    assert found.sharing is Sharing.UNKNOWN
    assert why in found.words


def test_a_selector_that_excludes_a_device_for_certain_is_enough() -> None:
    """A class of another driver may compare in any other way: its own devices are not these."""
    both = supply(gpu(0, 0), classes={GPU: (Selector("other.example.com"), None)})
    assert answer(both).sharing is Sharing.NO_DEVICE


def test_an_extended_resource_is_a_claim_only_where_no_plugin_offers_it() -> None:
    asked = claims(resource="vendor.com/gpu")
    by_claim = frozenset(["vendor.com/gpu"])
    assert answer(supply(gpu(0, 0)), asked, by_claim=by_claim).sharing is Sharing.TOGETHER
    by_plugin = replace(node("a", by_claim=by_claim), allocatable={"vendor.com/gpu": 1000})
    assert claims_on(supply(gpu(0, 0)), by_plugin, state_with(), TRAIN, asked) is None


def test_the_best_answer_comes_first() -> None:
    ranks = [
        ClaimAnswer(sharing, "").rank
        for sharing in (Sharing.TOGETHER, Sharing.POSSIBLE, Sharing.APART, Sharing.NO_DEVICE)
    ]
    assert ranks == sorted(ranks)
    assert ranks[0] == 0


def own_claims(count: int, *, of: int) -> PodClaims:
    """So many claims of ``of`` devices each, all of container c0."""
    named = [PodClaim(f"claim-{number}", (DeviceRequest("some", GPU, of),)) for number in range(count)]
    return PodClaims(tuple(named), {"c0": [(claim.name, "") for claim in named]})


def test_a_claim_of_more_devices_than_a_scheduler_gives_to_one_is_allocated_nowhere() -> None:
    devices = supply(*(gpu(number, 0) for number in range(1_500)))
    assert answer(devices, own_claims(1, of=32)).sharing is Sharing.TOGETHER
    found = answer(devices, own_claims(1, of=33))
    assert found.sharing is Sharing.NO_DEVICE
    assert found.words == "a: claim claim-0 asks for 33 devices, and a scheduler gives at most 32 to one claim"
    assert answer(devices, own_claims(1, of=2**63 - 1)).sharing is Sharing.NO_DEVICE


def test_many_devices_for_one_pod_are_found_in_time_and_of_too_many_nothing_is_known() -> None:
    """Each level of a search was once a call within another, and each device asked for cost the square of them all."""
    devices = supply(*(gpu(number, 0) for number in range(1_500)))
    began = time.thread_time()
    assert answer(devices, own_claims(4, of=32)).sharing is Sharing.TOGETHER
    assert time.thread_time() - began < 2.0
    found = answer(devices, own_claims(5, of=32))
    assert found.sharing is Sharing.UNKNOWN
    assert found.words.endswith(": it asks for more than 128 devices by claims")


def test_requests_that_all_want_the_same_few_devices_are_answered_in_time() -> None:
    """The worst case of a matching: each further request moves all those before it, and in the end one has none."""
    names = [f"{GPU}/r{number}" for number in range(128)]
    devices = [
        gpu(number, 0, attributes={name: number >= place - 1 or number == 0 for place, name in enumerate(names)})
        for number in range(127)
    ]
    requests = [DeviceRequest(name, GPU, 1, (Selector(attributes=((name, True),)),)) for name in names]
    asked = PodClaims(
        tuple(PodClaim(one.name, (one,)) for one in requests), {"c0": [(one.name, "") for one in requests]}
    )
    began = time.thread_time()
    assert answer(supply(*devices), asked).words == f"a: too few free devices of {GPU} for all its requests"
    assert time.thread_time() - began < 5.0


def test_tainted_devices_are_counted_in_time() -> None:
    devices = [gpu(number, 0, taints=(DeviceTaint("broken"),)) for number in range(10_000)]
    began = time.thread_time()
    assert answer(supply(*devices)).words.startswith(f"a: 0 of 10000 devices of {GPU} are free (10000 tainted)")
    assert time.thread_time() - began < 2.0


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=4))
def test_the_devices_suffice_just_if_some_order_gives_each_request_its_own(wants: list[list[bool]]) -> None:
    """Each list says of a request which of four devices suit it; all orders of the devices are tried."""
    devices = [
        gpu(number, 0, attributes={f"{GPU}/r{place}": wanted[number] for place, wanted in enumerate(wants)})
        for number in range(4)
    ]
    requests = [
        DeviceRequest(f"r{place}", GPU, 1, (Selector(attributes=((f"{GPU}/r{place}", True),)),))
        for place in range(len(wants))
    ]
    suffices = any(
        all(wanted[number] for wanted, number in zip(wants, order, strict=False)) for order in permutations(range(4))
    )
    found = answer(supply(*devices), claims(*requests))
    assert found.sharing is (Sharing.TOGETHER if suffices else Sharing.NO_DEVICE)
    if suffices:
        names = [part.device.name for part in found.parts]
        assert len({*names}) == len(wants)
        assert all(wanted[int(name[-1])] for wanted, name in zip(wants, names, strict=True))
