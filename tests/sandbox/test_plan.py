"""The plan of a sandbox's programs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox.node.node_spec import NodeSpec
from topomend.sandbox.plan import Preparation


def environments(folder: Path) -> dict[str, Mapping[str, Any]]:
    """The variables of each program of a sandbox of one node."""
    preparation = Preparation(
        folder,
        {DEFAULT_VERSION: folder / "binary"},
        [NodeSpec.of_shape("a", "numa:2 cores:2")],
        version=DEFAULT_VERSION,
        audit=False,
        topomend=False,
        mode="",
        user_namespace=False,
        api_server_flags=(),
        emulated_version="",
    )
    return {program["name"]: program["environment"] for program in preparation._plan()["programs"]}


def test_programs_spend_memory_for_cpu_time_as_their_caller_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOGC", "200")
    monkeypatch.delenv("GOMEMLIMIT", raising=False)
    monkeypatch.setenv("OTHER", "is not theirs")
    for environment in environments(tmp_path).values():
        assert environment["GOGC"] == "200"
        assert environment.keys().isdisjoint({"GOMEMLIMIT", "OTHER"})


def test_a_caller_who_says_nothing_leaves_gos_own_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOGC", raising=False)
    assert all("GOGC" not in environment for environment in environments(tmp_path).values())
