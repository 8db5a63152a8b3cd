"""Known vulnerabilities of locked packages, by databases made for the purpose."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from verify.audit.__main__ import FOUND, LOCKS, UNKNOWN, main
from verify.audit.osv import Hole, holes, pinned

LOCK = """\
H2==4.4.1 \\
    --hash=sha256:00
typing_extensions==4.16.0 ; python_version < '3.13' \\
    --hash=sha256:01
"""


def database(folder: Path, *entries: dict[str, Any]) -> Path:
    path = folder / "all.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for entry in entries:
            archive.writestr(f"{entry['id']}.json", json.dumps(entry))
    return path


def entry(*events: dict[str, str], name: str = "h2", **fields: Any) -> dict[str, Any]:
    affected = {
        "package": {"ecosystem": "PyPI", "name": name},
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
    }
    return {"id": "PYSEC-1", "summary": "A  hole", "affected": [affected], **fields}


def test_a_lock_pins_canonical_names_whatever_the_markers() -> None:
    assert pinned(LOCK) == {("h2", "4.4.1"), ("typing-extensions", "4.16.0")}


def test_every_package_of_the_own_locks_is_read() -> None:
    for lock in LOCKS.glob("*.lock"):
        text = lock.read_text()
        assert len(pinned(text)) == text.count("==") - text.count("== '") - text.count('== "')


@pytest.mark.parametrize(
    ("events", "is_found"),
    [
        ([{"introduced": "0"}], True),
        ([{"introduced": "0"}, {"fixed": "4.4.1"}], False),
        ([{"introduced": "0"}, {"fixed": "4.4.2"}], True),
        ([{"introduced": "4.10"}], False),
        ([{"introduced": "0"}, {"last_affected": "4.4.1"}], True),
        ([{"introduced": "0"}, {"last_affected": "4.4.0"}], False),
        ([{"introduced": "0"}, {"fixed": "3"}, {"introduced": "4.4"}, {"fixed": "5"}], True),
    ],
)
def test_a_version_is_affected_as_the_events_say(tmp_path: Path, events: list[dict[str, str]], is_found: bool) -> None:
    known = holes(pinned(LOCK), database(tmp_path, entry(*events)))
    assert known == ([Hole("h2", "4.4.1", "PYSEC-1", "A hole")] if is_found else [])


def test_a_version_is_affected_that_is_named_and_an_entry_that_was_withdrawn_counts_nothing(tmp_path: Path) -> None:
    named = entry()
    named["affected"][0]["versions"] = ["4.4.1"]
    assert len(holes(pinned(LOCK), database(tmp_path, named))) == 1
    assert holes(pinned(LOCK), database(tmp_path, {**named, "withdrawn": "2026-01-01T00:00:00Z"})) == []


def test_names_are_compared_as_the_index_does_and_other_ecosystems_are_others(tmp_path: Path) -> None:
    assert holes(pinned(LOCK), database(tmp_path, entry({"introduced": "0"}, name="Typing.Extensions")))
    other = entry({"introduced": "0"})
    other["affected"][0]["package"]["ecosystem"] = "npm"
    assert holes(pinned(LOCK), database(tmp_path, other)) == []


def test_the_command_says_what_it_found_and_what_it_could_not_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--database", str(database(tmp_path, entry({"introduced": "0"}, name="pyyaml")))]) == FOUND
    assert "PYSEC-1 A hole" in capsys.readouterr().out
    assert main(["--database", str(database(tmp_path, entry({"introduced": "0"}, name="none")))]) == 0
    printed = capsys.readouterr().out
    assert "0 known vulnerabilities" in printed
    assert "NOT CHECKED: Go modules" in printed
    assert main(["--database", str(tmp_path / "none.zip")]) == UNKNOWN
    assert "NOT CHECKED" in capsys.readouterr().err
    assert main(["--address", "http://127.0.0.1:9/all.zip"]) == UNKNOWN
    assert "name the copy with --database" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x05\x06" + bytes(18)])
def test_a_database_that_is_none_is_no_clean_bill(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "all.zip"
    path.write_bytes(content)
    assert main(["--database", str(path)]) == UNKNOWN
