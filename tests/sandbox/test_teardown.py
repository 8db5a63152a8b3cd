"""However a sandbox ends, nothing of it is left. Slow: each test starts a control plane and a kubelet."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.sandbox.leftovers import PATIENCE, assert_nothing_left, eventually, mounts, processes
from tests.waiting import stretched

import topomend
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox.releases.build import ensure_binary

pytestmark = pytest.mark.cluster

ONE_NODE = """
import sys, time
from topomend.sandbox import NodeSpec, Sandbox
with Sandbox.up([NodeSpec.of_shape("one", "sockets:1 numa:2 cores:2")], name="t", on_progress=print) as sandbox:
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test's own, in which the binary is there already."""
    binary = ensure_binary(print)
    place = tmp_path / "topomend" / "binaries" / binary.parent.name
    place.mkdir(parents=True)
    (place / binary.name).symlink_to(binary)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(topomend.__file__).parents[1]))
    return tmp_path


def start(*arguments: str) -> subprocess.Popen[str]:
    """A Python that heeds Ctrl-C, though these tests may run in the background, where nothing does."""
    command = ["env", "--default-signal=INT", sys.executable, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return
    pytest.fail(f"it ended without saying {word!r}: {''.join(lines)}")


def run_sandbox(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "topomend.cli", "sandbox", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_parent_killed_with_sigkill_takes_the_sandbox_along(cache: Path) -> None:
    with start("-c", ONE_NODE) as parent:
        wait_for(parent, "up")
        assert any("kubelet" in command for command in processes(cache))
        parent.kill()
    assert_nothing_left(cache)


def test_a_parent_that_leaves_the_with_block_leaves_nothing(cache: Path) -> None:
    with start("-c", ONE_NODE) as parent:
        wait_for(parent, "up")
        assert mounts(cache) == []
        parent.communicate(input="")
    assert parent.returncode == 0
    assert_nothing_left(cache)
    assert list((cache / "topomend" / "sandboxes").iterdir()) == []


INTERRUPTED = """
import os, signal, sys, threading
from topomend.cli.main import main
from topomend.sandbox import Sandbox
stage, up = sys.argv[1], Sandbox.up
def interrupted(*specs, on_progress, **named):
    def report(words):
        on_progress(words)
        if stage in words:
            print("interrupted", flush=True)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    return up(*specs, on_progress=report, **named)
Sandbox.up = interrupted
main(["sandbox", "up", "--name", "t"])
"""
"""It has itself interrupted: another process may be so slow that it has come up by then."""


@pytest.mark.parametrize("stage", ["starting etcd", "starting 1 kubelet"])
def test_ctrl_c_while_it_comes_up_leaves_nothing(cache: Path, stage: str) -> None:
    with start("-c", INTERRUPTED, stage) as up:
        output, _ = up.communicate(timeout=240)
    assert "interrupted" in output, output
    assert up.returncode != 0
    assert "Traceback" not in output
    assert_nothing_left(cache)


def test_a_supervisor_killed_with_sigkill_takes_its_programs_along_and_down_cleans_up(cache: Path) -> None:
    assert run_sandbox("up", "--name", "t").returncode == 0
    (supervisor,) = (p for p in psutil.process_iter() if is_supervisor_of(p, cache))
    supervisor.kill()
    assert eventually(lambda: not processes(cache), stretched(PATIENCE))
    assert run_sandbox("status", "--name", "t").returncode == 3
    assert run_sandbox("down", "--name", "t").returncode == 0
    assert_nothing_left(cache)


def is_supervisor_of(process: psutil.Process, cache: Path) -> bool:
    try:
        words = process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False
    return "topomend.sandbox.processes.supervisor" in words and any(str(cache) in word for word in words)


def test_up_stays_up_says_so_when_asked_again_and_goes_down_for_good(cache: Path) -> None:
    first = run_sandbox("up", "--name", "t", "--machine", "sockets:1 numa:2 cores:2", "--policy", "restricted")
    assert (first.returncode, "KUBECONFIG=" in first.stdout) == (0, True), first.stderr
    again = run_sandbox("up", "--name", "t", "--machine", "sockets:1 numa:2 cores:2", "--policy", "restricted")
    assert (again.returncode, again.stdout) == (0, "Sandbox t is up already.\n")
    other = run_sandbox("up", "--name", "t", "--machine", "sockets:1 numa:2 cores:4")
    assert other.returncode == 2
    assert "up already with other nodes" in other.stderr

    status = run_sandbox("status", "--name", "t")
    assert status.returncode == 0
    shown = ["node-1", "True", DEFAULT_VERSION, "2", "4", "16Gi", "restricted"]
    assert status.stdout.splitlines()[1].split()[: len(shown)] == shown
    seen = run_sandbox("exec", "--name", "t", "node-1", "--", "cat", "/sys/devices/system/node/node1/cpulist")
    assert seen.stdout == "2-3\n"
    kubeconfig = Path(run_sandbox("kubeconfig", "--name", "t").stdout.strip())
    assert kubeconfig.stat().st_mode & 0o777 == 0o600

    assert run_sandbox("down", "--name", "t").returncode == 0
    assert_nothing_left(cache)
    assert list((cache / "topomend" / "sandboxes").iterdir()) == []
    assert run_sandbox("status", "--name", "t").returncode == 3
    assert os.environ["XDG_CACHE_HOME"] == str(cache)


def test_a_program_that_does_not_start_is_named_with_its_words_and_its_log(cache: Path) -> None:
    """No gate of that name: the kubelet refuses its configuration."""
    script = """
from topomend.sandbox import NodeSpec, ProgramFailed, Sandbox
try:
    Sandbox.up([NodeSpec.of_shape("one", "numa:2 cores:2", feature_gates={"NoSuchGate": True})], name="t")
except ProgramFailed as error:
    print(error)
"""
    with start("-c", script) as parent:
        output, _ = parent.communicate(timeout=240)
    assert output.startswith("kubelet-one ended with ")
    assert "NoSuchGate" in output
    log = Path(output.strip().rpartition("(log: ")[2].rstrip(")"))
    assert "NoSuchGate" in log.read_text()
    assert_nothing_left(cache)
