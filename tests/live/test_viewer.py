"""The role topomend-viewer alone: every verb of the plugin that reads answers as it answers an administrator."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from deploy.manifests import DEPLOY
from tests.deploy.api import API, administrator, path_of
from tests.deploy.conftest import token_of
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.runtime.manifests import documents
from topomend.sandbox import Sandbox

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("published")]

ACCOUNT = "just-a-viewer"

_Answer = tuple[int, str, str]
"""Exit code, stdout and stderr."""

READING = {
    "aligned": (("-A",), ("-A", "--by", "node"), ("-A", "-o", "json")),
    "check": (("--skip", "TM1"), ("--skip", "TM1", "-o", "json")),
    "defragment": ((), ("-f", "{file}", "-o", "json")),
    "explain": (("pod/refused",), ("-f", "{file}"), ("pod/refused", "-o", "json")),
    "export": (("-A",), ("split", "-o", "name")),
    "fit": (("-f", "{file}"), ("-f", "{file}", "-o", "json")),
    "make-room": (("pod/refused",), ("-f", "{file}", "-o", "json")),
    "relaunches": ((), ("-A", "-o", "json")),
    "show": ((), ("split",), ("-o", "json")),
    "what-if": (("--policy", "none,restricted"), ("--scope", "pod", "-o", "json")),
}
"""The verbs that read, each with arguments. What ``check`` reads of topomend itself takes a role of its own."""

OTHERS = {"drain", "selftest", "simulate"}
"""Verbs that write, and that ask no cluster."""


def _binding() -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "topomend-viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}],
    }


@pytest.fixture
def admin(cluster: Sandbox) -> Iterator[API]:
    """The administrator of the shared cluster, every node published, with the role and an account without any."""
    admin = administrator(cluster.kubeconfig)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": "default"}}
    items = [account, *documents((DEPLOY / "base" / "viewer-role.yaml").read_text())]
    for item in items:
        assert admin.apply(path_of(item), item).allowed
    yield admin
    for item in items:
        admin.delete(path_of(item))


@pytest.fixture
def account(cluster: Sandbox, admin: API, tmp_path: Path) -> Path:
    """A kubeconfig with a token of the account."""
    configuration = yaml.safe_load(cluster.kubeconfig.read_text())
    configuration["users"][0]["user"] = {"token": token_of(admin, "default", ACCOUNT)}
    path = tmp_path / "viewer.kubeconfig"
    path.write_text(yaml.safe_dump(configuration))
    path.chmod(0o600)
    # The API server knows an account of this name that was deleted for a moment longer, and no token of the new one.
    eventually("the token to be known", lambda: "401" not in ask(path, "show").stderr)
    return path


@pytest.fixture
def viewer(admin: API, account: Path) -> Iterator[Path]:
    """The same, with the role."""
    assert admin.apply(path_of(_binding()), _binding()).allowed
    eventually("the role to count", lambda: ask(account, "check", "--skip", "TM1").exit_code == 0)
    yield account
    admin.delete(path_of(_binding()))
    eventually("the role to count no longer", lambda: ask(account, "show").exit_code == 3)


def ask(kubeconfig: Path, *arguments: str) -> Result:
    return CliRunner().invoke(numa, [*arguments, "--kubeconfig", str(kubeconfig)])


def pod(name: str, **spec: Any) -> dict[str, Any]:
    resources = {"limits": {"cpu": "5", "memory": "64Mi"}}
    containers = [{"name": "main", "image": "x", "resources": resources}]
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    return head | {"spec": {"terminationGracePeriodSeconds": 0, "containers": containers, **spec}}


def test_each_verb_that_reads_is_tried() -> None:
    assert set(numa.list_commands(click.Context(numa))) == READING.keys() | OTHERS


def test_a_viewer_is_answered_as_an_administrator(cluster: Sandbox, admin: API, viewer: Path, tmp_path: Path) -> None:
    pods = "/api/v1/namespaces/default/pods"
    assert admin.create(pods, pod("refused", nodeName="split")).allowed
    eventually("it to be refused", lambda: admin.get(f"{pods}/refused").content["status"]["phase"] == "Failed")
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod("p")))
    try:
        for verb, variants in READING.items():
            for arguments in variants:
                words = [verb, *(word.format(file=file) for word in arguments)]
                theirs, ours = eventually(
                    "nothing to change meanwhile", partial(_asked_both, viewer, cluster.kubeconfig, words)
                )
                assert theirs == ours
                assert ours[0] in (0, 1), (words, ours)
    finally:
        admin.delete(f"{pods}/refused")


def _asked_both(viewer: Path, administrator: Path, words: Sequence[str]) -> tuple[_Answer, _Answer] | None:
    """The answers to both; None where the administrator's changed meanwhile, as when an agent published."""
    before, theirs, ours = (_answer(kubeconfig, words) for kubeconfig in (administrator, viewer, administrator))
    return (theirs, ours) if before == ours else None


def _answer(kubeconfig: Path, words: Sequence[str]) -> _Answer:
    result = ask(kubeconfig, *words)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("verb", ["show", "aligned", "export", "relaunches"])
def test_whoever_lacks_the_right_is_told_the_role(account: Path, verb: str) -> None:
    answer = ask(account, verb)
    assert answer.exit_code == 3, answer.output
    assert "403 Forbidden" in answer.stderr
    assert "the ClusterRole topomend-viewer has the right" in answer.stderr
    assert "kubectl create clusterrolebinding NAME --clusterrole=topomend-viewer --user=YOU" in answer.stderr


@pytest.mark.parametrize("verb", ["fit", "explain"])
def test_whoever_lacks_some_rights_is_told_what_is_not_known_without_them(
    account: Path, tmp_path: Path, verb: str
) -> None:
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod("p")))
    answer = ask(account, verb, "-f", str(file))
    assert answer.exit_code == 3, answer.output
    assert (
        "nodetopologies (so no node's answer is known; the ClusterRole topomend-viewer has this right)" in answer.stderr
    )


def test_whoever_lacks_the_rights_of_check_is_told_what_was_not_looked_at(account: Path) -> None:
    answer = ask(account, "check")
    assert answer.exit_code == 3, answer.output
    assert "topomend-checker" in answer.output, answer.output


def test_whoever_may_not_drain_is_not_sent_for_a_viewers_role(viewer: Path) -> None:
    answer = ask(viewer, "drain", "--timeout", "1")
    assert answer.exit_code != 0
    assert "topomend-viewer" not in answer.output


def test_a_viewer_sees_the_plan_of_a_selftest_and_is_told_who_may_carry_it_out(viewer: Path) -> None:
    assert ask(viewer, "selftest", "split", "--dry-run").exit_code == 0
    answer = ask(viewer, "selftest", "split", "--yes")
    assert answer.exit_code == 3, answer.output
    assert 'cannot create resource "namespaces"' in answer.stderr
    assert "the ClusterRole cluster-admin has the right" in answer.stderr


def test_whoever_the_api_server_does_not_know_is_told_of_no_role(account: Path) -> None:
    configuration = yaml.safe_load(account.read_text())
    configuration["users"][0]["user"] = {"token": "none"}
    account.write_text(yaml.safe_dump(configuration))
    answer = ask(account, "check")
    assert answer.exit_code == 3
    assert "401" in answer.stderr
    assert "ClusterRole" not in answer.stderr
