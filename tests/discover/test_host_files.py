"""Files of a host are read within bounds, and links lead nowhere outside of a recorded tree."""

import os
import re
from pathlib import Path

import pytest

from topomend.discover import host_files
from topomend.discover.host_files import MAX_BYTES, MAX_LINKS, Absent, Root, SourceUnreadable, read_bytes


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "host" / "sys").mkdir(parents=True)
    return Root(tmp_path / "host")


def write(root: Root, content: bytes | str, name: str = "sys/file") -> None:
    (root.path / name).write_bytes(content.encode() if isinstance(content, str) else content)


# One file


def test_a_file_is_read_up_to_its_bound_and_not_beyond(root: Root) -> None:
    write(root, "12345")
    assert read_bytes(root.path / "sys/file", 5) == b"12345"
    with pytest.raises(SourceUnreadable, match="is longer than 4 bytes"):
        read_bytes(root.path / "sys/file", 4)


@pytest.mark.parametrize("name", ["sys/gone", "sys/file/below"])
def test_a_file_that_is_not_there_is_absent(name: str, root: Root) -> None:
    write(root, "1")
    with pytest.raises(Absent):
        read_bytes(root.path / name, 10)


def test_a_pipe_or_a_folder_is_no_file_and_blocks_nobody(root: Root) -> None:
    os.mkfifo(root.path / "sys/pipe")
    for name in ("sys/pipe", "sys"):
        with pytest.raises(SourceUnreadable) as failure:
            read_bytes(root.path / name, 10)
        assert not isinstance(failure.value, Absent)


def test_an_absent_file_is_no_problem_and_an_unreadable_one_is(root: Root) -> None:
    assert root.text("sys/gone") is None
    assert root.problems == []
    write(root, b"x" * (MAX_BYTES + 1))
    assert root.text("sys/file") is None
    assert root.problems == [f"/sys/file is longer than {MAX_BYTES} bytes"]


def test_padding_and_the_zero_bytes_of_a_page_are_taken_off(root: Root) -> None:
    write(root, b" Intel\n\0\0\0")
    assert root.text("sys/file") == "Intel"


# What a file holds


@pytest.mark.parametrize(
    ("text", "number"),
    [("3\n", 3), ("-1", -1), ("9223372036854775807", (1 << 63) - 1), ("9223372036854775808", None), ("0x10", None)],
)
def test_an_integer_fits_64_bits_or_is_a_problem(text: str, number: int | None, root: Root) -> None:
    write(root, text)
    assert root.integer("sys/file") == number
    assert root.problems == ([] if number is not None else [f"/sys/file holds {text!r} where a whole number belongs"])


@pytest.mark.parametrize(("text", "mask"), [("0-2,5", 0b100111), ("", 0), ("2-1", None), ("many", None)])
def test_a_list_of_ids_is_a_mask_or_a_problem(text: str, mask: int | None, root: Root) -> None:
    write(root, text)
    assert root.id_list("sys/file") == mask
    assert len(root.problems) == (mask is None)


@pytest.mark.parametrize(
    ("text", "mask"),
    [("00000000,000000ff\n", 0xFF), ("1,00000000", 1 << 32), ("", 0), ("0xff", 0xFF), ("gg", None), ("-1", None)],
)
def test_a_map_of_ids_is_a_mask_or_a_problem(text: str, mask: int | None, root: Root) -> None:
    write(root, text)
    assert root.id_map("sys/file") == mask
    assert len(root.problems) == (mask is None)


def test_a_map_of_more_ids_than_any_machine_has_is_a_problem(root: Root) -> None:
    write(root, "f" * 10_000)
    assert root.id_map("sys/file") is None
    assert len(root.problems) == 1


def test_only_lines_that_match_whole_are_read(root: Root) -> None:
    write(root, "model name: x\nflags: a b\nflags\n")
    assert root.lines("sys/file", re.compile(r"flags: .*")) == ["flags: a b"]
    assert root.lines("sys/gone", re.compile(".*")) is None


# Folders


def test_names_that_match_are_sorted(root: Root) -> None:
    for name in ("node10", "node2", "online"):
        write(root, "", f"sys/{name}")
    assert root.names("sys", re.compile(r"node\d+")) == ["node10", "node2"]
    assert root.names("sys/gone") == []
    assert root.names("sys/online") == []
    assert root.problems == []


def test_a_folder_of_too_many_names_is_cut_and_reported(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_files, "MAX_ENTRIES", 2)
    for name in ("a", "b", "c"):
        write(root, "", f"sys/{name}")
    assert len(root.names("sys")) == 2
    assert root.problems == ["/sys holds more than 2 names; the rest was left out"]


def test_problems_of_what_admission_does_not_depend_on_are_remarks(root: Root) -> None:
    write(root, "many")
    assert root.beside().integer("sys/file") is None
    assert (root.problems, len(root.remarks)) == ([], 1)


# Links


@pytest.mark.parametrize("target", ["/etc/secret", "../../../../etc/secret", "up/../../etc/secret"])
def test_a_link_leads_nowhere_outside_the_root(target: str, root: Root) -> None:
    (root.path / "etc").mkdir()
    write(root, "inside", "etc/secret")
    (root.path.parent / "etc").mkdir()
    (root.path.parent / "etc" / "secret").write_text("outside")
    (root.path / "sys" / "up").symlink_to("..")
    (root.path / "sys" / "file").symlink_to(target)
    assert root.text("sys/file") in ("inside", None)
    assert root.resolve("sys/file").startswith(f"{root.path}/")
    assert not root.target("sys/file").startswith("..")


def test_a_link_to_an_absolute_path_starts_again_at_the_root(root: Root) -> None:
    write(root, "here")
    (root.path / "bus").mkdir()
    (root.path / "bus" / "link").symlink_to("/sys")
    assert root.text("bus/link/file") == "here"
    assert root.target("bus/link/file") == "sys/file"


def test_a_circle_of_links_ends_and_is_no_file(root: Root) -> None:
    (root.path / "sys" / "one").symlink_to("two")
    (root.path / "sys" / "two").symlink_to("one")
    assert root.text("sys/one") is None
    assert not root.exists("sys/one")


@pytest.mark.parametrize(("links", "read"), [(MAX_LINKS, "end"), (MAX_LINKS + 1, None)])
def test_as_many_links_are_followed_as_linux_follows(links: int, read: str | None, root: Root) -> None:
    write(root, "end", "sys/0")
    for number in range(links):
        (root.path / "sys" / str(number + 1)).symlink_to(str(number))
    walked = root.walk(f"sys/{links}")
    assert (walked == f"{root.path}/sys/0") is (read is not None)


def test_the_target_of_a_link_has_one_printable_name(root: Root) -> None:
    (root.path / "sys" / "driver").symlink_to("../../bus/drivers/mlx5_core")
    (root.path / "sys" / "odd").symlink_to("drivers/a\nb")
    assert [root.link(f"sys/{name}") for name in ("driver", "odd", "gone")] == ["mlx5_core", "", ""]
