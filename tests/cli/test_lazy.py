"""Commands that need an extra of the package, where it is not installed."""

import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
import yaml

from topomend.cli.lazy import Extra
from topomend.cli.main import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is installed here, but for grpcio."""
    folder = tmp_path_factory.mktemp("packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name != "grpc" and not path.name.startswith("grpcio-"):
            (folder / path.name).symlink_to(path)
    return folder


def topomend(packages: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{packages}:{ROOT / 'operator'}"}
    return subprocess.run(
        [sys.executable, "-S", "-m", "topomend.cli", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.parametrize("command", [["sandbox", "up"], ["sandbox", "--help"], ["demo"]])
def test_a_command_without_its_extra_says_so_and_begins_nothing(packages: Path, command: list[str]) -> None:
    done = topomend(packages, *command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {command[0]} needs grpc, which is not installed here")
    assert done.stderr.endswith("pip install 'topomend[sandbox]'\n")


@pytest.mark.parametrize("arguments", [["--help"], ["agent", "--help"], ["operator", "--help"], ["discover", "--help"]])
def test_all_else_runs_without_the_extra(packages: Path, arguments: list[str]) -> None:
    done = topomend(packages, *arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_extra_knows_what_is_missing() -> None:
    assert Extra("sandbox", ("grpc", "topomend.sandbox")).missing() == ""
    assert Extra("sandbox", ("grpc", "topomend.nowhere")).missing() == "topomend.nowhere"


def test_the_extra_is_one_that_the_package_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [*project["optional-dependencies"]] == ["sandbox"]
    assert {extra.name for extra in main._extras.values()} == {"sandbox"}


def test_a_command_of_the_plugin_starts_without_what_only_others_need(tmp_path: Path) -> None:
    """The official client, and readers of machines and files, took half of its time before the first request."""
    kubeconfig = tmp_path / "config"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    content = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}]}
    kubeconfig.write_text(yaml.safe_dump(content | {"current-context": "c"}))
    command = "import sys; from topomend.cli.kubectl_numa import main; sys.argv = ['kubectl-numa', 'show']; main()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", command],
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert "connection refused" in done.stderr
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "topomend.kube.pool" in modules
    assert not {"kubernetes", "kopf", "pyudev", "topomend.discover"} & modules
