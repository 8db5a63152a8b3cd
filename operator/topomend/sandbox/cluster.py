"""Bring a sandbox up, change it while it runs, and take it down.

A sandbox is a folder of files, one supervisor process that holds its lock, and the programs under that. This module
writes the files, tells the supervisor what to start and when, and waits until the cluster can be used. How each program
is configured is its own module's business.
"""

import contextlib
import fcntl
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

import topomend
from topomend.sandbox import control_plane, layout
from topomend.sandbox.api import API, is_ready
from topomend.sandbox.build import ensure_binary
from topomend.sandbox.failures import ProgramFailed, SandboxBusy, SandboxError, SandboxUnavailable
from topomend.sandbox.kubelet import CRI_SOCKET, KERNEL_TUNABLES, kubelet_config, kubelet_flags, node_mounts
from topomend.sandbox.machine_files import write_machine
from topomend.sandbox.node_spec import InvalidNodeSpec, NodeSpec, fingerprint

PATIENCE = 120.0
"""Seconds that the API server, and then the nodes, may take to get ready."""

POLL = 0.05
"""Seconds between two looks at something that is about to change."""

PORTS = range(20000, 32000)
"""Where free ports are looked for: below what Linux hands out to outgoing connections (ip_local_port_range)."""

ETCD, API_SERVER = "etcd", "kube-apiserver"
CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
RUNTIME, DEVICE_PLUGIN = "runtime", "device-plugin"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", re.ASCII)
_numbers = itertools.count(1)


def kubelet_program(node_name: str) -> str:
    """What the supervisor calls the kubelet of a node."""
    return f"kubelet-{node_name}"


@dataclass(frozen=True)
class SandboxNode:
    """One node that runs. The paths are those within its mount namespace (see Sandbox.exec_prefix)."""

    name: str
    kubelet_config: Path = layout.KUBELET_CONFIG
    kubelet_state: Path = layout.KUBELET_ROOT
    pod_resources: Path = layout.POD_RESOURCES


