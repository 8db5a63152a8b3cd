"""A cluster of real containers on one machine: control plane, containerd, runc and kubelets in their own namespaces.

``Cluster.up`` starts it and ``down`` removes everything. Every kubelet sees the real /sys and believes that it owns the
machine; its cgroups are below one cgroup of the cluster. ``node`` owns the files of a node, ``network`` the addresses,
``keeper`` the namespaces and their cleanup.
"""

import itertools
import json
import os
import re
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
from tests.waiting import eventually
from tools.chart import programs as chart_programs
from verify.e2e import prerequisites
from verify.e2e.containers import image_store, keeper
from verify.e2e.containers.api import API, Object, Refused
from verify.e2e.containers.certificates import Authority, kubeconfig
from verify.e2e.containers.cgroups import GroupTree, Memory
from verify.e2e.containers.logs import LogCollector
from verify.e2e.containers.network import IPV4, Network
from verify.e2e.containers.node import (
    CLIENT_AUTHORITY,
    CONTAINERD_CONFIG,
    CONTAINERD_SOCKET,
    KUBECONFIG,
    OWN_FOLDERS,
    Node,
    kubelet_flags,
    kubelet_settings,
    node_files,
)
from verify.e2e.containers.programs import Program, Space

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox import control_plane
from topomend.sandbox.node.kubelet import KERNEL_TUNABLES
from topomend.sandbox.releases.build import ensure_binary

T = TypeVar("T")

INSIDE = Path("/mnt")
"""Where the cluster's folder is mounted in its namespaces: a short path that no node replaces."""

TOOLS, KUBERNETES = INSIDE / "tools", INSIDE / "kubernetes"
"""The sandbox's binaries there: the default one, of which etcd and the key are, and that of the cluster's release."""

API_PORT = 443

CARELESS_SCHEDULER = "careless-scheduler"
"""The name of a scheduler that does not count CPUs. On a machine with one NUMA node the default scheduler counts as the
kubelet does, so no kubelet would refuse its pods. This one places pods that do not fit, as the default one does on
machines with several NUMA nodes."""

START_SECONDS = 120.0

END_SECONDS = 120.0
"""How long a program that is told to end may take, before it is taken for one that hangs."""


