"""The help of every command, without a cluster."""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from topomend.cli.kubectl_numa import numa
from topomend.cli.main import main

PROGRAMS: dict[str, click.Group] = {"kubectl numa": numa, "topomend": main}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of both programs: the program and the words after it."""
    for program, group in PROGRAMS.items():
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from ((program, [name, sub]) for sub in command.list_commands(click.Context(command)))
            else:
                yield program, [name]


@pytest.mark.parametrize(("program", "words"), list(commands()), ids=str)
def test_the_help_of_every_command_has_examples_that_call_it(program: str, words: list[str]) -> None:
    result = CliRunner().invoke(PROGRAMS[program], [*words, "-h"], prog_name=program)
    assert result.exit_code == 0
    examples = result.output.split("Examples:")[1]
    named = "topomend" if words == ["simulate"] else program  # one command of both programs
    assert f"{named} {' '.join(words)}" in examples


def test_a_mistyped_command_gets_the_nearest_one() -> None:
    for program, group in PROGRAMS.items():
        result = CliRunner().invoke(group, ["simulat"], prog_name=program)
        assert (result.exit_code, result.stderr) == (2, "Error: no command simulat: did you mean simulate?\n")
    result = CliRunner().invoke(main, ["xyzzy"], prog_name="topomend")
    assert result.stderr == "Error: no command xyzzy; topomend -h lists them\n"


def test_a_mistyped_option_gets_the_nearest_one() -> None:
    result = CliRunner().invoke(numa, ["aligned", "--selectr", "x"])
    assert result.exit_code == 2
    # click's own words: its releases differ in quotes and full stops
    assert re.search(r"--selectr'?\.? Did you mean '?--selector'?\?", result.stderr)
