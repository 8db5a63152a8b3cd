"""Programs that issue credentials, and what is said where they do not. Those that do: test_every_kubeconfig."""

import json
from pathlib import Path
from typing import Any

import pytest

from topomend.kube.connection import exec_plugin
from topomend.kube.connection.exec_plugin import ExecPlugin
from topomend.kube.connection.kubeconfig import Entry, NotConfigured

V1 = "client.authentication.k8s.io/v1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def plugin_of(folder: Path, *lines: str, **fields: Any) -> ExecPlugin:
    script = folder / "plugin"
    script.write_text("\n".join(["#!/bin/sh", f"echo >> {folder}/calls", *lines, ""]))
    script.chmod(0o700)
    config = {"command": "./plugin", "apiVersion": V1, "interactiveMode": "Never", **fields}
    return ExecPlugin(Entry("user", "u", {"exec": config}, folder / "config", "x"), {"server": "https://s"})


def printing(status: dict[str, Any] | None, version: str = V1, kind: str = "ExecCredential") -> str:
    return f"echo '{json.dumps({'apiVersion': version, 'kind': kind, 'status': status})}'"


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "echo first >&2; echo 'not logged in' >&2; exit 7",
            "ended with exit code 7: not logged in",
        ),
        ("exit 1", "ended with exit code 1: without a word on stderr"),
        ("echo secret", "prints no JSON"),
        ("echo '[]'", "prints no ExecCredential"),
        (printing({"token": "t"}, kind="Pod"), "prints no ExecCredential"),
        (printing({"token": "t"}, version="other/v1"), f"answers in version other/v1, not {V1}"),
        (printing(None), "answers without a status"),
        (printing({}), "issues neither a token nor a certificate"),
        (printing({"clientKeyData": "secret"}), "issues only one of certificate and key"),
        (printing({"token": "t", "expirationTimestamp": "soon"}), "prints an expirationTimestamp that is no time"),
    ],
)
def test_a_program_that_fails_is_named_with_its_last_word(folder: Path, line: str, why: str) -> None:
    with pytest.raises(NotConfigured) as caught:
        plugin_of(folder, line).credential()
    assert str(caught.value) == f"{folder}/config, context x: exec of user u failed: {folder}/plugin {why}"


def test_a_program_that_is_not_there_is_named_with_the_hint_of_its_maker(folder: Path) -> None:
    plugin = plugin_of(folder, command="no-such-program", installHint="get it\nsomewhere")
    with pytest.raises(NotConfigured, match=r"is no-such-program, which is not installed: get it somewhere$"):
        plugin.credential()
    with pytest.raises(NotConfigured, match="cannot be run: Permission denied"):
        plugin_of(folder, command=str(folder)).credential()


def test_a_program_that_does_not_end_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_plugin, "SECONDS", 0.2)
    with pytest.raises(NotConfigured, match=r"did not end within"):
        plugin_of(folder, "exec sleep 600").credential()


def test_a_program_that_fails_is_not_called_again_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = plugin_of(folder, "exit 1")
    for _ in range(5):
        with pytest.raises(NotConfigured, match="exit code 1"):
            plugin.credential()
    assert calls(folder) == 1
    monkeypatch.setattr(exec_plugin, "FIRST_PAUSE", 0.0)
    with pytest.raises(NotConfigured, match="exit code 1"):
        plugin.credential()
    assert calls(folder) == 2


def test_an_error_that_is_told_again_does_not_grow(folder: Path) -> None:
    plugin = plugin_of(folder, "exit 1")
    told = []
    for _ in range(20):
        with pytest.raises(NotConfigured, match="exit code 1") as caught:
            plugin.credential()
        told.append((caught.value, len(caught.traceback)))
    assert calls(folder) == 1
    _, *again = told
    assert len({depth for _, depth in again}) == 1, "each raise adds the frames of its callers to an exception"
    assert len({id(error) for error, _ in told}) == len(told), "several threads may be told at once"


def test_a_credential_that_is_not_accepted_is_issued_anew_but_not_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = plugin_of(folder, printing({"token": "t"}))
    for _ in range(3):
        assert plugin.credential().token == "t"  # noqa: S105 - no secret
        plugin.forget()
    assert calls(folder) == 1
    monkeypatch.setattr(exec_plugin, "AGAIN_SECONDS", 0.0)
    plugin.forget()
    plugin.credential()
    assert calls(folder) == 2


def test_a_program_that_needs_a_terminal_is_not_called_without_one(folder: Path) -> None:
    with pytest.raises(NotConfigured, match="interactiveMode of exec of user u is Always, and the standard input"):
        plugin_of(folder, interactiveMode="Always").credential()
