import json
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.closed_folder import closed
from topomend_sandbox import command

from topomend.cli.lazy import Extra
from topomend.cli.main import main
from topomend.cli.sandbox import sandbox
from topomend.sandbox import layout, registry

FACTS = {"version": "v1.37.2", "nodes": [{"name": "a"}, {"name": "b"}]}


@pytest.mark.parametrize(
    ("name", "words"), [("machine", "is neither a shape such as"), ("sockets:1", "is unknown; a shape has")]
)
def test_a_machine_in_a_folder_that_may_not_be_entered_is_bad_input(tmp_path: Path, name: str, words: str) -> None:
    with closed(tmp_path / "closed") as folder:
        result = CliRunner().invoke(main, ["sandbox", "up", "--machine", f"{folder}/{name}"])
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def listed(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["sandbox", "list", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_list_has_every_sandbox_that_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert listed().split() == ["NAME", "VERSION", "NODES", "KUBECONFIG"]
    with registry.lock("mine"), registry.lock("starting"):
        layout.state_folder("mine").mkdir()
        (layout.state_folder("mine") / layout.SANDBOX_FILE).write_text(json.dumps(FACTS))
        kubeconfig = str(registry.kubeconfig("mine"))
        assert listed().splitlines()[1].split() == ["mine", "v1.37.2", "2", kubeconfig]
        assert listed("-o", "name") == "mine\n"
        record = {"name": "mine", "version": "v1.37.2", "nodes": ["a", "b"], "kubeconfig": kubeconfig}
        assert json.loads(listed("-o", "json")) == [record]
    assert listed("-o", "json") == "[]\n"


@pytest.mark.parametrize(
    ("group", "words", "program"), [(main, ["sandbox"], "topomend sandbox"), (command.main, [], "topomend-sandbox")]
)
def test_examples_name_the_program_that_was_called(group: click.Group, words: list[str], program: str) -> None:
    for name in sandbox.sandbox.commands:
        result = CliRunner().invoke(group, [*words, name, "--help"], prog_name=program.split(maxsplit=1)[0])
        assert result.exit_code == 0
        examples = result.stdout.partition("Examples:\n")[2].splitlines()
        assert examples, name
        assert all(program in line for line in examples if not line.startswith("      ")), examples
        assert f"Usage: {program} {name}" in result.stdout


def test_topomend_in_a_sandbox_names_the_extra_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program topomend-sandbox is installed without it."""
    monkeypatch.setattr(sandbox, "OPERATOR", Extra("operator", ("nowhere.at_all",)))
    result = CliRunner().invoke(command.main, ["up", "--topomend", "--name", "never"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--topomend needs nowhere.at_all, which is not installed here" in result.stderr
    assert "pip install 'topomend[operator]'" in result.stderr


def test_kubectl_finds_the_plugin_of_this_installation_before_any_other(tmp_path: Path) -> None:
    other = tmp_path / "kubectl-numa"
    other.touch(0o755)
    found = shutil.which("kubectl-numa", path=sandbox._with_plugin({"PATH": str(tmp_path)})["PATH"])
    assert found not in (None, str(other))
    assert shutil.which("kubectl-numa", path=sandbox._with_plugin({})["PATH"]) == found
