from dataclasses import replace

import pytest

from topomend.model.condition import Condition
from topomend.model.relaunch_record import NodeVerdict, Relaunch, Step
from topomend.wire.document import MalformedObject
from topomend.wire.relaunch_record import manifest_status, read_relaunch, record_name, relaunch_object, relaunch_status

RELAUNCH = Relaunch(
    namespace="train",
    name=record_name("train-9", "8a3c"),
    pod_name="train-9",
    pod_uid="8a3c",
    refused_by="gpu-01",
    reason="TopologyAffinityError",
    message="Pod was rejected: Resources cannot be allocated with Topology locality",
    attempt=1,
    step=Step.LAUNCHED,
    new_name="train-9",
    new_uid="77b1",
    candidates=("gpu-03", "gpu-07"),
    verdicts=(
        NodeVerdict("gpu-03", admitted=True),
        NodeVerdict("gpu-02", admitted=False, reason="TopologyAffinityError", explanation="lacks 1 gpu"),
    ),
    counts={"Admits": 2, "TopologyAffinityError": 1},
    start_time="2026-01-02T03:04:05Z",
    launched_time="2026-01-02T03:04:06Z",
    conditions=(Condition("Succeeded", "True", "Launched", "on gpu-03", "2026-01-02T03:04:06Z"),),
    manifest_hash="0f" * 32,
    own_name="train-9-r1",
)
MANIFEST = {"metadata": {"name": "train-9"}, "spec": {"containers": [{"name": "main"}]}}


def test_a_record_reads_back_as_it_was_written() -> None:
    assert read_relaunch(relaunch_object(RELAUNCH) | {"status": relaunch_status(RELAUNCH)}) == RELAUNCH


def test_a_record_holds_a_manifest_from_when_it_is_written_until_it_is_dropped() -> None:
    content = relaunch_object(replace(RELAUNCH, manifest=MANIFEST))
    assert read_relaunch(content).manifest == {}
    assert "manifest" not in relaunch_status(replace(RELAUNCH, manifest=MANIFEST))
    assert read_relaunch(content | {"status": manifest_status(MANIFEST)}).manifest == MANIFEST
    assert read_relaunch(content | {"status": manifest_status(None)}).manifest == {}


def test_a_record_without_status_is_at_its_first_step() -> None:
    assert read_relaunch(relaunch_object(RELAUNCH)).step is Step.RECORDED


def test_the_name_depends_on_the_uid_alone_and_is_a_valid_object_name() -> None:
    assert record_name("train-9", "8a3c") == record_name("train-9", "8a3c") != record_name("train-9", "8a3d")
    assert len(record_name("a" * 253, "8a3c")) <= 253
    assert "--" not in record_name("a" * 241 + "-" + "b" * 11, "8a3c")


def test_a_malformed_record_names_the_field() -> None:
    content = relaunch_object(RELAUNCH) | {"status": {"step": "Sleeping"}}
    with pytest.raises(MalformedObject, match=r"status\.step: 'Sleeping' where one of Recorded"):
        read_relaunch(content)
    content["status"] = {"manifest": "a text"}
    with pytest.raises(MalformedObject, match=r"status\.manifest: 'a text' where the manifest of a pod belongs"):
        read_relaunch(content)
