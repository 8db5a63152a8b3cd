"""What make release refuses before it makes anything, on real repositories of git."""

import subprocess
from datetime import date
from pathlib import Path

import pytest
from deploy.manifests import ROOT
from deploy.release.__main__ import main
from deploy.release.readiness import Clone, refusals, section

from topomend import __version__

CHANGELOG = (
    "# Changelog\n\n## [1.2.3] - 2026-01-31\n\n### Added\n\n- A thing.\n\n## [1.2.2] - 2026-01-01\n\n- Another.\n"
)


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=tests", "-c", "user.email=tests@example.com", "-c", "commit.gpgsign=false"]
    command = ["git", *who, *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message=Begin")
    return tmp_path


def test_a_clean_tree_with_a_section_and_no_tag_is_ready(clone: Path) -> None:
    assert refusals(Clone.read(clone), "1.2.3") == []


def test_a_tree_with_changes_is_refused_with_their_names(clone: Path) -> None:
    (clone / "new.py").write_text("")
    (clone / "CHANGELOG.md").write_text(CHANGELOG + "\n")
    (reason,) = refusals(Clone.read(clone), "1.2.3")
    assert "CHANGELOG.md, new.py" in reason
    assert "commit" in reason


def test_a_version_that_is_tagged_is_refused(clone: Path) -> None:
    git(clone, "tag", "v1.2.3")
    (reason,) = refusals(Clone.read(clone), "1.2.3")
    assert reason.startswith("v1.2.3 is already tagged")


def test_a_tag_of_another_version_is_no_hindrance(clone: Path) -> None:
    git(clone, "tag", "v1.2.30")
    assert refusals(Clone.read(clone), "1.2.3") == []


@pytest.mark.parametrize("version", ["1.2.4", "1.2", "1x2.3"])
def test_a_version_without_a_section_is_refused_with_the_line_to_write(clone: Path, version: str) -> None:
    (reason,) = refusals(Clone.read(clone), version)
    assert f"'## [{version}] - YYYY-MM-DD'" in reason


@pytest.mark.parametrize(
    "changelog",
    [
        CHANGELOG.replace(" - 2026-01-31", ""),
        CHANGELOG.replace("2026-01-31", "2026-02-31"),
        CHANGELOG.replace("### Added\n\n- A thing.\n", ""),
        CHANGELOG.replace("## [1.2.3]", "## Unreleased"),
    ],
    ids=["no day", "no such day", "nothing in it", "unreleased"],
)
def test_a_section_without_a_day_or_a_text_is_none(changelog: str) -> None:
    assert section(changelog, "1.2.3") is None


def test_a_section_ends_where_the_next_version_begins() -> None:
    found = section(CHANGELOG, "1.2.3")
    assert found is not None
    assert (found.day, found.text) == (date(2026, 1, 31), "### Added\n\n- A thing.")


def test_the_changelog_has_a_section_for_this_version() -> None:
    assert section((ROOT / "CHANGELOG.md").read_text(), __version__) is not None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--key=none"], "SOURCE must be the repository's URL"),
        (["--source=http://example.com/x", "--key=none"], "SOURCE must be the repository's URL"),
        (["--source=https://example.com/x"], "KEY must name cosign's private key"),
        (["--source=https://example.com/x", "--key=none"], "there is no key none"),
        (["--source=https://example.com/x", f"--key={__file__}"], "COSIGN_PASSWORD must have the key's password"),
    ],
)
def test_a_command_line_that_cannot_release_says_what_lacks(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COSIGN_PASSWORD", raising=False)
    assert main(arguments) == 2
    assert f"make release: {complaint}" in capsys.readouterr().err
