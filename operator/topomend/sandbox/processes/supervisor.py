"""The supervisor: the parent process of all programs of one sandbox.

It reads a plan (each node's mounts, the programs and their flags) and makes a mount namespace for each node. Then it
starts and stops programs on request, one JSON document a line on standard input. It restarts the programs that the plan
marks, after a growing delay. A program with a launch file gets further arguments and variables from it at each start.
It is held while that file is missing, and starts again at once after it has changed. The supervisor knows nothing of
Kubernetes. The kernel kills every program with the supervisor
(PR_SET_PDEATHSIG), so none outlives it. The supervisor ends when its standard input does, so a caller that is killed
takes the sandbox along; after ``detach`` it no longer depends on its caller. Writing the plan is left to ``plan``.

Single-threaded on purpose: the parent-death signal follows the thread, and preexec functions are safe only then.
"""

import contextlib
import json
import os
import selectors
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topomend.runtime.backoff import Exponential
from topomend.sandbox import layout
from topomend.sandbox.layout import PLAN_FILE, STATUS_FILE, write_private
from topomend.sandbox.processes import linux

SOCKETS = ("*.sock*", "nodes/*/kubelet/*.sock", "nodes/*/kubelet/*/*.sock")
"""The unix sockets of the programs, below the sandbox's folder."""

STOP_PATIENCE = 8.0
"""Seconds between SIGTERM and SIGKILL."""


RESTART_DELAYS = Exponential(0.5, 30.0)
"""The delays between the end of a program and its restart, as long as it ends early."""

HELD_SECONDS = 0.2
"""Seconds between two looks at the launch file of a program that waits."""

STABLE_SECONDS = 60.0
"""After this run time a program counts as recovered: the next delay is the least one again."""


@dataclass
class Restarts:
    """The number of a program's restarts, and the time of the next; ``due`` is None if it runs or was stopped.

    Times are seconds of the monotonic clock.
    """

    count: int = 0
    due: float | None = None
    _failures: int = 0

    def schedule(self, now: float, lifetime: float) -> None:
        """Schedule the restart of a program that has just ended, ``lifetime`` seconds after its start."""
        self._failures = 0 if lifetime >= STABLE_SECONDS else self._failures
        self._failures += 1
        self.due = now + RESTART_DELAYS.seconds(self._failures)


@dataclass
class Program:
    """One program of the plan, and its process if it was started.

    ``restart`` says whether it is restarted when it ends on its own. ``launch`` is its launch file, ``launched`` the
    content that its process was started with.
    """

    name: str
    argv: list[str]
    environment: dict[str, str]
    directory: str
    log: Path
    node: str | None
    restart: bool = False
    launch: str | None = None
    launched: str | None = None
    held: bool = False
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    restarts: Restarts = field(default_factory=Restarts)

    @property
    def running(self) -> bool:
        """Whether its process is alive. Reaps a process that has ended."""
        return self.process is not None and self.process.poll() is None

    def read_launch(self) -> str | None:
        """The content of its launch file; None if there is none."""
        try:
            return None if self.launch is None else Path(self.launch).read_text()
        except FileNotFoundError:
            return None