class Cluster:
    """A running cluster; a context manager that removes it."""

    def __init__(self, network: Network, pause: str) -> None:
        self._network, self._pause = network, pause
        self._numbers = itertools.count(1)
        self._keeper = keeper.Keeper(_new_folder())
        self.folder = self._keeper.folder
        self.groups = GroupTree(self.folder.name)
        self._space = Space(self._keeper.pid, {"PATH": _path(), "HOME": str(INSIDE)})
        self._snapshotter = _snapshotter(self.folder, self._space)
        self._store = Path()
        self._nodes: dict[str, _RunningNode] = {}
        self._programs: list[Program] = []
        self.api = API(self._space.root / INSIDE.relative_to("/") / "api.sock")
        self.logs = LogCollector(self.folder)

    @classmethod
    def up(
        cls,
        nodes: Sequence[Node],
        archives: Sequence[Path],
        *,
        pause: str,
        network: Network = IPV4,
        release: str = DEFAULT_VERSION,
        on_progress: Callable[[str], None] = print,
    ) -> Self:
        """Start a cluster of ``nodes`` with the images of ``archives``; ``pause`` names the image of pod sandboxes.

        Every program of Kubernetes is that of ``release``. Raises Unavailable if this machine cannot run a cluster,
        SandboxUnavailable if the release cannot be built, Failed if a part does not start.
        """
        prerequisites.check()
        binaries = {TOOLS: ensure_binary(on_progress), KUBERNETES: ensure_binary(on_progress, release)}
        keeper.remove_abandoned()
        cluster = cls(network, pause)
        try:
            cluster._start_control_plane(binaries)
            cluster._store = image_store.unpacked(archives, cluster._snapshotter, cluster._space)
            with ThreadPoolExecutor() as pool:
                list(pool.map(cluster.add_node, nodes))
        except BaseException:
            cluster.down()
            raise
        return cluster

    def add_node(self, node: Node) -> None:
        """Start a node, and wait until it is ready."""
        number = next(self._numbers)
        running = self._prepare_node(node, number)
        self._nodes[node.name] = running
        argv = ["containerd", "--config", str(CONTAINERD_CONFIG)]
        running.containerd = self._start_on(running, "containerd", argv)
        self._wait_for_runtime(running)
        self.start_kubelet(node.name)

    def start_kubelet(self, name: str) -> None:
        """Start the kubelet of a node, and wait until the node is ready."""
        node = self._nodes[name]
        argv = [str(KUBERNETES), "kubelet", *node.flags]
        node.kubelet = self._start_on(node, "kubelet", argv)
        before = time.time()

        def ready() -> bool:
            assert node.kubelet is not None
            node.kubelet.check()
            published = self.api.find(f"/api/v1/nodes/{name}")
            return published is not None and not published["spec"].get("taints") and _ready_since(published, before)

        eventually(f"node {name} to be ready", ready, START_SECONDS)

    def stop_kubelet(self, name: str) -> None:
        """Stop the kubelet of a node; its containers keep running."""
        kubelet = self._nodes[name].kubelet
        assert kubelet is not None
        kubelet.signal(signal.SIGTERM)
        kubelet.wait(END_SECONDS)
        self._programs.remove(kubelet)

    def change_flag(self, name: str, flag: str, value: str) -> None:
        """Start the kubelet of a node with another value of ``flag`` from the next time on."""
        node = self._nodes[name]
        node.flags = [f"{flag}={value}" if given.startswith(f"{flag}=") else given for given in node.flags]

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 120.0) -> str:
        """Run kubectl as the administrator in the project's folder; return its output. Raises Failed."""
        return self._space.run(*self._kubectl(), *arguments, stdin=stdin, seconds=seconds)

    def numa(self, *arguments: str, seconds: float = 120.0) -> str:
        """Run the plugin ``kubectl numa`` as the administrator; return its output. Raises Failed."""
        plugin = Path(sys.executable).with_name("kubectl-numa")
        account = control_plane.Files(INSIDE).kubeconfig("admin")
        return self._space.run("env", f"KUBECONFIG={account}", str(plugin), *arguments, seconds=seconds)

    def helm(self, *arguments: str, seconds: float = 180.0) -> str:
        """Run helm as the administrator in the project's folder; return its output. Raises Failed, NotBuilt."""
        account = control_plane.Files(INSIDE).kubeconfig("admin")
        argv = [
            "env",
            f"--chdir={Path.cwd()}",
            f"KUBECONFIG={account}",
            str(chart_programs.program("helm4")),
            *arguments,
        ]
        return self._space.run(*argv, seconds=seconds)

    def start(self, name: str, *argv: str) -> Program:
        """Start a further program beside the control plane; it ends with the cluster."""
        program = self._space.start(name, argv, self._log(name))
        self._programs.append(program)
        return program

    def run(self, *argv: str) -> str:
        """Run a command beside the control plane; return its output. Raises Failed."""
        return self._space.run(*argv)

    def exec(self, namespace: str, pod: str, *argv: str) -> str:
        """Run a command in the first container of a pod; return its output. Raises Failed."""
        return self.kubectl("exec", f"--namespace={namespace}", pod, "--", *argv)

    def on_node(self, name: str, *argv: str) -> str:
        """Run a command in a node's network, folders and processes; return its output. Raises Failed."""
        return self._nodes[name].space.run(*argv)

    def node_folder(self, name: str) -> Path:
        """Where the node's own folders (``etc``, ``home``, ``run``, ``var``) are on this machine."""
        return self._nodes[name].folder

    def memory(self, pod: Object, container: str) -> Memory:
        """The memory of a container of ``pod``. Raises FileNotFoundError if it does not run."""
        return self.groups.memory(container_id(pod, container))

    def processes(self, pod: Object, container: str) -> list[int]:
        """The process ids of a container of ``pod`` on this machine."""
        return self.groups.processes(container_id(pod, container))

    def down(self) -> None:
        """Stop everything, and wait until no process, cgroup, mount or file is left. Only the logs stay."""
        try:
            self.logs.end()
            self._keep_logs()
        finally:
            self._keeper.end()
            for program in self._programs:
                program.wait(END_SECONDS)
            self.logs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.down()

    # The control plane

    def _start_control_plane(self, binaries: Mapping[Path, Path]) -> None:
        self._space.run("mount", "--bind", str(self.folder), str(INSIDE))
        for command in self._network.setup():
            self._space.run(*command)
        (self.folder / "logs").mkdir()
        (self.folder / "pki").mkdir(mode=0o700)
        for place, binary in binaries.items():
            shutil.copy2(binary, self.folder / place.name)
        self._authority = Authority(self.folder / "pki")
        inside, files = control_plane.Files(INSIDE), control_plane.Files(self.folder)
        accounts = control_plane.accounts([])
        files.tokens.write_text(control_plane.token_file(accounts.values()))
        self._space.run(str(TOOLS), "key", str(inside.service_account_key))
        self._start("etcd", control_plane.etcd_flags(), TOOLS)
        self._start("kube-apiserver", self._api_server_flags(inside))
        key = files.certificate.with_suffix(".key")  # written once the certificate is whole
        eventually("the API server's certificate", self._while_running(key.exists), START_SECONDS)
        for name, account in accounts.items():
            content = control_plane.kubeconfig(self._server, files.certificate.read_bytes(), account)
            files.kubeconfig(name).write_text(content)
        self._start(
            "kubectl", ["proxy", f"--kubeconfig={inside.kubeconfig('admin')}", f"--unix-socket={INSIDE}/api.sock"]
        )
        eventually(
            "the API server", self._while_running(lambda: self._has("/api/v1/namespaces/default")), START_SECONDS
        )
        self._bind_nodes_to_their_role()
        self._start("kube-controller-manager", control_plane.controller_manager_flags(inside))
        (self.folder / "scheduler.json").write_text(json.dumps(scheduler_configuration(inside)))
        self._start("kube-scheduler", [f"--config={INSIDE / 'scheduler.json'}", "--secure-port=0"])
        default = "/api/v1/namespaces/default/serviceaccounts/default"
        eventually("service accounts", self._while_running(lambda: self._has(default)), START_SECONDS)

    @property
    def _server(self) -> str:
        return f"https://{self._network.bracketed(self._network.gateway)}:{API_PORT}"

    def _api_server_flags(self, inside: control_plane.Files) -> list[str]:
        """The flags of the sandbox's API server, then those that differ here: the last one of a name counts."""
        certificate, key = self._authority.sign("kube-apiserver", "system:masters")
        return [
            *control_plane.api_server_flags(inside, API_PORT, audit=False),
            f"--bind-address={self._network.any_address}",
            f"--advertise-address={self._network.gateway}",
            f"--service-cluster-ip-range={self._network.services}",
            f"--client-ca-file={INSIDE / 'pki' / self._authority.certificate.name}",
            f"--kubelet-client-certificate={INSIDE / 'pki' / certificate.name}",
            f"--kubelet-client-key={INSIDE / 'pki' / key.name}",
            "--kubelet-preferred-address-types=InternalIP",
            # Without a kube-proxy a webhook's Service has no address; this connects to its pods.
            "--enable-aggregator-routing=true",
        ]

    def _bind_nodes_to_their_role(self) -> None:
        """Let kubelets read before the Node authorizer knows their pods, which takes long on few CPUs."""
        group = "rbac.authorization.k8s.io"
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "topomend-e2e:nodes"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:node"},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:nodes"}],
        }
        role = f"/apis/{group}/v1/clusterroles/system:node"
        eventually("the role of nodes", self._while_running(lambda: self._has(role)), START_SECONDS)
        self.api.create(f"/apis/{group}/v1/clusterrolebindings", binding)

    def _has(self, path: str) -> bool:
        """Whether the API server has an object. One that starts on a busy machine may not answer its proxy in time."""
        try:
            return self.api.find(path) is not None
        except (OSError, Refused):
            return False

    def _start(self, name: str, flags: Sequence[str], binary: Path = KUBERNETES) -> None:
        # etcd makes its socket in the folder that it runs in.
        argv = ["env", f"--chdir={INSIDE}", str(binary), name, *flags]
        self._programs.append(self._space.start(name, argv, self._log(name)))

    def _while_running(self, condition: Callable[[], T]) -> Callable[[], T]:
        def checked() -> T:
            for program in self._programs:
                program.check()
            return condition()

        return checked

    def _kubectl(self) -> list[str]:
        own = control_plane.Files(INSIDE).kubeconfig("admin")
        return ["env", f"--chdir={Path.cwd()}", str(KUBERNETES), "kubectl", f"--kubeconfig={own}"]

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def _keep_logs(self) -> None:
        folder = Path("build", "e2e-logs")
        shutil.rmtree(folder, ignore_errors=True)
        if (self.folder / "logs").is_dir():
            shutil.copytree(self.folder / "logs", folder)
            self.logs.write(folder)

    # Nodes

    def _prepare_node(self, node: Node, number: int) -> "_RunningNode":
        folder = self.folder / "nodes" / node.name
        address = self._network.node(number)
        settings = kubelet_settings(node, address, f"{self.groups.name}/{node.name}")
        self.groups.create(node.name)
        for command in self._network.setup_node(number):
            self._space.run(*command)
        certificate, key = self._authority.sign(f"system:node:{node.name}", "system:nodes")
        own = node_files(
            number,
            self._network,
            cni_folder=prerequisites.cni_folder(),
            pause=self._pause,
            snapshotter=self._snapshotter,
        )
        start = node.layout(settings)
        server_authority = control_plane.Files(self.folder).certificate
        contents = {
            **own,
            **start.files,
            KUBECONFIG: kubeconfig(self._server, server_authority, certificate, key),
            CLIENT_AUTHORITY: self._authority.certificate.read_text(),
        }
        for path, content in contents.items():
            _write(folder, path, content)
        for name in ("etc", "home", "run", "var/lib", "var/log", "var/tmp", "var/cache", str(node.root).lstrip("/")):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for link, target in node.links.items():
            (folder / link.relative_to("/")).symlink_to(target)
        (folder / "var" / "run").symlink_to("/run")
        image_store.give(self._store, folder / "var" / "lib" / "containerd")
        return _RunningNode(node, folder, self._node_space(node, folder), [*kubelet_flags(node, address), *start.flags])

    def _node_space(self, node: Node, folder: Path) -> Space:
        """A mount namespace in which the node has its own folders and cannot change a setting of the kernel."""
        argv = ["unshare", "--mount", "--propagation", "private", "--", "sleep", "infinity"]
        holder = self._space.start(f"holder-{node.name}", argv, self._log(f"holder-{node.name}"))
        self._programs.append(holder)
        eventually("the node's namespace", lambda: Path(f"/proc/{holder.pid}/exe").readlink().name != "unshare", 10)
        space = Space(holder.pid, {"PATH": _path(), "HOME": "/root"})
        seen = INSIDE / "nodes" / node.name
        for name in OWN_FOLDERS:
            space.run("mount", "--bind", str(seen / name), f"/{name}")
        for name, setting in KERNEL_TUNABLES.items():
            if Path("/proc/sys", name).exists():
                _write(folder, Path("/tunables") / name, f"{setting}\n")
                space.run("mount", "--bind", str(seen / "tunables" / name), f"/proc/sys/{name}")
        space.run("mount", "--make-rshared", "/")
        return space

    def _start_on(self, node: "_RunningNode", name: str, argv: Sequence[str]) -> Program:
        program = node.space.start(f"{name} of {node.node.name}", argv, self._log(f"{name}-{node.node.name}"))
        self._programs.append(program)
        return program

    def _wait_for_runtime(self, node: "_RunningNode") -> None:
        def answers() -> bool:
            assert node.containerd is not None
            node.containerd.check()
            return _answers_kubelets(node.space.root / CONTAINERD_SOCKET.relative_to("/"))

        eventually(f"containerd of {node.node.name}", answers, START_SECONDS)