class Sandbox:
    """A cluster that runs, tied to the life of the process that brought it up; a context manager that ends it."""

    def __init__(
        self, name: str, supervisor: "_Supervisor", specs: Sequence[NodeSpec], api: API, *, audit: bool
    ) -> None:
        folder = layout.state_folder(name)
        self.name = name
        self.folder = folder
        self.kubeconfig: Path = folder / layout.KUBECONFIG_FILE
        self.audit_log: Path | None = control_plane.Files(folder).audit_log if audit else None
        self.nodes = tuple(SandboxNode(spec.name) for spec in specs)
        self._specs = {spec.name: spec for spec in specs}
        self._supervisor = supervisor
        self._api = api

    @classmethod
    def up(
        cls,
        nodes: Sequence[NodeSpec],
        *,
        name: str | None = None,
        audit: bool = False,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Start a control plane and a kubelet for each of ``nodes``, and wait until all are ready.

        ``name`` tells sandboxes apart; without one it is this process's own. Raises SandboxBusy where that name is
        taken, SandboxUnavailable where this machine cannot run one, ProgramFailed where a program does not start.
        """
        name = name or f"process-{os.getpid()}-{next(_numbers)}"
        check_name(name)
        _check_nodes(nodes)
        namespace_flags = how_to_enter_namespaces()
        binary = ensure_binary(on_progress)
        with _lock(name) as lock:
            folder = layout.state_folder(name)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, mode=0o700)
            preparation = _Preparation(folder, binary, nodes, audit=audit, user_namespace="--user" in namespace_flags)
            preparation.write()
            supervisor = _Supervisor(folder, namespace_flags, lock)
        sandbox = cls(name, supervisor, nodes, preparation.api, audit=audit)
        try:
            sandbox._start(preparation, on_progress)
        except BaseException:
            supervisor.end()
            raise
        return sandbox

    def node(self, name: str) -> SandboxNode:
        """The node called ``name``. Raises SandboxError where there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise SandboxError(
            f"sandbox {self.name} has no node {name}; it has {', '.join(node.name for node in self.nodes)}"
        )

    def exec_prefix(self, node_name: str) -> list[str]:
        """What to put before a command so that it runs in the mount namespace of that node's kubelet.

        There, /sys and /proc/cpuinfo and /proc/meminfo are the node's machine, and /var/lib/kubelet is its kubelet's.
        The command is executed in place: the process started is the command itself.
        """
        return exec_prefix(self.name, self.node(node_name).name)

    def stop_kubelet(self, node_name: str) -> None:
        """End the kubelet of a node; its containers and its state stay."""
        self._supervisor.stop([kubelet_program(self.node(node_name).name)])

    def start_kubelet(self, node_name: str) -> None:
        """Start the kubelet of a node again, and wait until the node is ready."""
        spec = self._specs[self.node(node_name).name]
        self._supervisor.start([kubelet_program(spec.name)])
        self._wait_for_kubelets([spec])

    def stop_api_server(self) -> None:
        """End the API server; etcd and everything else go on."""
        self._supervisor.stop([API_SERVER])

    def start_api_server(self) -> None:
        """Start the API server again on the same port, and wait until it is ready."""
        self._supervisor.start([API_SERVER])
        self._wait("the API server to be ready", self._api.ready)

    def detach(self) -> None:
        """Let the sandbox live on after this process, until ``down``."""
        self._supervisor.detach()

    def down(self) -> None:
        """End every program and remove every file of the sandbox."""
        self._supervisor.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.down()

    def _start(self, preparation: "_Preparation", on_progress: Callable[[str], None]) -> None:
        specs = tuple(self._specs.values())
        on_progress("starting etcd and the API server")
        self._supervisor.start(preparation.first_programs)
        self._wait("the API server to be ready", self._api.ready)
        preparation.write_kubeconfigs()
        on_progress(f"starting {len(specs)} kubelet{'s' if len(specs) != 1 else ''}")
        for spec in specs:
            self._register(spec)
        self._supervisor.start([*map(kubelet_program, self._specs), CONTROLLER_MANAGER, SCHEDULER])
        self._wait_for_kubelets(specs)
        self._wait(
            "the default service account",
            lambda: self._api.get("/api/v1/namespaces/default/serviceaccounts/default") is not None,
        )

    def _register(self, spec: NodeSpec) -> None:
        """Make the Node before its kubelet does, which would taint it until a cloud provider came: there is none."""
        path, node = "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": spec.name}}
        self._wait(f"node {spec.name} to be registered", lambda: self._api.create(path, node))

    def _wait_for_kubelets(self, specs: Iterable[NodeSpec]) -> None:
        for spec in specs:
            offered = Counter(device.resource for device in spec.devices if device.healthy)
            path = f"/api/v1/nodes/{spec.name}"

            def ready(path: str = path, offered: Mapping[str, int] = offered) -> bool:
                node = self._api.get(path)
                return node is not None and is_ready(node, offered)

            self._wait(f"node {spec.name} to be ready", ready)

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            _raise_if_one_ended(read_status(self.folder))
            if time.monotonic() > deadline:
                raise ProgramFailed(f"waited {PATIENCE:.0f} s for {what}; the logs are in {self.folder / 'logs'}")
            time.sleep(POLL)


