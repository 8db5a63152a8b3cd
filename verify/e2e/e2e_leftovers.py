"""A cluster leaves nothing on the machine if the process that started it is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.sandbox import leftovers
from tests.waiting import eventually
from verify.e2e.containers import keeper
from verify.e2e.containers.cgroups import hierarchies

WANTS_ONE = """
import subprocess, sys, time
from pathlib import Path
from verify.e2e.containers.cgroups import GroupTree, hierarchies
from verify.e2e.containers.keeper import Keeper
from verify.e2e.containers.programs import Space

keeper = Keeper(Path(sys.argv[1]))
GroupTree(keeper.folder.name).create("node")
space = Space(keeper.pid, {"PATH": "/usr/bin:/bin"})
program = space.start("sleep", ["sleep", "600"], Path("/dev/null"))
for hierarchy in hierarchies():
    (hierarchy.place / keeper.folder.name / "node" / "cgroup.procs").write_text(str(program.pid))
print(program.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("killed", ["who wanted it", "its keeper as well"])
def test_nothing_is_left_where_all_are_killed(killed: str) -> None:
    folder = keeper.runs_folder() / f"topomend-e2e-killed-{os.getpid()}"
    argv = [sys.executable, "-c", WANTS_ONE, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as wants:
        assert wants.stdout is not None
        inside = int(wants.stdout.readline())
        assert psutil.pid_exists(inside)
        assert _groups(folder)
        children = psutil.Process(wants.pid).children()
        (keeps,) = [child for child in children if "verify.e2e.containers.keeper" in child.cmdline()]
        wants.send_signal(signal.SIGKILL)
        if killed == "its keeper as well":
            keeps.kill()
    eventually("the processes to end", lambda: not psutil.pid_exists(inside), 10)
    # One that was killed and has not had a processor since still has its lock, and nothing is abandoned then.
    eventually("the keeper to end", lambda: killed == "who wanted it" or _has_ended(keeps), 10)
    if killed == "its keeper as well":
        keeper.remove_abandoned()
    eventually("the cgroups and files to be removed", lambda: not _groups(folder) and not folder.exists(), 20)
    assert leftovers.mounts(folder) == []
    eventually("the keeper to end", lambda: not leftovers.processes(folder), 10)


def _groups(folder: Path) -> list[Path]:
    groups = [hierarchy.place / folder.name for hierarchy in hierarchies()]
    return [group for group in groups if group.exists()]


def _has_ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
