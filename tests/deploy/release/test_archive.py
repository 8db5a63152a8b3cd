"""Archives are the same whenever their files are, whoever made these and when."""

import os
import tarfile
from pathlib import Path

import pytest
from deploy.release.archive import pack


def made(folder: Path, umask: int, time: int, names: list[str]) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        path.chmod((0o777 if name.endswith(".sh") else 0o666) & ~umask)
        os.utime(path, (time, time))
    (folder / "link").symlink_to("b/c.sh")
    return folder


@pytest.mark.parametrize("name", ["one.tar.gz", "one.tgz", "one.tar"])
def test_two_archives_of_the_same_files_are_identical(tmp_path: Path, name: str) -> None:
    one = made(tmp_path / "one", 0o022, 1_000_000_000, ["a", "b/c.sh", "b/d"])
    other = made(tmp_path / "other", 0o077, 1_500_000_000, ["b/d", "b/c.sh", "a"])
    pack(one, tmp_path / name, 1_600_000_000)
    pack(other, tmp_path / f"again-{name}", 1_600_000_000)
    assert (tmp_path / name).read_bytes() == (tmp_path / f"again-{name}").read_bytes()


def test_an_archive_keeps_links_and_what_may_be_executed(tmp_path: Path) -> None:
    pack(made(tmp_path / "one", 0o077, 0, ["a", "b/c.sh"]), tmp_path / "x.tar.gz", 1_600_000_000)
    with tarfile.open(tmp_path / "x.tar.gz") as archive:
        members = {member.name: member for member in archive}
        assert list(members) == ["a", "b", "b/c.sh", "link"]
        assert [members[name].mode for name in ("a", "b", "b/c.sh")] == [0o644, 0o755, 0o755]
        assert members["link"].linkname == "b/c.sh"
        assert {member.mtime for member in members.values()} == {1_600_000_000}


def test_another_content_makes_another_archive(tmp_path: Path) -> None:
    folder = made(tmp_path / "one", 0, 0, ["a"])
    pack(folder, tmp_path / "1.tar.gz", 0)
    (folder / "a").write_text("b")
    pack(folder, tmp_path / "2.tar.gz", 0)
    assert (tmp_path / "1.tar.gz").read_bytes() != (tmp_path / "2.tar.gz").read_bytes()
