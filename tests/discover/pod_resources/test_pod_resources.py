import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.closed_folder import closed
from tests.discover.machines import Lister, container, on, pod, serving

from topomend.discover import podresources_pb2 as messages
from topomend.discover.pod_resources.pod_resources import PodResources, PodResourcesClient, PodResourcesUnavailable
from topomend.model.bitmask import mask_of
from topomend.model.nodes.node_state import ContainerAllocation, Device, DeviceAllocation, MemoryBlock, PodAllocation


def read(path: Path, timeout: float = 60.0) -> PodResources:
    return PodResourcesClient(path, timeout).read()


def devices(*ids: str, resource: str = "vendor.com/gpu", node: int | None = None) -> messages.ContainerDevices:
    return messages.ContainerDevices(
        resource_name=resource, device_ids=ids, topology=None if node is None else on(node)
    )


def test_what_each_container_holds_is_read(tmp_path: Path) -> None:
    lister = Lister()
    lister.listed.pod_resources.append(
        pod("train", container("main", [2, 10, 3], {0: 1 << 30}, [devices("gpu-1", node=0), devices("gpu-0", node=0)]))
    )
    with serving(tmp_path / "sock", lister):
        assert read(tmp_path / "sock").pods == (
            PodAllocation(
                "default",
                "train",
                containers=(
                    ContainerAllocation(
                        "main",
                        cpus=mask_of([2, 3, 10]),
                        memory=(MemoryBlock("memory", mask_of([0]), 1 << 30),),
                        devices=(DeviceAllocation("vendor.com/gpu", ("gpu-0", "gpu-1")),),
                    ),
                ),
            ),
        )


def test_what_memory_the_kubelet_can_give_is_read(tmp_path: Path) -> None:
    lister = Lister()
    sizes = {(0, "memory"): 7 << 30, (1, "memory"): 8 << 30, (1, "hugepages-2Mi"): 32 << 20}
    lister.allocatable.memory.extend(
        messages.ContainerMemory(memory_type=resource, size=size, topology=on(node))
        for (node, resource), size in sizes.items()
    )
    with serving(tmp_path / "sock", lister):
        assert read(tmp_path / "sock").allocatable_memory == sizes


def test_a_device_on_two_nodes_is_one_device_and_one_without_topology_has_none(tmp_path: Path) -> None:
    lister = Lister()
    lister.allocatable.devices.extend([devices("a", node=1), devices("a", node=0), devices("b"), devices("c", node=-1)])
    with serving(tmp_path / "sock", lister):
        assert read(tmp_path / "sock").devices == (
            Device("vendor.com/gpu", "a", (0, 1)),
            Device("vendor.com/gpu", "b", None),
            Device("vendor.com/gpu", "c", (-1,)),
        )


def test_a_device_in_use_that_is_no_longer_offered_is_unhealthy(tmp_path: Path) -> None:
    lister = Lister()
    lister.listed.pod_resources.append(pod("p", container("c", devices=[devices("gpu-0", node=1)])))
    with serving(tmp_path / "sock", lister):
        assert read(tmp_path / "sock").devices == (Device("vendor.com/gpu", "gpu-0", (1,), healthy=False),)


def test_the_order_of_the_kubelets_maps_does_not_matter(tmp_path: Path) -> None:
    lister = Lister()
    with serving(tmp_path / "sock", lister):
        lister.allocatable.devices.extend([devices("gpu-10", node=0), devices("gpu-2", node=1)])
        first = read(tmp_path / "sock")
        del lister.allocatable.devices[:]
        lister.allocatable.devices.extend([devices("gpu-2", node=1), devices("gpu-10", node=0)])
        assert read(tmp_path / "sock") == first
    assert [device.id for device in first.devices] == ["gpu-2", "gpu-10"]


def test_no_socket_says_what_to_look_at(tmp_path: Path) -> None:
    with pytest.raises(PodResourcesUnavailable, match="none is not there: is the kubelet running"):
        read(tmp_path / "none")


def test_a_socket_in_a_folder_that_may_not_be_entered_is_named(tmp_path: Path) -> None:
    with (
        closed(tmp_path / "closed") as folder,
        pytest.raises(PodResourcesUnavailable, match=f"^{folder}/kubelet.sock does not answer: .*Permission denied$"),
    ):
        read(folder / "kubelet.sock")


def test_a_kubelet_that_is_gone_and_comes_back_is_read_again(tmp_path: Path) -> None:
    client = PodResourcesClient(tmp_path / "sock", timeout=60)
    with serving(tmp_path / "sock", Lister()):
        client.read()
    with pytest.raises(PodResourcesUnavailable):
        client.read()
    with serving(tmp_path / "sock", Lister()):
        client.read()


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[None]:
    """A socket that sends ``answer`` to whoever connects, and closes."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):  # who has read enough hangs up
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 4096, b"\xff" * 4096])
def test_garbage_on_the_socket_is_an_error_in_one_line(tmp_path: Path, answer: bytes) -> None:
    with answering(tmp_path / "sock", answer), pytest.raises(PodResourcesUnavailable) as caught:
        read(tmp_path / "sock", timeout=1)
    assert "does not answer" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_socket_that_nobody_serves_does_not_hold_up(tmp_path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "sock"))
    server.listen()
    with server, pytest.raises(PodResourcesUnavailable, match=r"DEADLINE_EXCEEDED|UNAVAILABLE"):
        read(tmp_path / "sock", timeout=0.5)


@pytest.mark.parametrize("cpu", [-1, 1 << 40])
def test_an_answer_with_impossible_ids_is_refused(tmp_path: Path, cpu: int) -> None:
    lister = Lister()
    lister.listed.pod_resources.append(pod("p", container("c", [cpu])))
    with serving(tmp_path / "sock", lister), pytest.raises(PodResourcesUnavailable, match="gives an impossible answer"):
        read(tmp_path / "sock")


def test_what_a_pod_holds_as_a_whole_is_read(tmp_path: Path) -> None:
    lister = Lister()
    listed = pod("train", container("main", [2], {}, []), container("sidecar"))
    listed.cpu_ids.extend([2, 3, 4])
    listed.memory.append(messages.ContainerMemory(memory_type="memory", size=1 << 30, topology=on(0)))
    lister.listed.pod_resources.append(listed)
    with serving(tmp_path / "sock", lister):
        (train,) = read(tmp_path / "sock").pods
    assert train.cpus == mask_of([2, 3, 4])
    assert train.memory == (MemoryBlock("memory", mask_of([0]), 1 << 30),)
    assert [container.cpus for container in train.containers] == [mask_of([2]), 0]
