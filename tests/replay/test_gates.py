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
