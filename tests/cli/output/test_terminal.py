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

from topomend.cli.output.terminal import BAD, GOOD, PLAIN, UNSURE, Mark, parts_of, status_of, verdicts_in, wrapped

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


@pytest.mark.parametrize(
    ("line", "painted"),
    [
        ("a refuses container main: fits no NUMA node", [("refuses", BAD)]),
        ("  elsewhere: b NUMA 0 would admit it now", [("would admit it now", GOOD)]),
        ("no node would admit it now", [("no node would admit it now", BAD)]),
        ("no other node is known to admit it now", [("no other node is known to admit it now", UNSURE)]),
        ("whether a admits p now is unknown: silent", [("is unknown", UNSURE)]),
        ("a admits p on NUMA 0", [("a admits", GOOD)]),
        ("  cpu  4  3 no  4 yes", [("no", BAD), ("yes", GOOD)]),
        ("p fits on a (NUMA 1) once this pod has ended", [("fits on", GOOD)]),
        ("b NUMA 0 would\n  admit it now", [("would\n  admit it now", GOOD)]),
        ("restricted: refused: default/x on a", [("refused", BAD)]),
        ("restricted: waiting: default/x", [("waiting", UNSURE)]),
        ("static: 2 kubelets would not start (a, b): no", [("would not start", BAD)]),
        ("node yes-1 has no word of it", []),
    ],
)
def test_the_words_of_an_answer_that_say_yes_or_no_are_painted(line: str, painted: list[tuple[str, object]]) -> None:
    assert [(text, style) for text, style in parts_of(line, verdicts_in(line)) if style] == painted


@given(st.lists(st.sampled_from(["refuses", "no node would admit it now", "7 yes", "is unknown", " ", "x"])))
def test_painting_changes_no_word(words: list[str]) -> None:
    line = " ".join(words)
    assert "".join(text for text, _ in parts_of(line, verdicts_in(line))) == line


def test_the_parts_of_a_line_have_the_styles_of_its_marks() -> None:
    parts = [*parts_of("abc", [Mark(0, 1, GOOD), Mark(2, 3, BAD)])]
    assert [part for part in parts if part[0]] == [("a", GOOD), ("b", PLAIN), ("c", BAD)]


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


POD = (
    '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": {"containers": [{"name": "main", '
    '"resources": {"limits": {"cpu": "%s", "memory": "1Mi"}}}]}}'
)
NODE = ("--node", "numa:2 cores:4", "--topology-manager-policy", "single-numa-node", "--cpu-manager-policy", "static")


def simulated(folder: Path, columns: int, cpus: int, **environment: str) -> str:
    path = folder / "pod.json"
    path.write_text(POD % cpus)
    return on_a_terminal(columns, "simulate", *NODE, "--reserved-cpus", "0", "--pods", str(path), **environment)


@pytest.mark.parametrize(("cpus", "colour", "word"), [(2, 32, "yes"), (5, 31, "no")])
def test_an_answer_in_a_table_is_painted_and_its_columns_stay(
    tmp_path: Path, cpus: int, colour: int, word: str
) -> None:
    painted = simulated(tmp_path, 200, cpus)
    assert f"\x1b[{colour}m{word}\x1b[0m" in painted
    assert COLOUR.sub("", painted) == simulated(tmp_path, 200, cpus, NO_COLOR="1")


def test_a_cell_that_the_width_breaks_is_left_as_it_is(tmp_path: Path) -> None:
    narrow = simulated(tmp_path, 40, 5)
    assert COLOUR.sub("", narrow) == simulated(tmp_path, 40, 5, NO_COLOR="1")
    assert all(len(line) <= 40 or " " not in line.strip() for line in COLOUR.sub("", narrow).splitlines())


def test_an_error_fits_the_terminal_too() -> None:
    printed = on_a_terminal(60, "lint", "/nowhere", "--machine", "numa:2 cors:4 threads:2 memory:16Gi")
    assert printed.startswith("Error: ")
    assert len(printed.splitlines()) > 1
    assert all(len(line) <= 60 or " " not in line for line in printed.splitlines()), printed