class Supervisor:
    """The programs of one sandbox."""

    def __init__(self, state: Path) -> None:
        plan = json.loads((state / PLAN_FILE).read_text())
        self._state = state
        for folder in plan["compose"]:
            _compose(Path(folder["directory"]), Path(folder["scratch"]), folder["add"])
        self._namespaces = {
            name: _new_namespaces(node["mounts"], node["writable"], node["shared"])
            for name, node in plan["nodes"].items()
        }
        self._programs = {
            program["name"]: Program(**{**program, "log": Path(program["log"])}) for program in plan["programs"]
        }
        self._detached = False
        self._ending = False

    def serve(self) -> None:
        """Carry out requests until standard input ends or a signal arrives."""
        wakeup, notify = os.pipe()
        os.set_blocking(notify, False)
        signal.set_wakeup_fd(notify, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._end)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.write_status()
        with selectors.DefaultSelector() as selector:
            selector.register(wakeup, selectors.EVENT_READ, "wakeup")
            selector.register(sys.stdin.fileno(), selectors.EVENT_READ, "request")
            pending = b""
            while not self._ending:
                for key, _ in selector.select(self._until_restart()):
                    data = os.read(key.fd, 65536)
                    if key.data == "wakeup":
                        self._schedule_restarts()
                        self.write_status()
                        continue
                    if not data:
                        selector.unregister(key.fd)
                        self._ending = not self._detached
                        break
                    *lines, pending = (pending + data).split(b"\n")
                    for line in lines:
                        self._answer(line)
                self._restart()

    def end(self) -> None:
        """Kill every program, wait for it, and remove the remaining sockets."""
        for program in self._programs.values():
            if program.process is not None and program.running:
                program.process.kill()
        for program in self._programs.values():
            if program.process is not None:
                program.process.wait()
        # Nothing is ever removed recursively from in here: this process sees mounts, and a recursive removal would go
        # through them into what is mounted. Whoever takes the sandbox down removes its folder, from outside.
        for pattern in SOCKETS:
            for path in self._state.glob(pattern):
                if stat.S_ISSOCK(path.lstat().st_mode):
                    path.unlink()

    def write_status(self) -> None:
        """Write the status of the programs, for ``supervisor_client.read_status`` in other processes."""
        status = {
            "supervisor": os.getpid(),
            "namespaces": {name: node.commands for name, node in self._namespaces.items()},
            "programs": {
                program.name: {
                    "pid": program.process.pid if program.process is not None and program.running else None,
                    "exit": program.process.returncode if program.process is not None else None,
                    "held": program.held,
                    "restart": program.restart,
                    "restarts": program.restarts.count,
                    "log": str(program.log),
                }
                for program in self._programs.values()
            },
        }
        write_private(self._state / STATUS_FILE, json.dumps(status))

    def _schedule_restarts(self) -> None:
        now = time.monotonic()
        for program in self._programs.values():
            ended = program.process is not None and not program.running
            if not (program.restart and ended and program.restarts.due is None):
                continue
            if program.read_launch() == program.launched:
                program.restarts.schedule(now, now - program.started)
            else:  # it was ended on request: that is no failure, and no restart
                program.process, program.held, program.restarts.due = None, True, now

    def _until_restart(self) -> float | None:
        """Seconds until the next restart, or look at a launch file; None if none is scheduled."""
        waiting = [program for program in self._programs.values() if program.restarts.due is not None]
        if any(program.launch for program in waiting):
            return HELD_SECONDS
        due = [program.restarts.due for program in waiting if program.restarts.due is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _restart(self) -> None:
        changed = [
            self._restart_one(program) for program in self._programs.values() if program.restarts.due is not None
        ]
        if any(changed):
            self.write_status()

    def _restart_one(self, program: Program) -> bool:
        """Start a program that waits, if it is time or its launch file has changed. Whether its status has changed."""
        assert program.restarts.due is not None  # noqa: S101 - the caller's condition
        now, was_held = time.monotonic(), program.held
        launch = program.read_launch()
        program.held = was_held or launch != program.launched
        if program.launch is not None and launch is None:
            program.process = None
            return not was_held
        if not program.held and program.restarts.due > now:
            return False
        program.restarts.count += not program.held
        try:
            self._start(program)
        except OSError as error:
            sys.stderr.write(f"Error: {program.name} was not restarted: {error}\n")
            program.restarts.schedule(now, 0.0)
        return True

    def _end(self, *_: object) -> None:
        self._ending = True

    def _answer(self, line: bytes) -> None:
        request = json.loads(line)
        try:
            self._carry_out(request)
            answer: Mapping[str, Any] = {}
        except OSError as error:
            answer = {"error": str(error)}
        self.write_status()
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()

    def _carry_out(self, request: Mapping[str, Any]) -> None:
        match request["do"]:
            case "start":
                for name in request["programs"]:
                    self._start(self._programs[name])
            case "stop":
                for name in request["programs"]:
                    self._stop(self._programs[name])
            case "detach":
                self._detached = True

    def _start(self, program: Program) -> None:
        program.restarts.due = None
        if program.running:
            return
        arguments, environment = self._launch(program)
        supervisor = os.getpid()
        namespace = self._namespaces[program.node].programs if program.node else None

        def become() -> None:
            linux.die_with_parent(supervisor)
            if namespace is not None:
                linux.enter_mount_namespace(namespace)
            os.chdir(program.directory)

        program.started = time.monotonic()
        with program.log.open("ab") as log:
            program.process = subprocess.Popen(
                [*program.argv, *arguments],
                env={**program.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=become,  # noqa: PLW1509 - this process has one thread, see the module's docstring
            )

    @staticmethod
    def _launch(program: Program) -> tuple[Sequence[str], Mapping[str, str]]:
        """The arguments and variables of its launch file, which is what it is started with from here on."""
        program.launched, program.held = program.read_launch(), False
        content = json.loads(program.launched or "{}")
        return content.get("arguments", ()), content.get("environment", {})

    def _stop(self, program: Program) -> None:
        program.restarts.due, program.held = None, False
        if program.process is None:
            return
        program.process.terminate()
        deadline = time.monotonic() + STOP_PATIENCE
        while program.running and time.monotonic() < deadline:
            time.sleep(0.02)
        if program.running:
            program.process.kill()
            program.process.wait()
        program.process = None


def _compose(directory: Path, scratch: Path, add: list[str]) -> None:
    """Add the empty folders ``add`` to ``directory``: replace it by a tmpfs with its entries and the folders."""
    linux.mount_tmpfs(scratch)
    for entry in directory.iterdir():
        place = scratch / entry.name
        if entry.is_symlink():
            place.symlink_to(entry.readlink())
            continue
        if entry.is_dir():
            place.mkdir()
        else:
            place.touch()
        linux.bind(entry, place)
    for name in add:
        (scratch / name).mkdir(parents=True)
    linux.move(scratch, directory)


@dataclass(frozen=True)
class Namespaces:
    """Descriptors of a node's two mount namespaces. In ``programs`` all but the writable folders is read-only."""

    commands: int
    programs: int


def _new_namespaces(mounts: list[list[str]], writable: list[str], shared: list[str]) -> Namespaces:
    """Make mount namespaces with ``mounts`` in them. This process stays in its own namespace.

    A mount is ``["bind", SOURCE, TARGET]`` or ``["tmpfs", TARGET]``. For programs every mount is read-only that is not
    at or below one of ``writable``, and the mounts ``shared`` are shared. Raises OSError.
    """
    original = _own_namespace()
    directory = Path.cwd()
    try:
        linux.enter_new_mount_namespace()
        for kind, *paths in mounts:
            if kind == "bind":
                linux.bind(Path(paths[0]), Path(paths[1]))
            else:
                linux.mount_tmpfs(Path(paths[0]))
        commands = _own_namespace()
        linux.enter_new_mount_namespace()
        for place in layout.mount_points():
            if not any(place == Path(top) or Path(top) in place.parents for top in writable):
                _make_read_only(place)
        for target in shared:
            linux.make_shared(Path(target))
        return Namespaces(commands, _own_namespace())
    finally:
        linux.enter_mount_namespace(original)
        os.close(original)
        os.chdir(directory)


def _make_read_only(place: Path) -> None:
    """Make a mount read-only, unless it is unreachable: covered by another mount, or of another user."""
    try:
        linux.make_read_only(place)
    except OSError:
        if place == Path("/"):
            raise


def _own_namespace() -> int:
    return os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


def main() -> None:
    """Supervise the sandbox whose folder is the one argument."""
    state = Path(sys.argv[1])
    os.umask(0o077)
    try:
        supervisor = Supervisor(state)
    except OSError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        sys.exit(1)
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    with contextlib.suppress(BrokenPipeError):
        supervisor.serve()
    supervisor.end()


if __name__ == "__main__":
    main()