class _Supervisor:
    """The supervisor process, spoken to over its standard input and output."""

    def __init__(self, folder: Path, namespace_flags: Sequence[str], lock: int) -> None:
        environment = {**os.environ, "PYTHONPATH": _package_root()}
        command = ["unshare", *namespace_flags, "--", sys.executable, "-m", "topomend.sandbox.supervisor", str(folder)]
        self._log = folder / "logs" / "supervisor.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
                cwd=folder,
            )
        try:
            self._read_answer()
        except BaseException:
            self.end()
            raise

    def start(self, programs: Sequence[str]) -> None:
        self._ask({"do": "start", "programs": list(programs)})

    def stop(self, programs: Sequence[str]) -> None:
        self._ask({"do": "stop", "programs": list(programs)})

    def detach(self) -> None:
        self._ask({"do": "detach"})

    def end(self) -> None:
        """Close its standard input, which ends it and all it started, and wait for that."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it was asked for at its start
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise ProgramFailed("the sandbox is down") from None
        self._read_answer()

    def _read_answer(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it was asked for at its start
        line = self._process.stdout.readline()
        if not line:
            raise ProgramFailed(f"the sandbox's supervisor ended: {last_words(self._log)} (log: {self._log})")
        if error := json.loads(line).get("error"):
            raise SandboxUnavailable(f"the sandbox could not be set up: {error}")


class _Preparation:
    """The files of a sandbox that is about to start."""

    def __init__(
        self, folder: Path, binary: Path, specs: Sequence[NodeSpec], *, audit: bool, user_namespace: bool
    ) -> None:
        self._folder, self._binary, self._specs = folder, binary, specs
        self._audit, self._user_namespace = audit, user_namespace
        self._files = control_plane.Files(folder)
        self._accounts = control_plane.accounts(spec.name for spec in specs)
        self._port, *kubelet_ports = free_ports(1 + len(specs))
        self._kubelet_ports = dict(zip((spec.name for spec in specs), kubelet_ports, strict=True))
        self._server = f"https://{control_plane.HOST}:{self._port}"
        token = self._accounts[control_plane.ADMIN].token
        self.api = API(control_plane.HOST, self._port, self._files.certificate, token)
        self.first_programs = [ETCD, API_SERVER, RUNTIME, *([DEVICE_PLUGIN] if self._plugins() else [])]

    def write(self) -> None:
        """Write all that can be written before the API server has made its certificate."""
        for name in ("logs", "pki"):
            (self._folder / name).mkdir(mode=0o700)
        layout.write_private(self._files.tokens, control_plane.token_file(self._accounts.values()))
        layout.write_private(self._files.audit_policy, json.dumps(control_plane.AUDIT_POLICY))
        key = [str(self._binary), "key", str(self._files.service_account_key)]
        subprocess.run(key, stdin=subprocess.DEVNULL, check=True)
        for spec in self._specs:
            self._write_node(spec)
        layout.write_private(self._folder / "plugins.json", json.dumps(self._plugins()))
        layout.write_private(self._folder / layout.PLAN_FILE, json.dumps(self._plan()))
        layout.write_private(self._folder / layout.SANDBOX_FILE, json.dumps(self._description()))

    def write_kubeconfigs(self) -> None:
        """Write the kubeconfigs, each with the API server's certificate in it."""
        authority = self._files.certificate.read_bytes()
        places = {
            control_plane.ADMIN: self._folder / layout.KUBECONFIG_FILE,
            control_plane.CONTROLLER_MANAGER: self._files.kubeconfig(control_plane.CONTROLLER_MANAGER),
            control_plane.SCHEDULER: self._files.kubeconfig(control_plane.SCHEDULER),
            **{f"node:{spec.name}": self._kubelet_folder(spec) / "kubeconfig" for spec in self._specs},
        }
        for account, place in places.items():
            layout.write_private(place, control_plane.kubeconfig(self._server, authority, self._accounts[account]))

    def _node_folder(self, spec: NodeSpec) -> Path:
        return self._folder / "nodes" / spec.name

    def _kubelet_folder(self, spec: NodeSpec) -> Path:
        return self._node_folder(spec) / "kubelet"

    def _write_node(self, spec: NodeSpec) -> None:
        node, kubelet = self._node_folder(spec), self._kubelet_folder(spec)
        (kubelet / "device-plugins").mkdir(parents=True)
        write_machine(node / "machine", spec.machine, spec.devices)
        for name, setting in KERNEL_TUNABLES.items():
            place = node / "tunables" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"{setting}\n")
        config = kubelet_config(spec, port=self._kubelet_ports[spec.name], user_namespace=self._user_namespace)
        (kubelet / layout.KUBELET_CONFIG.name).write_text(yaml.safe_dump(dict(config), sort_keys=False))

    def _plugins(self) -> Sequence[Mapping[str, Any]]:
        """What the device plugins offer, one for each node and resource; folders relative to the plugin's own."""
        plugins = []
        for spec in self._specs:
            for resource in dict.fromkeys(device.resource for device in spec.devices):
                devices = [
                    {"id": device.id, "numa_nodes": device.numa_nodes, "healthy": device.healthy}
                    for device in spec.devices
                    if device.resource == resource
                ]
                folder = f"nodes/{spec.name}/kubelet/device-plugins"
                plugins.append({"folder": folder, "resource": resource, "devices": devices})
        return plugins

    def _plan(self) -> Mapping[str, Any]:
        """What the supervisor is to mount and to run."""
        flags = {
            ETCD: control_plane.etcd_flags(),
            API_SERVER: control_plane.api_server_flags(self._files, self._port, audit=self._audit),
            CONTROLLER_MANAGER: control_plane.controller_manager_flags(self._files),
            SCHEDULER: control_plane.scheduler_flags(self._files),
        }
        programs = [self._program(name, [str(self._binary), name, *own]) for name, own in flags.items()]
        # The sockets' whole paths may be longer than a socket's path may be (108 bytes): named from where it runs.
        sockets = [f"/proc/self/cwd/nodes/{spec.name}/kubelet/{CRI_SOCKET.name}" for spec in self._specs]
        programs.append(self._program(RUNTIME, [str(self._binary), "cri", *sockets]))
        plugin = [sys.executable, "-m", "topomend.sandbox.device_plugin", "plugins.json"]
        programs.append(self._program(DEVICE_PLUGIN, plugin, PYTHONPATH=_package_root()))
        for spec in self._specs:
            command = [str(self._binary), "kubelet", *kubelet_flags(spec)]
            programs.append(self._program(kubelet_program(spec.name), command, node=spec.name))
        return {
            "compose": self._compose(),
            "nodes": {spec.name: node_mounts(self._node_folder(spec)) for spec in self._specs},
            "programs": programs,
        }

    def _compose(self) -> Mapping[str, Any] | None:
        root = layout.KUBELET_ROOT
        if root.is_dir():
            return None
        scratch = self._folder / "scratch"
        scratch.mkdir()
        return {"directory": str(root.parent), "scratch": str(scratch), "add": [root.name]}

    def _program(self, name: str, argv: list[str], node: str | None = None, **environment: str) -> Mapping[str, Any]:
        return {
            "name": name,
            "argv": argv,
            "environment": {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._folder), **environment},
            "directory": "/" if node else str(self._folder),
            "log": str(self._folder / "logs" / f"{name}.log"),
            "node": node,
        }

    def _description(self) -> Mapping[str, Any]:
        """What another process needs to know of this sandbox."""
        return {
            "fingerprint": _fingerprint(self._specs, audit=self._audit),
            "server": self._server,
            "token": self._accounts[control_plane.ADMIN].token,
            "user_namespace": self._user_namespace,
            "nodes": [
                {
                    "name": spec.name,
                    "numa_nodes": len(spec.machine.numa_nodes),
                    "cpus": spec.machine.cpus.bit_count(),
                    "memory": sum(node.memory for node in spec.machine.numa_nodes),
                    "policy": spec.kubelet.topology_manager_policy,
                    "scope": spec.kubelet.topology_manager_scope,
                }
                for spec in self._specs
            ],
        }


