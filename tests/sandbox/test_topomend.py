"""topomend in the sandbox: brought up with one flag, healed when a part of it ends, gone with the sandbox."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.sandbox.leftovers import assert_nothing_left, eventually
from tests.waiting import stretched

import topomend
from topomend.sandbox.build import ensure_binary

pytestmark = pytest.mark.cluster

SHAPE = "numa:2 cores:4 memory:4Gi device:vendor.com/gpu@0=1,1=1"

PROGRAMS = {"topomend-operator", "topomend-agent-node-1", "topomend-agent-node-2"}

REFUSED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "refused"},
    "spec": {
        "nodeSelector": {"kubernetes.io/hostname": "node-1"},
        "containers": [{"name": "c", "image": "x:1", "resources": {"limits": {"cpu": "5", "memory": "64Mi"}}}],
    },
}


class Commands:
    """The commands of a user, with a cache folder of this test's own."""

    def __init__(self, cache: Path) -> None:
        self.environment = {
            **os.environ,
            "XDG_CACHE_HOME": str(cache),
            "PYTHONPATH": str(Path(topomend.__file__).parents[1]),
            "KUBECONFIG": str(cache / "topomend" / "sandboxes" / "t" / "kubeconfig"),
        }

    def sandbox(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run([sys.executable, "-m", "topomend.cli", "sandbox", verb, "--name", "t", *arguments])

    def kubectl(self, *arguments: str) -> Any:
        done = self.sandbox("kubectl", "--", *arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def numa(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        entry = "from topomend.cli.kubectl_numa import main; main()"
        return self._run([sys.executable, "-c", entry, *arguments])

    def programs(self) -> dict[str, Any]:
        status = json.loads(self.sandbox("status", "-o", "json").stdout)
        return {program["name"]: program for program in status["programs"]}

    def restarts(self, program: str) -> int:
        return int(self.programs()[program]["restarts"])

    def create(self, content: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "topomend.cli", "sandbox", "kubectl", "--name", "t", "--"]
        text = json.dumps(content)
        subprocess.run([*command, "create", "-f", "-"], input=text, env=self.environment, text=True, check=True)

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=stretched(120)
        )


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """A sandbox of two nodes with topomend in it; nothing of it is left afterwards."""
    binary = ensure_binary(print)
    cache = tmp_path_factory.mktemp("cache")
    place = cache / "topomend" / "binaries" / binary.parent.name
    place.mkdir(parents=True)
    (place / binary.name).symlink_to(binary)
    commands = Commands(cache)
    up = commands.sandbox("up", "--topomend", "--nodes", "2", "--machine", SHAPE, "--policy", "single-numa-node")
    try:
        assert up.returncode == 0, up.stderr
        yield commands
    finally:
        down = commands.sandbox("down")
    assert down.returncode == 0, down.stderr
    assert_nothing_left(cache)
    assert not (cache / "topomend" / "sandboxes" / "t").exists()


def test_every_node_is_ready_and_the_pods_run_when_it_is_up(commands: Commands) -> None:
    for topology in commands.kubectl("get", "ntopo")["items"]:
        conditions = {one["type"]: one["status"] for one in topology["status"]["conditions"]}
        assert conditions["Ready"] == "True"
    assert commands.numa("check").stdout == "Every node publishes its topology.\n"
    pods = [*commands.kubectl("get", "pods", "-n", "topomend-agent")["items"]]
    pods += commands.kubectl("get", "pods", "-n", "topomend-system")["items"]
    assert len(pods) == 4
    assert eventually(
        lambda: all(
            pod["status"]["phase"] == "Running"
            for namespace in ("topomend-agent", "topomend-system")
            for pod in commands.kubectl("get", "pods", "-n", namespace)["items"]
        )
    )


def test_status_names_the_programs_and_their_metrics(commands: Commands) -> None:
    programs = commands.programs()
    assert {name for name in programs if name.startswith("topomend-")} == PROGRAMS | {"topomend-tokens"}
    text = commands.sandbox("status").stdout
    for name in PROGRAMS:
        assert programs[name]["metrics"] in text
        assert Path(programs[name]["log"]).exists()
        with urllib.request.urlopen(programs[name]["metrics"], timeout=10) as answer:  # noqa: S310 - http
            assert b"topomend_" in answer.read()


def test_a_refused_pod_is_explained_by_the_operator(commands: Commands) -> None:
    commands.create(REFUSED)
    assert eventually(
        lambda: any(
            event["reason"] in ("TopologyRefusalExplained", "NoNodeCanEverAdmit")
            for event in commands.kubectl("get", "events", "--field-selector", "involvedObject.name=refused")["items"]
        ),
        stretched(30),
    )


@pytest.mark.parametrize("program", sorted(PROGRAMS | {"topomend-tokens"}))
def test_a_program_that_is_killed_is_started_again(commands: Commands, program: str) -> None:
    others = {name: commands.restarts(name) for name in PROGRAMS - {program}}
    before = commands.programs()[program]
    psutil.Process(before["pid"]).kill()
    assert eventually(lambda: commands.restarts(program) > before["restarts"], stretched(20))
    after = commands.programs()[program]
    assert (after["pid"] is not None, after["exit"]) == (True, None)
    assert commands.sandbox("status").returncode == 0
    assert {name: commands.restarts(name) for name in PROGRAMS - {program}} == others


def test_an_agent_gets_the_token_of_the_pod_that_replaces_its_own(commands: Commands) -> None:
    """A token is worth nothing once its pod is gone: what was deleted by hand is published anew with the next one."""
    assert commands.sandbox("kubectl", "--", "delete", "ntopo", "--all").returncode == 0
    assert commands.sandbox("kubectl", "--", "delete", "pods", "--all", "-n", "topomend-agent").returncode == 0
    assert eventually(lambda: commands.numa("check").returncode == 0, stretched(60)), commands.numa("check").stdout


def test_another_up_with_the_same_flags_changes_nothing_and_without_it_is_refused(commands: Commands) -> None:
    flags = ("--nodes", "2", "--machine", SHAPE, "--policy", "single-numa-node")
    before = commands.programs()["topomend-operator"]["pid"]
    assert commands.sandbox("up", "--topomend", *flags).stdout == "Sandbox t is up already.\n"
    other = commands.sandbox("up", *flags)
    assert (other.returncode, "up already with other nodes or flags" in other.stderr) == (2, True)
    assert commands.programs()["topomend-operator"]["pid"] == before
