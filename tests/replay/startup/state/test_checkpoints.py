"""Formats and checksums of a kubelet's state files. Random ones: tests/verify/oracle/restoring."""

import json
from typing import Any

import pytest
from tests.builders import kubelet_settings

from topomend.replay.gates import read_gates
from topomend.replay.startup.state.checkpoint_json import GoError
from topomend.replay.startup.state.checkpoints import checksum_of, load_cpus, load_memory, parse_cpuset


@pytest.mark.parametrize(
    ("text", "cpus"), [("", 0), ("0", 1), ("0-2,5", 0b100111), ("1,1", 0b10), ("3-3", 0b1000), ("+1", 0b10)]
)
def test_a_set_of_cpus_is_read_as_the_kubelet_reads_it(text: str, cpus: int) -> None:
    assert parse_cpuset(text) == cpus


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (" 0", 'strconv.Atoi: parsing " 0": invalid syntax'),
        ("0,", 'strconv.Atoi: parsing "": invalid syntax'),
        ("3-1", 'invalid range "3-1" (3 > 1)'),
        ("0-1-2", 'strconv.Atoi: parsing "1-2": invalid syntax'),
    ],
)
def test_what_linux_would_accept_may_be_no_set_to_the_kubelet(text: str, why: str) -> None:
    with pytest.raises(GoError) as raised:
        parse_cpuset(text)
    assert str(raised.value) == why


def test_a_range_of_any_length_takes_little_memory() -> None:
    assert parse_cpuset("0-99999999999").bit_length() < 1 << 17


def loaded(content: dict[str, Any], version: str = "v1.37.2") -> dict[str, Any]:
    return load_cpus(json.dumps(content).encode(), read_gates(kubelet_settings(version=version)))


def in_data(data: dict[str, Any], **around: Any) -> dict[str, Any]:
    text = json.dumps(data)
    return {"policyName": "none", "checksum": 1, "data": text, "dataChecksum": checksum_of(text), **around}


def test_content_in_data_counts_and_the_fields_beside_it_are_for_older_kubelets() -> None:
    assert loaded(in_data({"policyName": "static"}))["PolicyName"] == "static"
    with pytest.raises(GoError, match="checkpoint is corrupted"):
        loaded(in_data({"policyName": "static"}), "v1.36.0")


def test_damaged_content_in_data_is_not_replaced_by_the_fields_beside_it() -> None:
    content = in_data({"policyName": "static"}, checksum=0, dataChecksum=1)
    with pytest.raises(GoError, match="could not load v4 checkpoint: checkpoint is corrupted"):
        loaded(content)
    assert loaded(content, "v1.36.0")["PolicyName"] == "none"


def test_a_file_without_a_checksum_is_one_of_an_old_kubelet() -> None:
    assert loaded({"policyName": "static"}, "v1.30.14")["PolicyName"] == "static"
    with pytest.raises(GoError, match="containerID '0a1b' not found in initial containers list"):
        loaded({"policyName": "static", "entries": {"0a1b": "1-2"}}, "v1.30.14")


def test_memory_without_a_checksum_is_read_since_1_36() -> None:
    content = b'{"policyName":"Static"}'
    assert load_memory(content, read_gates(kubelet_settings(version="v1.36.0")))["PolicyName"] == "Static"
    with pytest.raises(GoError, match="checkpoint is corrupted"):
        load_memory(content, read_gates(kubelet_settings(version="v1.35.0")))
