"""Completion: of topomend by a shell's own script, of the plugin by kubectl's."""

import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from topomend.cli.completion import kubectl_complete
from topomend.cli.kubectl_numa import numa
from topomend.cli.main import main


def test_completion_scripts_are_shell_that_parses() -> None:
    for shell in ("bash", "zsh", "fish"):
        result = CliRunner().invoke(main, ["completion", shell])
        assert result.exit_code == 0
        assert "_TOPOMEND_COMPLETE" in result.stdout
        if shell == "bash":
            subprocess.run(["/bin/bash", "-n"], input=result.stdout, text=True, check=True)


def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What kubectl is offered after these words, the last one unfinished, without its own directive."""
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-numa", *words])
    kubectl_complete()
    return capsys.readouterr().out.splitlines()[:-1]


def test_explain_offers_kinds_also_where_no_cluster_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    assert completed(monkeypatch, capsys, "explain", "de") == ["deployment/"]
    assert completed(monkeypatch, capsys, "explain", "pod/") == []
    assert "statefulset/" in completed(monkeypatch, capsys, "explain", "")


def test_help_and_completion_of_verbs_import_no_verb() -> None:
    code = """if True:
        import sys
        from topomend.cli.completion import kubectl_complete
        sys.argv = ["kubectl_complete-numa", ""]
        kubectl_complete()
        print(*sorted(name for name in sys.modules if name.startswith(("topomend.cli.numa.", "kubernetes", "yaml"))))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *verbs, directive, imported = done.stdout.split("\n")[:-1]
    assert (directive, imported) == (":4", "")
    assert [line.split("\t")[0] for line in verbs] == numa.list_commands(click.Context(numa))
    assert all(re.search(r"\t.+\.$", line) for line in verbs)
