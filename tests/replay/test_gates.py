"""What a version and its gates bring."""

import pytest

from topomend.model.kubelet import KubeletSettings
from topomend.replay.gates import read_gates

SAID = "kubelet version {}: the rules of v1.36.3 were replayed"


@pytest.mark.parametrize("version", ["v1.36.3", "1.36.0", "v1.32.1", "v1.34.0+k3s1", "v1.35.2-gke.100"])
def test_known_versions_are_modelled(version: str) -> None:
    assert read_gates(KubeletSettings(version=version)).unmodelled == ()


@pytest.mark.parametrize("version", ["v1.31.9", "v1.37.0", "v2.0.0", "nonsense", "v1.360"])
def test_others_are_said_not_to_be(version: str) -> None:
    assert read_gates(KubeletSettings(version=version)).unmodelled == (SAID.format(version),)


def test_no_version_is_unknown() -> None:
    assert read_gates(KubeletSettings(version="")).unmodelled == (SAID.format("unknown"),)


def test_pod_level_managers_need_pod_level_resources_and_their_version() -> None:
    both = {"PodLevelResourceManagers": True}
    assert read_gates(KubeletSettings(feature_gates=both)).pod_level_resource_managers
    assert not read_gates(KubeletSettings()).pod_level_resource_managers
    assert not read_gates(KubeletSettings(version="v1.35.0", feature_gates=both)).pod_level_resource_managers
    assert not read_gates(
        KubeletSettings(feature_gates={**both, "PodLevelResources": False})
    ).pod_level_resource_managers


@pytest.mark.parametrize(("version", "default"), [("v1.32.0", False), ("v1.33.9", False), ("v1.34.0", True)])
def test_pod_level_resources_are_on_by_default_since_1_34(version: str, default: bool) -> None:
    assert read_gates(KubeletSettings(version=version)).pod_level_resources == default
    for gate in (False, True):
        settings = KubeletSettings(version=version, feature_gates={"PodLevelResources": gate})
        assert read_gates(settings).pod_level_resources == gate


@pytest.mark.parametrize(("version", "narrow"), [("v1.35.4", False), ("v1.36.0", True)])
def test_device_hints_name_device_nodes_only_since_1_36(version: str, narrow: bool) -> None:
    assert read_gates(KubeletSettings(version=version)).device_nodes_only == narrow


OPTIONS = (
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "align-by-socket",
    "distribute-cpus-across-cores",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
)


@pytest.mark.parametrize(
    ("version", "levels"),
    [
        ("v1.32.0", ("beta", "alpha", "alpha", "alpha", "alpha", "alpha")),
        ("v1.33.0", ("stable", "beta", "alpha", "alpha", "beta", "alpha")),
        ("v1.34.0", ("stable", "beta", "alpha", "alpha", "beta", "beta")),
        ("v1.35.0", ("stable", "beta", "alpha", "alpha", "stable", "beta")),
        ("v1.36.3", ("stable", "beta", "alpha", "alpha", "stable", "stable")),
    ],
)
def test_options_of_the_cpu_manager_grow_up(version: str, levels: tuple[str, ...]) -> None:
    assert read_gates(KubeletSettings(version=version)).cpu_option_levels == dict(zip(OPTIONS, levels, strict=True))
