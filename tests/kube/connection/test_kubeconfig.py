"""Kubeconfigs as kubectl reads them: several files, contexts, types of fields. What is in the entries: test_access."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from topomend.kube.connection.kubeconfig import BadSelection, NotConfigured, load, paths_of_environment


def entry(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, kind: {field.replace("_", "-"): value for field, value in fields.items()}}


def write(path: Path, current: str = "", **lists: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(lists | ({"current-context": current} if current else {})))
    return path


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Two files, of which the first has no current context, and both a user ``red``."""
    first = write(
        tmp_path / "a" / "config",
        contexts=[entry("context", "one", cluster="c1", user="red")],
        clusters=[entry("cluster", "c1", server="https://one", certificate_authority="ca.crt")],
        users=[entry("user", "red", tokenFile="token")],
    )
    second = write(
        tmp_path / "b" / "config",
        "two",
        contexts=[entry("context", "two", cluster="c2", user="red", namespace="mine")],
        clusters=[
            entry("cluster", "c1", server="https://another", tls_server_name="another"),
            entry("cluster", "c2", server="https://two", certificate_authority="ca.crt"),
        ],
        users=[entry("user", "red", username="of the second"), entry("user", "blue", username="u")],
    )
    return [first, second]


def test_the_first_files_entry_counts_as_a_whole_and_paths_are_relative_to_the_file_of_their_entry(
    two: list[Path],
) -> None:
    merged = load(two)
    assert merged.contexts == ["one", "two"]
    chosen = merged.select()
    assert (chosen.context, chosen.namespace, chosen.cluster.text("server")) == ("two", "mine", "https://two")
    assert chosen.cluster.path("certificate-authority") == two[1].parent / "ca.crt"
    assert chosen.user.path("tokenFile") == two[0].parent / "token"
    assert chosen.user.text("username") == ""
    one = merged.select("one")
    assert (one.namespace, one.cluster.text("server"), one.cluster.text("tls-server-name")) == (
        "default",
        "https://one",
        "",
    )


def test_files_that_are_not_there_do_not_matter_unless_none_is(two: list[Path], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert load([gone, *two]).select().context == "two"
    with pytest.raises(NotConfigured, match=f"^{gone}: no such file"):
        load([gone])


def test_a_value_of_kubeconfig_is_a_list_of_files() -> None:
    assert paths_of_environment(os.pathsep.join(["/a", "", "/b", "/a"])) == [Path("/a"), Path("/b")]


def test_an_unknown_context_is_named_with_those_that_are_there(two: list[Path]) -> None:
    with pytest.raises(
        BadSelection, match=f"^{two[0]} and {two[1]}: no context ome; its contexts: one, two$"
    ) as caught:
        load(two).select("ome")
    assert (caught.value.name, caught.value.names) == ("ome", ["one", "two"])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", ": current-context is not set; choose one with kubectl config use-context NAME; its contexts: none"),
        ("a: b: c", ", line 1: is not YAML"),
        ("a: 1\nb: ]", ", line 2: is not YAML"),
        ("[]", ": is no kubeconfig: it holds no mapping"),
        ("text", ": is no kubeconfig: it holds no mapping"),
        ("\x00", ": is no text in YAML"),
        ("kind: Pod", ": kind is 'Pod', not Config"),
        ("clusters: 3", ": clusters is no list"),
        ("current-context: 3", ": current-context is no text"),
        ("current-context: gone", ": current-context is gone, which is no context there; its contexts: none"),
        ("users: [{user: {}}]", ": an entry of users has no name that is text"),
        ("users: [3]", ": an entry of users has no name that is text"),
        ("users: [{name: u, user: 3}]", ": user u is no mapping"),
        ("users: [{name: u}, {name: u}]", ": user u is there twice"),
        (
            "current-context: c\ncontexts: [{name: c, context: {user: u}}]",
            ": cluster of context c names none",
        ),
        (
            "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: l}, {name: m}]",
            ": cluster of context c is k, which is not there; the clusters are: l, m",
        ),
        (
            "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k}]",
            ": user of context c is u, which is not there; the users are: none",
        ),
        (
            "current-context: c\ncontexts: [{name: c, context: {cluster: 3}}]",
            ": cluster of context c is no text: put it in quotes",
        ),
    ],
)
def test_what_is_wrong_is_named_by_file_entry_and_field(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(NotConfigured) as caught:
        load([path]).select()
    assert str(caught.value) == f"{path}{problem}"


def test_only_the_first_document_counts(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k}]\n---\n[ : no YAML"
    )
    assert load([path]).select().cluster.name == "k"


def test_an_entry_knows_the_types_of_its_fields(tmp_path: Path) -> None:
    path = write(
        tmp_path / "config",
        "c",
        contexts=[entry("context", "c", cluster="k", user="u")],
        clusters=[entry("cluster", "k", insecure_skip_tls_verify="true", certificate_authority_data="not base64!")],
        users=[entry("user", "u", token=3, as_groups="g", exec=[])],
    )
    chosen = load([path]).select()
    for read, problem in (
        (lambda: chosen.cluster.flag("insecure-skip-tls-verify"), "is neither true nor false"),
        (lambda: chosen.cluster.pem("certificate-authority"), "is not base64"),
        (lambda: chosen.user.text("token"), "token of user u is no text: put it in quotes"),
        (lambda: chosen.user.texts("as-groups"), "as-groups of user u is no list of texts"),
    ):
        with pytest.raises(NotConfigured, match=f"^{path}, context c: .*{problem}"):
            read()
