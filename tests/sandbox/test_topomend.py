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
from tests.seeds import IS_NIGHT
from tests.waiting import stretched

import topomend
from topomend.sandbox.releases.build import ensure_binary

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

    def pods(self) -> list[Any]:
        """topomend's own pods."""
        namespaces = ("topomend-agent", "topomend-system")
        return [pod for name in namespaces for pod in self.kubectl("get", "pods", "-n", name)["items"]]

    def operator(self) -> dict[str, Any]:
        """The pod of the operator; the newest while another one ends."""
        pods = self.kubectl("get", "pods", "-n", "topomend-system")["items"]
        return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default={})

    def change(self, *arguments: str) -> None:
        """Have kubectl change something of the operator's namespace."""
        done = self.sandbox("kubectl", "--", "-n", "topomend-system", *arguments)
        assert done.returncode == 0, done.stderr

    def restarts(self, program: str) -> int:
        return int(self.programs()[program]["restarts"])

    def kill(self, program: str) -> None:
        """Kill its process, once it has one. psutil takes None for the process that asks."""
        assert eventually(lambda: self.programs()[program]["pid"], stretched(60))
        psutil.Process(int(self.programs()[program]["pid"])).kill()

    def runs_anew(self, program: str, restarts: int) -> bool:
        """Whether it runs after more than so many restarts."""
        entry = self.programs()[program]
        return entry["restarts"] > restarts and entry["pid"] is not None and entry["exit"] is None

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


def test_every_node_and_every_pod_is_ready_when_it_is_up(commands: Commands) -> None:
    for topology in commands.kubectl("get", "ntopo")["items"]:
        conditions = {one["type"]: one["status"] for one in topology["status"]["conditions"]}
        assert conditions["Ready"] == "True"
    assert commands.numa("check").stdout.startswith("Nothing is wrong: ")
    pods = commands.pods()
    assert len(pods) == 3
    for pod in pods:
        (container,) = pod["status"]["containerStatuses"]
        assert (pod["status"]["phase"], container["ready"], container["restartCount"]) == ("Running", True, 0)


def test_kubectl_of_the_sandbox_runs_the_plugin(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(commands.environment, "PATH", os.defpath)
    monkeypatch.delitem(commands.environment, "KUBECONFIG")
    shown = commands.sandbox("kubectl", "--", "numa", "show", "-o", "name")
    assert (shown.stdout.split(), shown.returncode) == (
        [f"nodetopology.topomend.io/node-{number}" for number in (1, 2)],
        0,
    ), shown.stderr


def test_status_names_the_programs_and_their_metrics(commands: Commands) -> None:
    programs = commands.programs()
    assert {name for name in programs if name.startswith("topomend-")} == PROGRAMS | {"topomend-tokens"}
    text = commands.sandbox("status").stdout
    for name in PROGRAMS:
        assert programs[name]["metrics"] in text
        assert Path(programs[name]["log"]).exists()
        assert f"Logs are in {Path(programs[name]['log']).parent}\n" in text
        with urllib.request.urlopen(programs[name]["metrics"], timeout=60) as answer:  # noqa: S310 - http
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


@pytest.mark.parametrize("program", sorted(PROGRAMS | {"topomend-tokens"}) if IS_NIGHT else ["topomend-operator"])
def test_a_program_that_is_killed_is_started_again(commands: Commands, program: str) -> None:
    others = {name: commands.restarts(name) for name in PROGRAMS - {program}}
    before = commands.restarts(program)
    commands.kill(program)
    assert eventually(lambda: commands.runs_anew(program, before), stretched(20))
    assert commands.sandbox("status").returncode == 0
    assert {name: commands.restarts(name) for name in PROGRAMS - {program}} == others


@pytest.mark.night  # tests/deploy/programs has tokens that are replaced
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


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def _runs_with(commands: Commands, variable: str, value: str | None) -> bool:
    """Whether the operator's process has this variable."""
    pid = commands.programs()["topomend-operator"]["pid"]
    try:
        return pid is not None and psutil.Process(pid).environ().get(variable) == value
    except psutil.Error:
        return False


def test_the_operators_pod_is_not_ready_while_its_program_is_down(commands: Commands) -> None:
    """Each end in a row makes the next restart later, so that even a busy kubelet probes in between."""

    def is_seen_down() -> bool:
        if pid := commands.programs()["topomend-operator"]["pid"]:
            psutil.Process(pid).kill()
        return not _is_ready(commands.operator())

    assert eventually(is_seen_down, stretched(60))
    assert eventually(lambda: _is_ready(commands.operator()), stretched(90))


def test_a_variable_of_the_deployment_reaches_the_program_and_one_that_cannot_is_refused(commands: Commands) -> None:
    commands.change("set", "env", "deploy/topomend-operator", "TOPOMEND_MODE=observe")
    assert eventually(lambda: _runs_with(commands, "TOPOMEND_MODE", "observe"), stretched(60))
    assert eventually(lambda: _is_ready(commands.operator()), stretched(60))
    name = commands.operator()["metadata"]["name"]
    assert eventually(lambda: _runs_with(commands, "POD_NAME", name), stretched(60))
    commands.change("set", "env", "deploy/topomend-operator", "--from=configmap/kube-root-ca.crt")

    def refusals() -> list[str]:
        events = commands.kubectl("get", "events", "-n", "topomend-system", "--field-selector", "reason=NotInSandbox")
        return [event["message"] for event in events["items"]]

    assert eventually(refusals, stretched(60))
    assert "takes variables with a value" in refusals()[0]
    assert eventually(lambda: not _is_ready(commands.operator()), stretched(30))
    commands.change("rollout", "undo", "deploy/topomend-operator")
    assert eventually(lambda: _is_ready(commands.operator()), stretched(90))


def test_a_program_is_held_while_its_deployment_has_no_pod(commands: Commands) -> None:
    before = commands.restarts("topomend-operator")
    commands.change("scale", "--replicas=0", "deploy/topomend-operator")
    assert eventually(lambda: commands.programs()["topomend-operator"]["pid"] is None, stretched(30))
    assert commands.sandbox("status").returncode == 0
    commands.change("scale", "--replicas=1", "deploy/topomend-operator")
    assert eventually(lambda: _is_ready(commands.operator()), stretched(60))
    assert commands.restarts("topomend-operator") == before


@pytest.mark.night  # it takes a rollout
def test_pods_of_manifests_that_are_applied_again_become_ready(commands: Commands) -> None:
    """Deleted and applied as on any cluster: the sandbox adds what its kubelets need to reach the programs."""
    before = {pod["metadata"]["uid"] for pod in commands.pods()}
    commands.change("delete", "deployment", "topomend-operator")
    manifests = Path(topomend.__file__).parents[2] / "deploy" / "install.yaml"
    assert commands.sandbox("kubectl", "--", "apply", "--server-side", "-f", str(manifests)).returncode == 0

    def all_are_ready() -> bool:
        pods = commands.kubectl("get", "pods", "-n", "topomend-system")["items"]
        made = [pod for pod in pods if pod["metadata"]["uid"] not in before]  # the others may not have ended yet
        return bool(made) and all(map(_is_ready, made))

    assert eventually(all_are_ready, stretched(90))


@pytest.mark.night  # it takes a rollout
def test_a_drain_just_after_a_rollout_is_clean(commands: Commands) -> None:
    commands.change("rollout", "restart", "deploy/topomend-operator")
    drained = commands.numa("drain")
    assert (drained.returncode, "not drained" in drained.stdout + drained.stderr) == (0, False), drained.stderr
