"""The words with which a user names pods and workloads, where they name nothing: before any cluster is asked."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from topomend.cli.kubectl_numa import numa


@pytest.fixture
def nobody(tmp_path: Path) -> str:
    """The kubeconfig of a server that does not answer."""
    path = tmp_path / "config"
    cluster = {"server": "http://127.0.0.1:9"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "prod",
    }
    path.write_text(json.dumps(content))
    return str(path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a pod"),
        ([""], "'' names nothing"),
        ([".."], "'..' names nothing"),
        (["pod/"], "'pod/' names nothing"),
        (["/web"], "/web is no KIND/NAME"),
        (["deploy/web", "other"], "other is no KIND/NAME"),
        (["web", "-A"], "web and -A: give names, or -A"),
        (["web", "-l", "app=web"], "web and -l: give names, or -l"),
        (["-A", "-f", "pod.yaml"], "name that pod, not all namespaces"),
    ],
    ids=str,
)
def test_words_that_name_nothing_are_bad_input(words: list[str], message: str, nobody: str) -> None:
    result = CliRunner().invoke(numa, ["explain", *words, "--kubeconfig", nobody])
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert message in result.stderr


def test_a_dead_server_is_named_with_its_context_and_what_to_do(nobody: str) -> None:
    result = CliRunner().invoke(numa, ["explain", "deploy/web", "--kubeconfig", nobody])
    assert result.exit_code == 3
    assert result.stderr == (
        "Error: no answer from http://127.0.0.1:9 "
        f"(cluster c of {nobody}, context prod): connection refused; "
        "see whether it runs (kubectl cluster-info), or choose another cluster with --context\n"
    )


def test_a_mistyped_context_gets_the_nearest_one(nobody: str) -> None:
    result = CliRunner().invoke(numa, ["explain", "deploy/web", "--kubeconfig", nobody, "--context", "prd"])
    assert result.exit_code == 2
    assert result.stderr.endswith("no context prd; its contexts: prod; did you mean prod?\n")