@dataclass
class _RunningNode:
    """A running node: its folders on this machine, its mount namespace, its kubelet's flags, its two programs."""

    node: Node
    folder: Path
    space: Space
    flags: Sequence[str]
    containerd: Program | None = None
    kubelet: Program | None = None


def _answers_kubelets(socket: Path) -> bool:
    """Whether containerd serves the CRI: it answers its own clients before, and until then a kubelet ends."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        ask: Callable[..., object] = channel.unary_unary("/runtime.v1.RuntimeService/Version")
        try:
            ask(b"", timeout=5)
        except grpc.RpcError:
            return False
    return True


def _snapshotter(folder: Path, space: Space) -> str:
    """overlayfs, or native where the cluster's folder is on an overlay itself.

    Asked once: where two nodes try the same folders at a time, one of them fails, and copies the image for each
    container.
    """
    lower, upper, work, merged = (folder / "overlay" / name for name in ("lower", "upper", "work", "merged"))
    for place in (lower, upper, work, merged):
        place.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    trial = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options, str(merged)]
    return "native" if space.attempt(*trial).returncode else "overlayfs"


def scheduler_configuration(files: control_plane.Files) -> Mapping[str, Any]:
    """The default scheduler, and a second profile that does not count CPUs.

    The default one preempts no pod: for moments the second one binds more pods than a node has CPUs, and an operator's
    pod that is created just then would have one of them deleted.
    """
    fit, preemption = [{"name": "NodeResourcesFit"}], [{"name": "DefaultPreemption"}]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(files.kubeconfig(control_plane.SCHEDULER)), "qps": 300, "burst": 600},
        "leaderElection": {"leaderElect": False},
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": {point: {"disabled": preemption} for point in ("multiPoint", "postFilter")},
            },
            {
                "schedulerName": CARELESS_SCHEDULER,
                "plugins": {point: {"disabled": fit} for point in ("multiPoint", "preFilter", "filter")},
            },
        ],
    }


def container_id(pod: Object, container: str) -> str:
    """A container's id in a pod's status, without the name of the runtime."""
    for status in pod["status"].get("containerStatuses", ()):
        if status["name"] == container and status.get("containerID"):
            return str(re.sub(r"^\w+://", "", status["containerID"]))
    raise FileNotFoundError(f"container {container} of pod {pod['metadata']['name']} does not run")


def _ready_since(node: Object, moment: float) -> bool:
    """Whether the kubelet started at ``moment`` (in whole seconds) has reported the node as ready."""
    for condition in node["status"].get("conditions", ()):
        if condition["type"] == "Ready":
            seen = time.mktime(time.strptime(condition["lastHeartbeatTime"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
            return condition["status"] == "True" and seen >= int(moment)
    return False


def _new_folder() -> Path:
    return keeper.runs_folder() / f"topomend-e2e-{os.getpid()}-{secrets.token_hex(3)}"


def _path() -> str:
    return os.pathsep.join(dict.fromkeys([*os.environ.get("PATH", os.defpath).split(os.pathsep), "/usr/sbin", "/sbin"]))


def _write(folder: Path, path: Path, content: str) -> None:
    target = folder / path.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)
