import pytest

from topomend.discover.machine.pci_distance import PCIDistance, pci_distance
from topomend.model.machine import PCIDevice


def device(address: str, *path: str, numa_node: int | None = 0) -> PCIDevice:
    return PCIDevice(address, 0x030200, 0x10DE, 0x2330, numa_node=numa_node, path=path)


# Two root complexes, 3a and 5d, on NUMA node 0 and one, b0, on 1; below 3a a switch with a second one below it.
GPU = device("0000:3d:00.0", "0000:3a:00.0", "0000:3b:00.0", "0000:3c:04.0")
BESIDE = device("0000:3e:00.0", "0000:3a:00.0", "0000:3b:00.0", "0000:3c:08.0")
DEEPER = device("0000:44:00.0", "0000:3a:00.0", "0000:3b:00.0", "0000:3c:0c.0", "0000:40:00.0", "0000:41:00.0")
OTHER_PORT = device("0000:48:00.0", "0000:3a:02.0")
OTHER_COMPLEX = device("0000:5e:00.0", "0000:5d:00.0")
OTHER_NODE = device("0000:b1:00.0", "0000:b0:00.0", numa_node=1)
NOWHERE = device("0000:d1:00.0", "0000:d0:00.0", numa_node=None)


@pytest.mark.parametrize(
    ("other", "distance"),
    [
        (GPU._replace(address="0000:3d:00.1"), PCIDistance.SAME_DEVICE),
        (BESIDE, PCIDistance.SAME_SWITCH),
        (DEEPER, PCIDistance.SAME_ROOT_PORT),
        (OTHER_PORT, PCIDistance.SAME_ROOT_COMPLEX),
        (OTHER_COMPLEX, PCIDistance.SAME_NUMA_NODE),
        (OTHER_NODE, PCIDistance.ACROSS_NUMA_NODES),
        (NOWHERE, PCIDistance.UNKNOWN),
    ],
)
def test_the_distance_is_what_lies_between_whichever_is_asked_first(other: PCIDevice, distance: PCIDistance) -> None:
    assert pci_distance(GPU, other) == distance
    assert pci_distance(other, GPU) == distance


def test_functions_that_share_a_physical_device_are_one_device() -> None:
    parent = device("0000:5e:00.0", "0000:5d:00.0")
    one, other = (
        parent._replace(address=f"0000:5e:0{number}.1", physical_function=f"0000:5e:00.{number}") for number in (1, 2)
    )
    assert pci_distance(one, parent) == pci_distance(parent, other) == pci_distance(one, other) == "same device"


def test_devices_on_the_root_bus_itself_share_the_root_complex() -> None:
    assert pci_distance(device("0000:00:02.0"), device("0000:00:03.0")) == PCIDistance.SAME_ROOT_COMPLEX


def test_the_same_bus_number_in_another_domain_is_another_root_complex() -> None:
    one, other = device("0000:00:02.0"), device("0001:00:02.0", numa_node=1)
    assert (one.root_complex, other.root_complex) == ("pci0000:00", "pci0001:00")
    assert pci_distance(one, other) == PCIDistance.ACROSS_NUMA_NODES