def _fingerprint(specs: Sequence[NodeSpec], *, audit: bool) -> Mapping[str, Any]:
    return {"audit": audit, "nodes": [fingerprint(spec) for spec in specs]}


def _check_nodes(specs: Sequence[NodeSpec]) -> None:
    if not specs:
        raise InvalidNodeSpec("a sandbox needs at least one node")
    for name, count in Counter(spec.name for spec in specs).items():
        if count > 1:
            raise InvalidNodeSpec(f"two nodes are called {name}")


def check_name(name: str) -> None:
    """Raise SandboxError for a name that is not one of a sandbox: it becomes part of paths."""
    if not _NAME.fullmatch(name):
        raise SandboxError(f"sandbox name {name!r:.60} is not up to 40 lower-case letters, digits and dashes")


def _package_root() -> str:
    """The folder that a new Python process must search to find this same package."""
    return str(Path(topomend.__file__).parents[1])


def how_to_enter_namespaces() -> list[str]:
    """The flags with which unshare(1) gives this user mounts of its own: as root, or as root of a user namespace.

    Raises SandboxUnavailable, with what to do, where neither works.
    """
    if sys.platform != "linux":
        raise SandboxUnavailable("the sandbox needs Linux: its kubelets run in mount namespaces")
    for tool in ("unshare", "nsenter"):
        if shutil.which(tool) is None:
            raise SandboxUnavailable(f"the sandbox needs {tool}(1): install the package util-linux")
    mounts = ["--mount", "--propagation", "private"]
    ways = [["--user", "--map-root-user", *mounts]]
    if os.geteuid() == 0:
        ways.insert(0, mounts)
    words = ""
    for flags in ways:
        trial = ["unshare", *flags, "--", "mount", "-t", "tmpfs", "tmpfs", "/sys"]
        done = subprocess.run(trial, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return flags
        words = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    raise SandboxUnavailable(
        f"the sandbox needs mounts of its own, and this user may not make any ({words}): run as root, or allow user "
        "namespaces (sysctl user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0)"
    )


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nothing listens on."""
    ports: list[int] = []
    candidates = random.SystemRandom().sample(PORTS, k=len(PORTS))
    for port in candidates:
        with socket.socket() as probe:
            try:
                probe.bind((control_plane.HOST, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise SandboxUnavailable(f"no {count} free ports on {control_plane.HOST} in {PORTS.start}-{PORTS.stop - 1}")


@contextlib.contextmanager
def _lock(name: str) -> Iterator[int]:
    """Take the lock of the sandbox called ``name``; whoever is given the descriptor keeps it after this ends."""
    path = layout.lock_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SandboxBusy(f"sandbox {name} is up already, or coming up") from None
        yield descriptor
    finally:
        os.close(descriptor)


def is_up(name: str) -> bool:
    """Whether a supervisor holds the lock of the sandbox called ``name``."""
    path = layout.lock_file(name)
    if not path.exists():
        return False
    try:
        with _lock(name):
            return False
    except SandboxBusy:
        return True


def read_status(folder: Path) -> Mapping[str, Any]:
    """What the supervisor last wrote of its programs; empty where it wrote nothing."""
    try:
        status = json.loads((folder / layout.STATUS_FILE).read_text())
    except FileNotFoundError:
        return {}
    return status if isinstance(status, dict) else {}


def _raise_if_one_ended(status: Mapping[str, Any]) -> None:
    for name, program in status.get("programs", {}).items():
        if program["exit"] is not None:
            log = Path(program["log"])
            raise ProgramFailed(f"{name} ended with {program['exit']}: {last_words(log)} (log: {log})")


def last_words(log: Path) -> str:
    """The last line of a log that says what went wrong; the last line of all where none does."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "it wrote no log"
    telling = re.compile(r"^(F\d{4} |E\d{4} |Error:|error:|panic:|fatal|\{\"level\":\"(error|fatal))|unshare:|Error")
    recent = lines[-200:]
    return next(
        (line for line in reversed(recent) if telling.search(line)), recent[-1] if recent else "it wrote nothing"
    )[:400]


def exec_prefix(name: str, node_name: str) -> list[str]:
    """See Sandbox.exec_prefix; for a sandbox that any process of this user brought up."""
    folder = layout.state_folder(name)
    status = read_status(folder)
    if node_name not in status.get("namespaces", {}) or not is_up(name):
        raise SandboxError(f"sandbox {name} is not up, or has no node {node_name}")
    supervisor, descriptor = status["supervisor"], status["namespaces"][node_name]
    user = (
        [f"--user=/proc/{supervisor}/ns/user", "--preserve-credentials"] if description(name)["user_namespace"] else []
    )
    # udev's library takes only files of a real sysfs for devices unless told otherwise (sd-device.c).
    return [
        "nsenter",
        *user,
        f"--mount=/proc/{supervisor}/fd/{descriptor}",
        "--",
        "env",
        f"--chdir={Path.cwd()}",
        "SYSTEMD_DEVICE_VERIFY_SYSFS=0",
    ]


def description(name: str) -> Mapping[str, Any]:
    """What the sandbox called ``name`` was started as. Raises SandboxError where it is not up."""
    try:
        document = json.loads((layout.state_folder(name) / layout.SANDBOX_FILE).read_text())
    except FileNotFoundError:
        raise SandboxError(f"sandbox {name} is not up; start it with: topomend sandbox up --name {name}") from None
    return document if isinstance(document, dict) else {}


def take_down(name: str) -> bool:
    """End the sandbox called ``name``, whichever process brought it up; false where none was up."""
    check_name(name)
    folder = layout.state_folder(name)
    was_up = is_up(name)
    if was_up:
        _end_supervisor(name, read_status(folder).get("supervisor"))
    existed = folder.exists()
    shutil.rmtree(folder, ignore_errors=True)
    return was_up or existed


def _end_supervisor(name: str, pid: int | None) -> None:
    """Have the supervisor end what it runs; by force where it does not."""
    if pid is None:
        raise SandboxBusy(f"sandbox {name} is just coming up: end what brings it up, or try again in a moment")
    for number, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if not is_up(name):
                return
            time.sleep(POLL)
    raise SandboxError(f"sandbox {name}: its supervisor, process {pid}, does not end")
