"""Commands that need an extra of the package, where it is not installed; and all others, with the package alone."""

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.builders import node_state, node_topology_object, pod_manifest
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import cluster_of
from tests.imports import foreign_imports

from topomend.cli.kubectl_numa import numa
from topomend.cli.lazy import OPERATOR, PLUGIN, SANDBOX, Extra, LazyGroup
from topomend.cli.main import main

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXAMPLES = ROOT / "examples"

SHAPE = "sockets:1 numa:2 cores:4"
CONFIGURATION = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}

NOT_NEEDED = {
    "capture": {"pyudev"},  # without it, devices have ids and no names
    "lint": {"pyudev"},
    "simulate": {"pyudev"},
    "what-if": {"msgspec"},  # of a file; of a cluster, kubectl numa what-if
}
"""What commands import where it is installed, and do without."""


@pytest.fixture(scope="module")
def without_grpc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is installed here, but for grpcio."""
    folder = tmp_path_factory.mktemp("packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name != "grpc" and not path.name.startswith("grpcio-"):
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages that topomend needs without any extra."""
    folder = tmp_path_factory.mktemp("core")
    for name in _names(PROJECT["dependencies"]):
        files = distribution(name).files or ()
        for top in {file.parts[0] for file in files} - {".."}:
            (folder / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    return folder


def _names(requirements: Iterable[str]) -> set[str]:
    return {str(canonicalize_name(Requirement(each).name)) for each in requirements}


def run(packages: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``topomend`` or ``kubectl-numa`` with these packages alone."""
    environment = os.environ | {"PYTHONPATH": f"{packages}:{ROOT / 'operator'}"}
    module = {"topomend": "main", "kubectl-numa": "kubectl_numa"}[program]
    code = f"import sys; sys.argv[0] = {program!r}; from topomend.cli.{module} import main; main()"
    return subprocess.run(
        [sys.executable, "-S", "-c", code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.parametrize("command", [["sandbox", "up"], ["sandbox", "--help"], ["demo"]])
def test_a_command_without_its_extra_says_so_and_begins_nothing(without_grpc: Path, command: list[str]) -> None:
    done = run(without_grpc, "topomend", *command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {command[0]} needs grpc, which is not installed here and is in no image")
    assert done.stderr.endswith("pip install 'topomend[sandbox]'\n")


@pytest.mark.parametrize("arguments", [["--help"], ["agent", "--help"], ["operator", "--help"], ["discover", "--help"]])
def test_all_else_runs_without_the_extra(without_grpc: Path, arguments: list[str]) -> None:
    done = run(without_grpc, "topomend", *arguments)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("program", "command", "extra"),
    [
        *(("topomend", command, extra) for command, extra in main._extras.items()),
        *(("kubectl-numa", verb, extra) for verb, extra in numa._extras.items()),
    ],
)
def test_the_package_alone_says_which_extra_a_command_needs(
    core: Path, program: str, command: str, extra: Extra
) -> None:
    done = run(core, program, command)
    assert (done.returncode, done.stdout) == (2, "")
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith(f"Error: {command} needs {extra.modules[0]}, which is not installed here")
    assert sentence.endswith(f"Install it with: pip install 'topomend[{extra.name}]'")


@pytest.mark.parametrize("program", ["topomend", "kubectl-numa"])
def test_the_package_alone_lists_every_command(core: Path, program: str) -> None:
    done = run(core, program, "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_package_alone_runs_every_other_command(core: Path, tmp_path: Path) -> None:
    kubelet, cluster, pod = tmp_path / "kubelet.yaml", tmp_path / "cluster.json", EXAMPLES / "pod.yaml"
    kubelet.write_text(yaml.safe_dump(CONFIGURATION))
    node = {"kind": "Node", "metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "7", "pods": "110"}}}
    items = [node, node_topology_object(node_state()), pod_manifest("p", "cpu=2 memory=1Mi", node="a")]
    cluster.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    commands = {
        "simulate": (f"--node={SHAPE}", f"--pods={pod}", f"--kubelet-config={kubelet}"),
        "lint": (str(kubelet), f"--machine={SHAPE}"),
        "machines": (),
        "completion": ("bash",),
        "capture": (str(tmp_path / "machine.tar.gz"),),
        "what-if": (f"--cluster={cluster}", "--policy=restricted"),
    }
    assert commands.keys() == main._lazy.keys() - main._extras.keys()
    for command, arguments in commands.items():
        done = run(core, "topomend", command, *arguments)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (command, done.stderr)
    done = run(core, "kubectl-numa", "simulate", f"--node={SHAPE}", f"--pods={pod}")
    assert done.returncode == 0, done.stderr


def test_an_extra_knows_what_is_missing() -> None:
    assert Extra("sandbox", ("grpc", "topomend.sandbox")).missing() == ""
    assert Extra("sandbox", ("grpc", "topomend.nowhere")).missing() == "topomend.nowhere"
    assert Extra("sandbox", ("nowhere.at_all",)).missing() == "nowhere.at_all"


def test_the_extras_are_those_that_the_package_has() -> None:
    """Each is looked for by the modules of its packages: one of each package, and no others."""
    extras = {extra.name: extra for extra in (OPERATOR, PLUGIN, SANDBOX)}
    assert extras.keys() == PROJECT["optional-dependencies"].keys()
    assert {*main._extras.values(), *numa._extras.values()} == {*extras.values()}
    assert Requirement("topomend[operator]") in map(Requirement, PROJECT["optional-dependencies"]["sandbox"])
    providers = packages_distributions()
    for name, extra in extras.items():
        within = {*OPERATOR.modules, "topomend.sandbox"} if extra is SANDBOX else set()
        asked = _names(PROJECT["optional-dependencies"][name]) - {"topomend"}
        assert {_provider(providers, module) for module in {*extra.modules} - within} == asked, name


def _provider(providers: Mapping[str, Sequence[str]], module: str) -> str:
    """The distribution that has the module. Other ones than protobuf's may have parts of the namespace google."""
    found = {str(canonicalize_name(each)) for each in providers[module.partition(".")[0]]}
    return "protobuf" if module == "google.protobuf" and "protobuf" in found else found.pop()


@pytest.mark.parametrize("group", [main, numa], ids=["topomend", "kubectl numa"])
def test_a_command_imports_no_more_than_the_package_and_its_extra_have(group: LazyGroup) -> None:
    providers = packages_distributions()
    for command, (module, _, _) in group._lazy.items():
        extra = group._extras.get(command)
        asked = [*PROJECT["dependencies"]]
        for name in {"sandbox": ("sandbox", "operator")}.get(extra.name, (extra.name,)) if extra else ():
            asked += PROJECT["optional-dependencies"][name]
        needed = foreign_imports([module]) - NOT_NEEDED.get(command, set()) - {"multidict"}  # aiohttp's own
        lacking = {each for each in needed if not {*map(canonicalize_name, providers[each])} & _names(asked)}
        assert lacking == set(), command


NOT_FOR_SHOW = {
    *("fractions", "kopf", "kubernetes", "msgspec", "pyudev", "queue", "urllib3", "yaml"),
    *("topomend.check", "topomend.decide", "topomend.discover", "topomend.explain", "topomend.relaunch"),
    *(f"topomend.cache.changes.{subject}" for subject in ("expiry", "pods", "records", "replays", "totals", "volumes")),
    *("topomend.cache.entries", "topomend.kube.served_kinds"),
    *("topomend.replay.admission", "topomend.replay.scopes"),
    *("topomend.replay.container_manager", "topomend.replay.cpu", "topomend.replay.devices"),
    *("topomend.replay.memory.static", "topomend.replay.qos", "topomend.replay.topology.hints"),
    *("topomend.replay.topology.merge", "topomend.replay.topology.options", "topomend.replay.topology.policies"),
    *("topomend.model.pods.scheduling", "topomend.model.devices.offered_device", "topomend.model.pods.pod"),
    *("topomend.model.relaunch_record", "topomend.model.verdict"),
    *("topomend.cli.numa.cluster.devices.device_places", "topomend.cli.numa.cluster.follow"),
    *("topomend.cli.numa.cluster.interrupt", "topomend.wire.pods.scheduling", "topomend.wire.pods.pod"),
    "topomend.wire.devices.resource_slice",
}
"""What only other commands need, or ``show`` of nodes with claims: each took part of the time until it answers."""


def test_show_answers_without_what_only_others_need(tmp_path: Path) -> None:
    """A person who waits compares it with kubectl, and each class and each package takes time when it is imported."""
    command = "import sys; from topomend.cli.kubectl_numa import main; sys.argv = ['kubectl-numa', 'show']; main()"
    with kubeconfig_of(cluster_of([node_state(name="a")], []), tmp_path) as kubeconfig:
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", command],
            env=os.environ | {"KUBECONFIG": str(kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a   single-numa-node / container")
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "topomend.kube.pool" in modules
    assert NOT_FOR_SHOW & modules == set()
