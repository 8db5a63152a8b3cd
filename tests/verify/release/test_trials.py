"""The trials of a release tell a program's platform, and notice what differs."""

import struct
import sys
from pathlib import Path

import pytest
from verify.release import trials


def mach_o(processor: int, *commands: int) -> bytes:
    head = struct.pack("<8I", 0xFEEDFACF, processor, 0, 2, len(commands), 16 * len(commands), 0, 0)
    return head + b"".join(struct.pack("<4I", command, 16, 0, 0) for command in commands)


def test_this_machines_python_is_of_linux() -> None:
    assert trials.kind_of(Path(sys.executable).read_bytes()) in {"linux-amd64", "linux-arm64"}


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (mach_o(0x0100000C, 0x19, 0x1D), "darwin-arm64"),
        (mach_o(0x0100000C, 0x19), "darwin-arm64-unsigned"),
        (mach_o(0x01000007, 0x19), "darwin-amd64"),
        (b"#!/bin/sh\n", ""),
        (b"", ""),
    ],
    ids=["signed", "unsigned", "amd64 needs no signature", "a script", "empty"],
)
def test_a_programs_platform_is_read_from_its_head(content: bytes, kind: str) -> None:
    assert trials.kind_of(content) == kind


def test_two_runs_are_compared_file_by_file(tmp_path: Path) -> None:
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        for number in range(9):
            (tmp_path / run / str(number)).write_text("same")
        (tmp_path / run / "SHA256SUMS").write_text(run)
    assert trials.same(tmp_path / "first", tmp_path / "second") == "9 files"
    (tmp_path / "second" / "3").write_text("other")
    with pytest.raises(AssertionError, match="differ: 3"):
        trials.same(tmp_path / "first", tmp_path / "second")
