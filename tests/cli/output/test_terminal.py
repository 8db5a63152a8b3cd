"""Lines on a terminal are as wide as it is and have colours; anything else gets them as they are."""

import os
import pty
import re
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.terminals import written

from topomend.cli.output.terminal import status_of, wrapped

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\n"


def test_a_sentence_is_broken_at_spaces() -> None:
    assert (
        wrapped("no node admits it now: one of two lacks CPUs", 20)
        == "no node admits it\n  now: one of two\n  lacks CPUs"
    )


def test_the_last_column_of_a_row_stays_in_its_column() -> None:
    assert wrapped("node-1   no   it lacks 2 of 4 CPUs", 28) == "node-1   no   it lacks 2 of\n              4 CPUs"


def test_a_row_whose_last_column_begins_on_the_right_goes_on_below_one_that_does_not() -> None:
    assert wrapped("node-1   restricted   static   why", 28) == "node-1   restricted   static\n         why"


def test_a_long_word_stays_whole() -> None:
    assert (
        wrapped("see topomend-operator-5d9c-xz6zn-and-more now", 20)
        == "see\n  topomend-operator-5d9c-xz6zn-and-more\n  now"
    )


@given(st.text(st.characters(categories=["L", "N", "P", "Zs"]), max_size=300), st.integers(40, 200))
def test_nothing_but_spaces_is_lost(line: str, width: int) -> None:
    told = wrapped(line, width)
    assert told.split() == line.split()
    assert all(len(part) <= width or len(part.split()) == 1 for part in told.split("\n"))


def test_no_text_can_pass_for_a_line_of_its_own() -> None:
    assert wrapped("node-1 says" + " " * 100 + "ERROR    TM101  all is lost", 60).splitlines()[1].startswith("  ")


def test_without_a_terminal_a_line_is_as_it_is() -> None:
    assert wrapped("a  " * 200, 0) == "a  " * 200


def test_only_a_line_that_begins_with_a_status_has_one() -> None:
    assert status_of("ERROR    TM101") == "ERROR"
    assert status_of("NOT DONE TM106: no right") == "NOT DONE"
    assert status_of("ERRORS are none") == status_of("an ERROR is none") == ""


def on_a_terminal(columns: int, *arguments: str, **environment: str) -> str:
    """What a command prints to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "topomend.cli", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=kept | environment,
    )
    ended = os.pidfd_open(process.pid)
    printed = written(ours, theirs, ended)
    os.close(ended)
    process.wait(60)
    return printed.replace("\r\n", "\n")


@pytest.fixture
def kubelet(tmp_path: Path) -> Path:
    path = tmp_path / "kubelet.yaml"
    path.write_text(KUBELET)
    return path


def test_a_command_fits_the_terminal_and_paints_how_bad_it_is(kubelet: Path) -> None:
    printed = on_a_terminal(72, "lint", str(kubelet), "--machine", "numa:2 cores:4")
    lines = COLOUR.sub("", printed).splitlines()
    assert COLOUR.search(printed)
    assert "ERROR    TM401" in COLOUR.sub("", printed)
    assert len(lines) > 4
    assert all(len(line) <= 72 or " " not in line.strip() for line in lines), lines


def test_who_wants_no_colour_gets_none(kubelet: Path) -> None:
    assert "\x1b" not in on_a_terminal(72, "lint", str(kubelet), "--machine", "numa:2 cores:4", NO_COLOR="1")


def test_an_error_fits_the_terminal_too() -> None:
    printed = on_a_terminal(60, "lint", "/nowhere", "--machine", "numa:2 cors:4 threads:2 memory:16Gi")
    assert printed.startswith("Error: ")
    assert len(printed.splitlines()) > 1
    assert all(len(line) <= 60 or " " not in line for line in printed.splitlines()), printed
