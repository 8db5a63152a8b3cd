"""The supervisor changes its own mounts only, and no removal goes through them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

import topomend
from topomend.sandbox import layout
from topomend.sandbox.failures import SandboxError
from topomend.sandbox.processes.host import how_to_enter_namespaces
from topomend.sandbox.processes.supervisor import Restarts
from topomend.sandbox.processes.supervisor_client import SupervisorProcess, read_status
from topomend.sandbox.registry import check_name, supervisor_process

COMPOSE = """
import sys
from pathlib import Path
from topomend.sandbox.processes.supervisor import _compose
directory, scratch = map(Path, sys.argv[1:])
_compose(directory, scratch, ["kubelet"])
print(sorted(path.name for path in directory.iterdir()), (directory / "full" / "file").read_text())
print(list(scratch.iterdir()))
"""

REMOVE = """
import sys
from pathlib import Path
from topomend.sandbox import layout
from topomend.sandbox.processes import linux
from topomend.sandbox.failures import SandboxError
folder, mounted = map(Path, sys.argv[1:])
linux.bind(mounted, folder / "nodes" / "with a space")
try:
    layout.remove_tree(folder)
except SandboxError as error:
    print(error)
"""


def in_namespaces(script: str, *arguments: Path) -> str:
    command = ["unshare", *how_to_enter_namespaces(), "--", sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(topomend.__file__).parents[1])}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A folder with something in it that must stay."""
    (tmp_path / "directory" / "full").mkdir(parents=True)
    (tmp_path / "directory" / "full" / "file").write_text("kept")
    (tmp_path / "directory" / "link").symlink_to("full")
    return tmp_path / "directory"


def test_a_folder_is_composed_without_touching_it_and_is_seen_nowhere_else(full: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    seen, scratch = in_namespaces(COMPOSE, full, tmp_path / "scratch").splitlines()
    assert seen == "['full', 'kubelet', 'link'] kept"
    assert scratch == "[]"
    assert sorted(path.name for path in full.iterdir()) == ["full", "link"]


def test_a_folder_with_a_mount_below_it_is_not_removed(full: Path, tmp_path: Path) -> None:
    place = tmp_path / "state" / "nodes" / "with a space"
    place.mkdir(parents=True)
    output = in_namespaces(REMOVE, tmp_path / "state", full)
    assert f"something is mounted at {place}" in output
    assert (full / "full" / "file").read_text() == "kept"
    assert place.is_dir()


def test_a_folder_without_mounts_is_removed_and_a_missing_one_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "state" / "nodes").mkdir(parents=True)
    layout.remove_tree(tmp_path / "state")
    layout.remove_tree(tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_that_cannot_be_mounted_is_said_and_ends_the_supervisor(tmp_path: Path) -> None:
    node = {"mounts": [["bind", str(tmp_path / "missing"), "/sys"]], "writable": [], "shared": []}
    plan: dict[str, object] = {"compose": [], "nodes": {"a": node}, "programs": []}
    (tmp_path / layout.PLAN_FILE).write_text(json.dumps(plan))
    command = [
        "unshare",
        *how_to_enter_namespaces(),
        "--",
        sys.executable,
        "-m",
        "topomend.sandbox.processes.supervisor",
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(topomend.__file__).parents[1])}
    done = subprocess.run(
        [*command, str(tmp_path)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "missing on /sys: No such file or directory" in json.loads(done.stdout)["error"]


def test_a_name_that_would_leave_the_cache_folder_is_refused() -> None:
    for name in ("..", "a/b", "", "A", "a" * 41):
        with pytest.raises(SandboxError, match="sandbox name"):
            check_name(name)


def test_a_program_that_is_to_be_restarted_is_each_time_later_until_it_lasts() -> None:
    restarts = Restarts()
    delays = []
    for _ in range(8):
        restarts.schedule(now=100.0, lifetime=1.0)
        assert restarts.due is not None
        delays.append(restarts.due - 100.0)
    assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30]
    restarts.schedule(now=100.0, lifetime=60.0)
    assert restarts.due == 100.5


def test_a_number_that_another_process_has_by_now_is_not_the_supervisors(tmp_path: Path) -> None:
    script = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE) as process:
        supervisor = eventually("its command line", lambda: supervisor_process(process.pid, tmp_path))
        assert supervisor.pid == process.pid
        assert supervisor_process(process.pid, tmp_path / "other") is None
    assert supervisor_process(process.pid, tmp_path) is None


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Path]:
    """The launch file of a program that a supervisor restarts, which writes its arguments and then sleeps."""
    (tmp_path / "logs").mkdir()
    launch = tmp_path / "p.launch"
    script = "import sys, time; print(*sys.argv[1:], flush=True); time.sleep(600)"
    program: dict[str, Any] = {
        "name": "p",
        "argv": [sys.executable, "-c", script, "always"],
        "environment": {},
        "directory": str(tmp_path),
        "log": str(tmp_path / "logs" / "p.log"),
        "node": None,
        "restart": True,
        "launch": str(launch),
    }
    (tmp_path / layout.PLAN_FILE).write_text(json.dumps({"compose": [], "nodes": {}, "programs": [program]}))
    layout.write_private(launch, json.dumps({"arguments": ["first"]}))
    supervisor = SupervisorProcess(tmp_path, how_to_enter_namespaces(), os.open(tmp_path, os.O_RDONLY))
    supervisor.start(["p"])
    yield launch
    supervisor.end()


def test_a_program_gets_what_its_launch_file_says_and_is_held_without_one(launched: Path) -> None:
    folder = launched.parent

    def program() -> dict[str, Any]:
        entry: dict[str, Any] = read_status(folder)["programs"]["p"]
        return entry

    def pid() -> int:
        """That of its process, which the supervisor may tell after the process has spoken."""
        return int(eventually("its process", lambda: program()["pid"]))

    def lines() -> list[str]:
        return (folder / "logs" / "p.log").read_text().splitlines()

    eventually("its first start", lambda: lines() == ["always first"])
    layout.write_private(launched, json.dumps({"arguments": ["second"]}))
    os.kill(pid(), signal.SIGTERM)
    eventually("its second start", lambda: lines() == ["always first", "always second"])
    assert program()["restarts"] == 0, "it was ended to read its file again"
    launched.unlink()
    os.kill(pid(), signal.SIGTERM)
    eventually("it to be held", lambda: (program()["held"], program()["pid"], program()["exit"]) == (True, None, None))
    layout.write_private(launched, json.dumps({"arguments": ["third"]}))
    eventually("its third start", lambda: lines()[2:] == ["always third"])
    os.kill(pid(), signal.SIGKILL)
    eventually("its restart", lambda: lines()[2:] == ["always third", "always third"])
    eventually("the restart to be counted", lambda: program()["restarts"] == 1)
