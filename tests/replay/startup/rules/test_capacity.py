"""A kubelet that keeps more than the machine has does not start."""

from typing import Any

from topomend.replay.startup.configuration import Configuration, Host
from topomend.replay.startup.feature_gates import FeatureGates
from topomend.replay.startup.rules.capacity import over_capacity

GIBIBYTE = 1 << 30


def said(content: dict[str, Any], *, cpus: int = 4, memory: int = 2 * GIBIBYTE) -> str:
    return over_capacity(Configuration(content, 37, FeatureGates(37, {}), Host(memory)), cpus)


def test_what_the_machine_has_may_be_kept_whole() -> None:
    assert said({"kubeReserved": {"cpu": "3", "memory": "1Gi"}, "systemReserved": {"cpu": "1", "memory": "1Gi"}}) == ""


def test_a_byte_or_a_thousandth_more_is_too_much() -> None:
    assert said({"kubeReserved": {"memory": "2147483649"}}) == (
        'invalid Node Allocatable configuration. Resource "memory" has a reservation of 2147483649 but capacity of '
        "2Gi. Expected capacity >= reservation."
    )
    assert 'Resource "cpu" has a reservation of 4001m but capacity of 4.' in said({"kubeReserved": {"cpu": "4001m"}})


def test_the_eviction_threshold_counts_as_kept() -> None:
    content = {"kubeReserved": {"memory": "1Gi"}, "evictionHard": {"memory.available": "51%"}}
    assert 'Resource "memory"' in said(content)
    assert said({**content, "evictionHard": {"memory.available": "50%"}}) == ""


def test_a_list_of_reserved_cpus_overrides_the_amounts() -> None:
    assert said({"kubeReserved": {"cpu": "100"}, "reservedSystemCPUs": "0"}) == ""
