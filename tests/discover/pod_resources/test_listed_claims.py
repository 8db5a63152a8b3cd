"""The devices that containers have by claims, as a kubelet lists them; real claims: tests/controller."""

from pathlib import Path

from tests.discover.machines import Lister, container, cpu_state, pod, serving, write_state

from topomend.base.plain_text import plain
from topomend.discover import podresources_pb2 as messages
from topomend.discover.allocations import AllocationReader
from topomend.discover.pod_resources.listed_claims import (
    MAX_CLAIM_DEVICES,
    MAX_CONTAINER_CLAIMS,
    MAX_DEVICE,
    MAX_NODE_CLAIMS,
)
from topomend.discover.pod_resources.pod_resources import PodResources, PodResourcesClient
from topomend.model.devices.claimed_device import ContainerClaim

DRIVER, POOL = "gpu.example.com", "node-1"


def device(name: str, driver: str = DRIVER) -> bytes:
    resource = messages.ClaimResource(driver_name=driver, pool_name=POOL, device_name=name)
    return resource.SerializeToString()


def claimed(claim: str, *devices: bytes) -> bytes:
    return messages.DynamicResource(claim_name=claim, claim_resources=devices).SerializeToString()


def claiming(name: str, *claims: bytes, cpus: tuple[int, ...] = ()) -> messages.ContainerResources:
    made = container(name, cpus)
    made.dynamic_resources.extend(claims)
    return made


def read(path: Path, *pods: messages.PodResources) -> PodResources:
    lister = Lister()
    lister.listed.pod_resources.extend(pods)
    with serving(path, lister):
        return PodResourcesClient(path).read()


def claim(container: str, claim: str, *devices: str, driver: str = DRIVER) -> ContainerClaim:
    return ContainerClaim("default", "train", container, claim, driver, POOL, devices)


def test_the_devices_of_each_container_s_claims_are_read_by_driver(tmp_path: Path) -> None:
    shared = claimed("both", device("gpu-10"), device("gpu-2"), device("nic-0", "nic.example.com"))
    listed = read(
        tmp_path / "sock", pod("train", claiming("side", shared), claiming("main", claimed("own", device("a")), shared))
    )
    assert listed.claims == (
        claim("main", "both", "gpu-2", "gpu-10"),
        claim("main", "both", "nic-0", driver="nic.example.com"),
        claim("main", "own", "a"),
        claim("side", "both", "gpu-2", "gpu-10"),
        claim("side", "both", "nic-0", driver="nic.example.com"),
    )
    assert listed.omitted == ""


def test_the_order_of_the_kubelet_s_maps_does_not_matter(tmp_path: Path) -> None:
    devices = [device("gpu-0"), device("nic-0", "nic.example.com")]
    first, second = (
        read(tmp_path / name, pod("train", claiming("main", claimed("gpu", *order))))
        for name, order in (("a", devices), ("b", devices[::-1]))
    )
    assert first == second


def test_claims_alone_are_no_allocation_that_the_state_files_must_have(tmp_path: Path) -> None:
    """A pod on the shared CPUs, beside one with CPUs of its own."""
    lister = Lister()
    gpu = claimed("gpu", device("gpu-0"))
    lister.listed.pod_resources.extend([pod("train", claiming("main", gpu)), pod("web", container("c", [1]))])
    write_state(tmp_path, "cpu_manager_state", cpu_state({"u1": {"c": "1"}}))
    with serving(tmp_path / "sock", lister):
        found = AllocationReader(tmp_path / "sock", tmp_path).read()
    assert (found.reason, [one.name for one in found.pods]) == ("", ["web"])
    assert found.claims == (claim("main", "gpu", "gpu-0"),)


def test_what_a_driver_calls_its_devices_is_escaped_and_cut(tmp_path: Path) -> None:
    name = "\x1b[2J\ngpu\u202e" + "x" * 2000
    (found,) = read(tmp_path / "sock", pod("train", claiming("main", claimed("c", device(name, name))))).claims
    assert found.devices == (plain(name, MAX_DEVICE),)
    assert all(text.isprintable() and len(text) <= MAX_DEVICE for text in (*found.devices, found.driver))


def test_thousands_of_devices_and_claims_are_left_out_and_counted(tmp_path: Path) -> None:
    many = claimed("many", *(device(f"gpu-{number}") for number in range(3000)))
    others = [claimed(f"other-{number:04}", device("nic")) for number in range(2000)]
    listed = read(tmp_path / "sock", pod("train", claiming("main", many, *others)))
    assert listed.claims == (
        claim("main", "many", *(f"gpu-{number}" for number in range(MAX_CLAIM_DEVICES))),
        *(claim("main", f"other-{number:04}", "nic") for number in range(MAX_CONTAINER_CLAIMS - 1)),
    )
    omitted = 3000 - MAX_CLAIM_DEVICES + 2001 - MAX_CONTAINER_CLAIMS
    assert listed.omitted == (
        f"{omitted} claims and devices of claims are left out: a DRA driver names more than any claim has"
    )


def test_a_node_has_as_many_claims_as_its_object_may_have(tmp_path: Path) -> None:
    pods = [pod(f"p{number}", claiming("main", claimed("c", device("gpu")))) for number in range(MAX_NODE_CLAIMS + 1)]
    listed = read(tmp_path / "sock", *pods)
    assert len(listed.claims) == MAX_NODE_CLAIMS
    assert listed.omitted.startswith("1 claim or device of a claim is left out")
