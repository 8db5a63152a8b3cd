"""Whatever a line quotes, a terminal shows it and does not obey it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from topomend.cli.lazy import LazyGroup
from topomend.cli.main import main
from topomend.cli.output import console
from topomend.cli.output.failures import BadInput, CannotAsk
from topomend.cli.output.formats import TABLE, Printer, Row, document_text
from topomend.cli.output.table import aligned_rows, echo_table

CLI = Path(console.__file__).parents[1]

HOSTILE = "a\x1b[2J\x1b]0;pwned\x07\u202eevil\u200b\u2066\r\n\x9b31mb\ud800\x00"
SHOWN = r"a\x1b[2J\x1b]0;pwned\x07\u202eevil\u200b\u2066\r\n\x9b31mb\ud800\x00"


def test_a_line_is_one_line_and_has_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    console.echo(HOSTILE)
    console.echo_lines([HOSTILE, "", "ä … │ 漢"])
    console.echo(HOSTILE, err=True)
    printed = capsys.readouterr()
    assert printed.out.split("\n") == [SHOWN, SHOWN, "", "ä … │ 漢", ""]
    assert printed.err == f"{SHOWN}\n"


def test_a_column_is_as_wide_as_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table([("NAME", "X"), (HOSTILE, "x"), ("b", "x")])
    width = len(SHOWN)
    assert capsys.readouterr().out.splitlines() == [f"{'NAME':{width}}   X", f"{SHOWN}   x", f"{'b':{width}}   x"]
    assert aligned_rows([("A", "B"), ("a", "\n")]) == ["A   B", r"a  \n"]


def test_rows_that_are_watched_are_escaped_too(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(TABLE, ("NAME",))
    printer.first([Row(("a",), (HOSTILE,), {}, "n")], {})
    printer.next([Row(("a",), (f"{HOSTILE}2",), {"changed": True}, "n")])
    assert capsys.readouterr().out.splitlines() == ["NAME", SHOWN, f"{SHOWN}2"]


@pytest.mark.parametrize("kind", [BadInput, CannotAsk])
def test_an_error_is_one_line_whatever_it_quotes(kind: type[click.ClickException]) -> None:
    @click.command()
    def command() -> None:
        raise kind(HOSTILE)

    result = CliRunner().invoke(command)
    assert (result.exit_code, result.output) == (kind.exit_code, f"Error: {SHOWN}\n")


def test_an_error_of_the_command_line_quotes_it_escaped_and_keeps_its_own_lines() -> None:
    result = CliRunner().invoke(main, ["simulate", "--pods\x1b[2J", "\u202e"])
    assert result.exit_code == 2
    assert r"\x1b[2J" in result.output
    assert all(line.isprintable() for line in result.output.splitlines())
    missing = CliRunner().invoke(main, ["completion"])
    assert "Choose from:\n\tbash,\n\tzsh,\n\tfish" in missing.output
    group = LazyGroup("group", lazy={})
    assert r"\x1b" in CliRunner().invoke(group, ["\x1b"]).output


def test_nothing_of_the_commands_prints_but_the_console() -> None:
    """``click.echo``, ``print`` and the streams themselves are its own."""
    printing = {
        f"{path.relative_to(CLI)}: {ast.unparse(node)}"
        for path in CLI.rglob("*.py")
        if path.name != "console.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if _prints(node)
    }
    assert printing == set()


def _prints(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="click"), attr="echo" | "secho" | "style" | "echo_via_pager"):
            return True
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="sys")), attr="write" | "writelines"):
            return True
        case ast.Call(func=ast.Name(id="print")):
            return True
    return False


def test_data_is_escaped_by_its_own_rules_and_has_no_raw_byte_either() -> None:
    for output in ("json", "yaml"):
        assert all(line.isprintable() for line in document_text({"a": HOSTILE[:-2]}, output).splitlines())


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("program", ["main import main", "kubectl_numa import main"])
def test_an_answer_that_cannot_be_written_is_one_line_and_no_answer(program: str, unbuffered: str) -> None:
    arguments = ["simulate", "--node", "numa:2 cores:4 memory:4Gi", "--pods", "-"]
    pod = "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: c}]}}"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", f"from topomend.cli.{program}; main()", *arguments],
            input=pod,
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (2, "Error: stdout cannot be written: No space left on device\n")
