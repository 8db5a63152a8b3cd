"""Taints and tolerations of devices, and what a request takes of a shared one."""

import pytest

from topomend.model.devices.offered_device import DeviceCapacity, DeviceTaint, DeviceToleration, OfferedDevice
from topomend.model.devices.qualified_name import qualified

TAINT = DeviceTaint("broken", "fan", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (DeviceToleration("broken", "Exists"), True),
        (DeviceToleration("broken", "Equal", "fan"), True),
        (DeviceToleration("broken", "Equal", "fan", "NoSchedule"), True),
        (DeviceToleration(operator="Exists"), True),
        (DeviceToleration("broken", "Equal"), False),
        (DeviceToleration("broken", "Exists", effect="NoExecute"), False),
        (DeviceToleration("old", "Exists"), False),
        (DeviceToleration("broken", "Matches", "fan"), False),
    ],
)
def test_a_toleration_matches_as_in_the_scheduler(toleration: DeviceToleration, tolerates: bool) -> None:
    """The cases are those of resourceclaim/devicetoleration.go:ToleratesTaint."""
    assert toleration.tolerates(TAINT) is tolerates
    assert OfferedDevice("d", "p", "x", taints=(TAINT,)).is_kept_from([toleration]) is not tolerates


@pytest.mark.parametrize(
    ("effect", "kept"), [("NoSchedule", True), ("NoExecute", True), ("None", False), ("New", False)]
)
def test_only_known_effects_keep_anybody_from_a_device(effect: str, kept: bool) -> None:
    assert OfferedDevice("d", "p", "x", taints=(DeviceTaint("broken", effect=effect),)).is_kept_from(()) is kept


@pytest.mark.parametrize(
    ("capacity", "requested", "consumed"),
    [
        (DeviceCapacity(8), None, 8),
        (DeviceCapacity(8, default=2), None, 2),
        (DeviceCapacity(8), 3, 3),
        (DeviceCapacity(8, least=2), 1, 2),
        (DeviceCapacity(8, least=1, step=2), 2, 3),
        (DeviceCapacity(8, least=1, step=2), 3, 3),
        (DeviceCapacity(8, least=1, step=2, most=4), 4, None),
        (DeviceCapacity(8, amounts=(2, 4)), 3, 4),
        (DeviceCapacity(8, amounts=(2, 4)), 5, None),
    ],
)
def test_a_shared_device_is_handed_out_in_its_own_steps(
    capacity: DeviceCapacity, requested: int | None, consumed: int | None
) -> None:
    assert capacity.consumed(requested) == consumed


def test_a_name_without_a_domain_has_the_driver_s() -> None:
    assert qualified("cpu", "dra.cpu") == qualified("dra.cpu/cpu", "dra.cpu") == "dra.cpu/cpu"
    assert qualified("other.com/cpu", "dra.cpu") == "other.com/cpu"
