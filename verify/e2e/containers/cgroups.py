"""Creates, reads and removes the cgroups of one cluster: one folder below the root of every hierarchy.

Everything that the kubelets and runc make lies below it, so that clusters on one machine do not meet. Both versions of
cgroups are served: one tree (v2), or one a controller (v1), of which a hybrid machine has both.
"""

import contextlib
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path

NEEDED = frozenset({"cpu", "cpuset", "memory", "pids"})
"""The controllers that a kubelet with the static CPU policy needs."""

REMOVAL_SECONDS = 20.0

CPU_SHARES = 16 * 1024
"""The CPU weight of 16 processes outside of any cgroup (version 1)."""


class CgroupsUnavailable(Exception):
    """This machine has no usable cgroups; the text says why."""


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy and its controllers; ``unified`` means version 2."""

    place: Path
    controllers: frozenset[str]
    unified: bool


@dataclass(frozen=True)
class Memory:
    """What a container takes, in bytes.

    ``working_set`` is what the kubelet counts, without pages of files that nobody used lately; ``peak`` the most
    that it ever took, with them.
    """

    working_set: int
    peak: int


class GroupTree:
    """The cgroup ``name`` at the root of every hierarchy."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._hierarchies = hierarchies()

    @classmethod
    def trial(cls) -> None:
        """Create one and remove it. Raises CgroupsUnavailable."""
        tree = cls(f"topomend-e2e-trial-{os.getpid()}")
        try:
            tree.create()
        finally:
            tree.remove()

    def create(self, *children: str) -> None:
        """Make the cgroup and ``children`` below it. Raises CgroupsUnavailable.

        On a machine whose processes are in no cgroup, all containers together would get as much of a busy CPU as one
        process outside. On a node the system's processes are in one of their own: so they get more here.
        """
        for hierarchy in self._hierarchies:
            for path in (Path(self.name), *(Path(self.name, child) for child in children)):
                try:
                    self._create(hierarchy, path)
                except OSError as error:
                    raise CgroupsUnavailable(
                        f"this needs cgroups of its own, which are denied here: {error}"
                    ) from error

            if "cpu" in hierarchy.controllers and not hierarchy.unified:
                (hierarchy.place / self.name / "cpu.shares").write_text(str(CPU_SHARES))

    def remove(self) -> None:
        """Kill the processes in it, and remove it with its children."""
        deadline = time.monotonic() + REMOVAL_SECONDS
        for hierarchy in self._hierarchies:
            top = hierarchy.place / self.name
            while top.exists():
                for group in sorted(top.rglob("**/"), key=lambda path: len(path.parts), reverse=True):
                    with contextlib.suppress(OSError):
                        group.rmdir()
                with contextlib.suppress(OSError):
                    top.rmdir()
                if not top.exists():
                    break
                _kill_all(top)
                if time.monotonic() > deadline:
                    raise CgroupsUnavailable(f"{top} cannot be removed: processes in it do not end")
                time.sleep(0.05)

    def memory(self, container_id: str) -> Memory:
        """The container's memory. Raises FileNotFoundError if its cgroup does not exist."""
        hierarchy = self._hierarchy_of("memory")
        group = _group_of(hierarchy.place / self.name, container_id)
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        usage, peak, inactive = (
            ("memory.current", "memory.peak", "inactive_file")
            if hierarchy.unified
            else ("memory.usage_in_bytes", "memory.max_usage_in_bytes", "total_inactive_file")
        )
        used = int((group / usage).read_text())
        return Memory(used - int(statistics[inactive]), int((group / peak).read_text()))

    def cpuset(self, container_id: str) -> str:
        """The CPUs that the container's cgroup allows, as a CPU list of Linux."""
        hierarchy = self._hierarchy_of("cpuset")
        return (_group_of(hierarchy.place / self.name, container_id) / "cpuset.cpus").read_text().strip()

    def processes(self, container_id: str) -> list[int]:
        """The container's process ids on this machine."""
        hierarchy = self._hierarchy_of("memory")
        lines = (_group_of(hierarchy.place / self.name, container_id) / "cgroup.procs").read_text().split()
        return [int(line) for line in lines]

    def limit_memory(self, most: int) -> None:
        """Let all processes in it take ``most`` bytes together; the kernel kills one of them where they need more."""
        hierarchy = self._hierarchy_of("memory")
        file = "memory.max" if hierarchy.unified else "memory.limit_in_bytes"
        (hierarchy.place / self.name / file).write_text(str(most))

    def add_to_memory(self, process: int) -> None:
        """Count the memory that this process takes from now on against the limit."""
        (self._hierarchy_of("memory").place / self.name / "cgroup.procs").write_text(str(process))

    def killed_for_memory(self) -> int:
        """How many processes the kernel has killed in it for lack of memory."""
        hierarchy = self._hierarchy_of("memory")
        file = "memory.events" if hierarchy.unified else "memory.oom_control"
        lines = (hierarchy.place / self.name / file).read_text().splitlines()
        return int(dict(line.split() for line in lines)["oom_kill"])

    def resident(self) -> int:
        """The bytes that its processes hold, without pages of files."""
        hierarchy = self._hierarchy_of("memory")
        lines = (hierarchy.place / self.name / "memory.stat").read_text().splitlines()
        return int(dict(line.split() for line in lines)["anon" if hierarchy.unified else "total_rss"])

    def _hierarchy_of(self, controller: str) -> Hierarchy:
        return next(hierarchy for hierarchy in self._hierarchies if controller in hierarchy.controllers)

    @staticmethod
    def _create(hierarchy: Hierarchy, path: Path) -> None:
        group = hierarchy.place / path
        if hierarchy.unified and hierarchy.controllers:
            wanted = " ".join(f"+{name}" for name in sorted(hierarchy.controllers))
            (group.parent / "cgroup.subtree_control").write_text(wanted)
        group.mkdir(exist_ok=True)
        if "cpuset" in hierarchy.controllers and not hierarchy.unified:
            # A new cpuset of version 1 is empty, and takes no process before it is told its CPUs and memory nodes.
            for name in ("cpuset.cpus", "cpuset.mems"):
                (group / name).write_text((group.parent / name).read_text())


def hierarchies() -> list[Hierarchy]:
    """The mounted hierarchies. Raises CgroupsUnavailable if none has a required controller."""
    mounted = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, place = fields.split()[3:5]
        if kind not in {"cgroup", "cgroup2"}:
            continue
        if root != "/" and not root.startswith("/.."):
            raise CgroupsUnavailable(f"only a part of the machine's cgroups is visible at {place}: {root}")
        unified = kind == "cgroup2"
        known = Path(place, "cgroup.controllers").read_text().split() if unified else re.split(r"[ ,]", options)
        mounted.append(Hierarchy(Path(place), frozenset(known) - {"rw", "ro"}, unified))
    if missing := sorted(NEEDED.difference(*(hierarchy.controllers for hierarchy in mounted))):
        raise CgroupsUnavailable(f"this machine offers no cgroup controller {', '.join(missing)}")
    return mounted


def _group_of(top: Path, container_id: str) -> Path:
    """The name of a container's cgroup ends with its id, whatever the runtime."""
    groups = [path for path in top.rglob(f"*{container_id}*") if path.is_dir()]
    if not groups:
        raise FileNotFoundError(f"no cgroup of container {container_id} below {top}")
    return groups[0]


def _kill_all(top: Path) -> None:
    for processes in top.rglob("cgroup.procs"):
        with contextlib.suppress(OSError):
            for pid in processes.read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
