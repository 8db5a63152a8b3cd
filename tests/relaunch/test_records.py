"""The record of a refused pod as it is first written."""

import json

import pytest
from tests.builders import pod_manifest, refused_pod

from topomend.relaunch.manifest import digest
from topomend.relaunch.records import MAX_MANIFEST_BYTES, fits_an_object, recorded

MANIFEST = pod_manifest("train", "cpu=3 memory=1Gi")


def test_a_record_names_the_pod_its_refusal_and_the_next_attempt() -> None:
    record = recorded(refused_pod("train", attempt=1), "train-1", MANIFEST, renames=False)
    assert (record.pod_name, record.pod_uid, record.refused_by) == ("train", "train", "a")
    assert (record.reason, record.attempt) == ("TopologyAffinityError", 2)
    assert record.message.startswith("Pod was rejected: ")
    assert record.keeps_name


def test_a_replacement_with_a_name_of_its_own_has_the_digest_of_the_manifest_as_it_was() -> None:
    record = recorded(refused_pod("train"), "train-1", MANIFEST, renames=True)
    assert record.replacement_name == "train-r1"
    assert record.manifest_hash == digest(MANIFEST)


@pytest.mark.parametrize(("surplus", "fits"), [(0, True), (1, False)])
def test_a_manifest_of_at_most_a_million_bytes_fits_an_object(surplus: int, fits: bool) -> None:
    empty = len(json.dumps({"metadata": {"note": ""}}))
    manifest = {"metadata": {"note": "x" * (MAX_MANIFEST_BYTES - empty + surplus)}}
    assert fits_an_object(recorded(refused_pod(), "p-1", manifest, renames=False)) is fits
