"""What a Pod says against its eviction, as Cluster Autoscaler and Karpenter read it."""

from typing import Any

import pytest

from topomend.wire.pods.eviction_hints import (
    DO_NOT_DISRUPT,
    SAFE_TO_EVICT,
    SAFE_VOLUMES,
    forbidding_annotation,
    local_storage,
)


def pod(*volumes: dict[str, Any], **annotations: str) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}, "spec": {"volumes": list(volumes)}}


DISK, MEMORY = {"name": "disk", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}
HOST, OWN = {"name": "host", "hostPath": {"path": "/data"}}, {"name": "own", "ephemeral": {}}
OTHERS = ({"name": "c", "configMap": {}}, {"name": "p", "persistentVolumeClaim": {"claimName": "x"}})


@pytest.mark.parametrize(
    ("volumes", "found"), [([DISK], "disk"), ([HOST], "host"), ([OWN], "own"), ([MEMORY, *OTHERS], ""), ([], "")]
)
def test_local_storage_is_what_ends_with_the_pod_or_stays_on_its_node(
    volumes: list[dict[str, Any]], found: str
) -> None:
    assert local_storage(pod(*volumes)) == found


def test_volumes_that_are_called_safe_do_not_count() -> None:
    assert local_storage(pod(DISK, HOST, **{SAFE_VOLUMES: "disk, other"})) == "host"
    assert local_storage(pod(DISK, HOST, **{SAFE_VOLUMES: "disk,host"})) == ""
    assert local_storage(pod(DISK, **{SAFE_TO_EVICT: "true"})) == ""
    assert local_storage(pod(DISK, **{SAFE_TO_EVICT: "false"})) == "disk"


@pytest.mark.parametrize(
    ("annotations", "found"),
    [
        ({SAFE_TO_EVICT: "false"}, SAFE_TO_EVICT),
        ({DO_NOT_DISRUPT: "true"}, DO_NOT_DISRUPT),
        ({SAFE_TO_EVICT: "true", DO_NOT_DISRUPT: "false"}, ""),
        ({}, ""),
    ],
)
def test_an_annotation_may_forbid_the_eviction(annotations: dict[str, str], found: str) -> None:
    assert forbidding_annotation(pod(**annotations)) == found
