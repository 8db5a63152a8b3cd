"""The kernel's own messages, which sysfs gives on request: to write into a device's ``uevent`` has it announced."""

from pathlib import Path

import pytest

from topomend.discover.machine.udev import MachineChanges

pytestmark = pytest.mark.xdist_group("messages of the kernel")  # all processes hear them

CPU, MEMORY = Path("/sys/devices/system/cpu/cpu0/uevent"), Path("/sys/devices/system/memory/memory0/uevent")
LOOPBACK = Path("/sys/class/net/lo/uevent")


def announce(device: Path, times: int = 1) -> None:
    """Have the kernel say that a device changed."""
    if not device.exists():
        pytest.skip(f"this kernel has no {device}")
    try:
        for _ in range(times):
            device.write_text("change")
    except PermissionError:
        pytest.skip(f"{device} is for root alone: the kernel cannot be asked for a message")


@pytest.mark.parametrize("device", [CPU, MEMORY], ids=["cpu", "memory"])
def test_a_change_is_heard_once(device: Path) -> None:
    changes = MachineChanges()
    assert not changes.happened()
    announce(device)  # the kernel has sent word when this returns
    assert changes.happened()
    assert not changes.happened()


def test_what_is_no_part_of_the_machine_is_not_heard() -> None:
    changes = MachineChanges()
    announce(LOOPBACK)
    assert not changes.happened()
    announce(CPU)
    assert changes.happened(), "nor does it hide what follows"


def test_more_messages_than_the_kernel_keeps_are_a_change_and_the_next_is_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes = MachineChanges()
    changes._monitor.set_receive_buffer_size(4096)
    announce(CPU, times=300)
    assert changes.happened()
    assert "device messages were lost" in caplog.text
    assert not changes.happened()
    announce(CPU)
    assert changes.happened()
