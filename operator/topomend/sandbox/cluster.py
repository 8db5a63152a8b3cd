"""Bring a sandbox up, change it while it runs, and take it down.

A sandbox is a folder of files (``plan``), one supervisor process that holds its lock (``supervisor``), and the
programs below it. This module owns the order of starts, and waits until the cluster is usable. Finding a sandbox that
another process brought up is left to ``registry``.
"""

import itertools
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox import layout, registry
from topomend.sandbox.api import heartbeat, is_ready
from topomend.sandbox.control_plane import HOST, Files
from topomend.sandbox.devices import dra_objects
from topomend.sandbox.failures import ProgramFailed, SandboxError
from topomend.sandbox.installed import installation
from topomend.sandbox.node.node_spec import InvalidNodeSpec, NodeSpec
from topomend.sandbox.node.pod_resources import ContainerResources, listed, socket_of
from topomend.sandbox.plan import (
    API_SERVER,
    CONTROLLER_MANAGER,
    SCHEDULER,
    Preparation,
    kubelet_program,
)
from topomend.sandbox.processes.host import how_to_enter_namespaces
from topomend.sandbox.processes.supervisor_client import SupervisorProcess, raise_if_one_ended, read_status
from topomend.sandbox.releases.build import ensure_binary
from topomend.sandbox.releases.go_modules import minor_of

PATIENCE = 120.0
"""Seconds until the API server, and then the nodes, must be ready."""

APPLY_PATIENCE = 20.0
"""Seconds until the API server must accept all manifests."""

POLL = 0.05
"""Seconds between two polls."""

OLDER_KUBELETS = 3
"""By how many minor versions a kubelet may be older than its API server (Kubernetes' version skew policy)."""

_numbers = itertools.count(1)

_NODES_ROLE = (
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "topomend-sandbox:nodes"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
    },
)
"""On a machine this small the Node authorizer learns of a pod a moment after its kubelet. A kubelet that it denies the
pod retries the pod's status only after 10 s (status_manager.go:syncBatch). With this role it never has to."""


@dataclass(frozen=True)
class SandboxNode:
    """One running node. The paths are valid in its mount namespace (see Sandbox.exec_prefix)."""

    name: str
    kubelet_config: Path = layout.KUBELET_CONFIG
    kubelet_state: Path = layout.KUBELET_ROOT
    pod_resources: Path = layout.POD_RESOURCES


class Sandbox:
    """A running cluster that ends with the process that brought it up; also a context manager that takes it down."""

    def __init__(  # noqa: PLR0913 - what was prepared, each part by its name
        self,
        name: str,
        *,
        binary: Path,
        supervisor: SupervisorProcess,
        specs: Sequence[NodeSpec],
        preparation: Preparation,
        audit: bool,
    ) -> None:
        folder = layout.state_folder(name)
        self.name = name
        self.folder = folder
        self.kubeconfig: Path = folder / layout.KUBECONFIG_FILE
        self.audit_log: Path | None = Files(folder).audit_log if audit else None
        self.nodes = tuple(SandboxNode(spec.name) for spec in specs)
        self._binary = binary
        self._specs = {spec.name: spec for spec in specs}
        self._supervisor = supervisor
        self._api = preparation.api
        self._components = preparation.components

    @classmethod
    def up(  # noqa: PLR0913 - each by its name, and each with a default
        cls,
        nodes: Sequence[NodeSpec],
        *,
        name: str | None = None,
        version: str = DEFAULT_VERSION,
        audit: bool = False,
        topomend: bool = False,
        mode: str = "",
        api_server_flags: Sequence[str] = (),
        emulated_version: str = "",
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Start a control plane and a kubelet for each of ``nodes``, and wait until all are ready.

        Without a ``name`` the sandbox gets one that is unique to this process. ``version`` is the control plane's
        release; each node's kubelet has the release of its settings. ``topomend`` installs topomend in it, with the
        operator's ``mode`` if one is given.
        ``api_server_flags`` are appended to the API server's. The control plane behaves as one of the
        ``emulated_version``, such as ``1.35``, where that is given. Raises SandboxBusy
        if the name is taken, SandboxUnavailable if this machine cannot run a sandbox, ProgramFailed if a program does
        not start, InvalidNodeSpec for nodes that no cluster can have, NotARelease.
        """
        name = name or f"{layout.PROCESS_PREFIX}{os.getpid()}-{next(_numbers)}"
        registry.check_name(name)
        check_nodes(nodes, version)
        namespace_flags = how_to_enter_namespaces()
        versions = dict.fromkeys((DEFAULT_VERSION, version, *(spec.kubelet.version for spec in nodes)))
        binaries = {needed: ensure_binary(on_progress, needed) for needed in versions}
        registry.remove_abandoned()
        with registry.lock(name) as lock:
            folder = layout.state_folder(name)
            layout.remove_tree(folder)
            folder.mkdir(parents=True, mode=0o700)
            preparation = Preparation(
                folder,
                binaries,
                nodes,
                version=version,
                audit=audit,
                topomend=topomend,
                mode=mode,
                user_namespace="--user" in namespace_flags,
                api_server_flags=api_server_flags,
                emulated_version=emulated_version,
            )
            preparation.write()
            supervisor = SupervisorProcess(folder, namespace_flags, lock)
        sandbox = cls(
            name,
            binary=binaries[version],
            supervisor=supervisor,
            specs=nodes,
            preparation=preparation,
            audit=audit,
        )
        try:
            sandbox._start(preparation, on_progress)
            if topomend:
                sandbox.install_topomend(on_progress, mode=mode)
        except BaseException:
            supervisor.end()
            raise
        return sandbox

    def node(self, name: str) -> SandboxNode:
        """The node ``name``. Raises SandboxError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise SandboxError(
            f"sandbox {self.name} has no node {name}; it has {', '.join(node.name for node in self.nodes)}"
        )

    def exec_prefix(self, node_name: str) -> list[str]:
        """The arguments before a command that run it in the mount namespace of that node's kubelet.

        There, /sys, /proc/cpuinfo and /proc/meminfo show the node's machine, and /var/lib/kubelet is its kubelet's. The
        prefix executes the command in the same process. Raises SandboxError for an unknown node.
        """
        return registry.exec_prefix(self.name, self.node(node_name).name)

    def kubectl_prefix(self) -> list[str]:
        """The command line of kubectl for this sandbox, up to its arguments."""
        return registry.kubectl_prefix(self.name, self._binary)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What kubectl prints, as the administrator of this sandbox. Raises SandboxError with its error if it fails."""
        done = self._run_kubectl(arguments, stdin)
        if done.returncode:
            words = "; ".join(done.stderr.strip().splitlines()) or "no reason given"
            raise SandboxError(f"kubectl {' '.join(arguments)} ended with {done.returncode}: {words[:600]}")
        return done.stdout

    def resources(self, pod: str, namespace: str = "default") -> tuple[ContainerResources, ...]:
        """What each container of a running pod holds of its node, as its kubelet tells it (PodResources API).

        Init containers are left out, as by the kubelet, unless they are sidecars. Raises SandboxError if there is no
        such pod, or if no kubelet has admitted it: the text then has the kubelet's reason and message.
        """
        manifest = self._api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
        if manifest is None:
            raise SandboxError(f"sandbox {self.name} has no pod {namespace}/{pod}")
        status, node = manifest.get("status", {}), manifest["spec"].get("nodeName", "")
        found = None
        if node in self._specs and status.get("phase") == "Running":
            found = listed(self._pod_resources_socket(node), self._specs[node].machine, namespace, pod)
        if found is None:
            why = " ".join(status[field] for field in ("phase", "reason", "message") if status.get(field))
            raise SandboxError(f"pod {namespace}/{pod} holds nothing of a node: {why or 'it has no status'}")
        return found

    def stop_kubelet(self, node_name: str) -> None:
        """Stop the kubelet of a node; its containers and its state stay."""
        self._supervisor.stop([kubelet_program(self.node(node_name).name)])

    def start_kubelet(self, node_name: str) -> None:
        """Start the kubelet of a node again and wait until it says that the node is ready. Raises ProgramFailed."""
        spec = self._specs[self.node(node_name).name]
        before = self._heartbeat(spec.name)
        self._supervisor.start([kubelet_program(spec.name)])
        # What the last one said stays, its devices too, which the new one does not have yet.
        self._wait(f"the kubelet of {spec.name} to speak", lambda: self._heartbeat(spec.name) not in {before, ""})
        self._wait_for_kubelets([spec])

    def begin_kubelet(self, node_name: str) -> None:
        """Start the kubelet of a node and wait for nothing: it may end at once."""
        self._supervisor.start([kubelet_program(self.node(node_name).name)])

    def kubelet_ended(self, node_name: str) -> bool:
        """Whether the kubelet of a node was started and has ended on its own."""
        program = read_status(self.folder)["programs"][kubelet_program(self.node(node_name).name)]
        return program["pid"] is None and program["exit"] is not None

    def stop_api_server(self) -> None:
        """Stop the API server; etcd and all other programs keep running."""
        self._supervisor.stop([API_SERVER])

    def start_api_server(self) -> None:
        """Start the API server again on the same port and wait until it is ready. Raises ProgramFailed."""
        self._supervisor.start([API_SERVER])
        self._wait("the API server to be ready", self._api.ready)

    def upgrade_control_plane(self, version: str, on_progress: Callable[[str], None] = lambda _: None) -> None:
        """Replace the API server, then controller manager and scheduler, by those of the release ``version``.

        Kubelets and etcd stay. Returns once the API server is ready. Raises SandboxUnavailable, ProgramFailed,
        InvalidNodeSpec where a kubelet is too old for that release, NotARelease.
        """
        check_nodes(tuple(self._specs.values()), version)
        binary = ensure_binary(on_progress, version)
        layout.link(self.folder, binary)
        self._binary = binary
        on_progress(f"upgrading the control plane to {version}")
        self.stop_api_server()
        self.start_api_server()
        for program in (CONTROLLER_MANAGER, SCHEDULER):
            self._supervisor.stop([program])
            self._supervisor.start([program])

    def stop_controllers(self) -> None:
        """Stop the controller manager, so that Nodes without a kubelet are not marked as lost."""
        self._supervisor.stop([CONTROLLER_MANAGER])

    def install_topomend(self, on_progress: Callable[[str], None] = lambda _: None, *, mode: str = "") -> None:
        """Install topomend's kinds, accounts and policies, and run an agent for each node and the operator.

        They run as long as the sandbox, each in the place of its pod. ``mode`` is the operator's, its default if empty.
        Returns once every node's NodeTopology is Ready, the operator is at work and their pods are ready. Raises
        ProgramFailed if that does not happen in time.
        """
        self._apply(installation.manifests(), mode, on_progress)
        on_progress(f"starting topomend: the operator and {len(self.nodes)} agent{'s' if len(self.nodes) != 1 else ''}")
        self._supervisor.start([installation.TOKENS_PROGRAM])
        for component in self._components:
            self._wait(f"the pod of {component.program} to be bound", component.launch(self.folder).exists)
        self._supervisor.start([component.program for component in self._components])
        self._wait_for_topomend(mode)

    def check_programs(self) -> None:
        """Raise ProgramFailed if a program ended on its own, even if it was restarted since."""
        raise_if_one_ended(read_status(self.folder), most_restarts=0)

    def detach(self) -> None:
        """Keep the sandbox running after this process ends, until ``down``."""
        self._supervisor.detach()

    def down(self) -> None:
        """Stop every program and remove every file of the sandbox."""
        self._supervisor.end()
        registry.remove_files(self.name, registry.REMOVAL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.down()

    def _start(self, preparation: Preparation, on_progress: Callable[[str], None]) -> None:
        specs = tuple(self._specs.values())
        on_progress("starting etcd and the API server")
        self._supervisor.start(preparation.first_programs)
        self._wait("the API server to be ready", self._api.ready)
        preparation.write_kubeconfigs()
        self._wait("nodes to be given their role", lambda: self._api.create(*_NODES_ROLE))
        on_progress(f"starting {len(specs)} kubelet{'s' if len(specs) != 1 else ''}")
        for spec in specs:
            self._register(spec)
        for resource in dict.fromkeys(device.resource for spec in specs for device in spec.claimable):
            content = dra_objects.device_class(resource)
            path = f"{dra_objects.GROUP}/deviceclasses"
            self._wait(f"the DeviceClass of {resource}", partial(self._api.create, path, content))
        programs = [*map(kubelet_program, self._specs), CONTROLLER_MANAGER, SCHEDULER, *preparation.later_programs]
        self._supervisor.start(programs)
        self._wait_for_kubelets(specs)
        self._wait(
            "the default service account",
            lambda: self._api.get("/api/v1/namespaces/default/serviceaccounts/default") is not None,
        )

    def _apply(self, manifests: Path, mode: str, on_progress: Callable[[str], None]) -> None:
        """Apply until the API server accepts everything: it serves a new kind a moment after the kind is created."""
        file = self.folder / installation.MANIFESTS_FILE
        layout.write_private(file, yaml.safe_dump_all(installation.adapted(manifests.read_text(), mode)))
        command = ["apply", "--server-side", "--filename", str(file)]
        on_progress(f"kubectl apply --server-side -f {layout.from_here(manifests)}")
        deadline = time.monotonic() + APPLY_PATIENCE
        while True:
            done = self._run_kubectl(command)
            if done.returncode == 0:
                return
            if time.monotonic() > deadline:
                words = "; ".join(done.stderr.strip().splitlines()) or "no reason given"
                raise ProgramFailed(f"topomend could not be installed from {manifests}: {words[:600]}")
            time.sleep(1.0)

    def _run_kubectl(self, arguments: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [*self.kubectl_prefix(), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)

    def _pod_resources_socket(self, node_name: str) -> Path:
        pid = read_status(self.folder)["programs"][kubelet_program(node_name)]["pid"]
        if pid is None:
            raise SandboxError(f"the kubelet of {node_name} does not run")
        return socket_of(pid)

    def _wait_for_topomend(self, mode: str) -> None:
        names = [node.name for node in self.nodes]
        deadline = time.monotonic() + PATIENCE
        while missing := installation.missing(self._api, names, mode):
            raise_if_one_ended(read_status(self.folder), most_restarts=installation.MOST_RESTARTS)
            if time.monotonic() > deadline:
                raise ProgramFailed(f"waited {PATIENCE:.0f} s for {missing}; the logs are in {self.folder / 'logs'}")
            time.sleep(POLL)

    def _register(self, spec: NodeSpec) -> None:
        """Create the Node before its kubelet, which would taint it for a cloud provider that does not exist.

        The kubelet keeps the addresses that it finds (pkg/kubelet/nodestatus/setters.go:NodeAddress). Without one, pods
        that ask for ``status.hostIP``, as topomend's agents do, do not start.
        """
        addresses = [{"type": "InternalIP", "address": HOST}, {"type": "Hostname", "address": spec.name}]
        path, node = "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": spec.name}}
        node |= {"status": {"addresses": addresses}}
        self._wait(f"node {spec.name} to be registered", lambda: self._api.create(path, node))

    def _wait_for_kubelets(self, specs: Iterable[NodeSpec]) -> None:
        for spec in specs:
            offered = Counter(device.resource for device in spec.devices if device.healthy)
            path = f"/api/v1/nodes/{spec.name}"

            def ready(path: str = path, offered: Mapping[str, int] = offered) -> bool:
                node = self._api.get(path)
                return node is not None and is_ready(node, offered)

            self._wait(f"node {spec.name} to be ready", ready)
            for resource in dict.fromkeys(device.resource for device in spec.claimable):
                name = dra_objects.slice_name(spec.name, dra_objects.driver_of(resource))
                path = f"{dra_objects.GROUP}/resourceslices/{name}"
                self._wait(f"the devices {resource} of {spec.name}", partial(self._is_there, path))

    def _heartbeat(self, node_name: str) -> str:
        """When the node's kubelet last wrote the node's status; empty if that cannot be read."""
        return heartbeat(self._api.get(f"/api/v1/nodes/{node_name}") or {})

    def _is_there(self, path: str) -> bool:
        return self._api.get(path) is not None

    def _wait(self, goal: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            raise_if_one_ended(read_status(self.folder))
            if time.monotonic() > deadline:
                raise ProgramFailed(f"waited {PATIENCE:.0f} s for {goal}; the logs are in {self.folder / 'logs'}")
            time.sleep(POLL)


def check_nodes(specs: Sequence[NodeSpec], version: str) -> None:
    """Raise InvalidNodeSpec or NotARelease for nodes that no cluster of the release ``version`` can have."""
    if not specs:
        raise InvalidNodeSpec("a sandbox needs at least one node")
    minor = minor_of(version)
    for spec in specs:
        if not minor - OLDER_KUBELETS <= minor_of(spec.kubelet.version) <= minor:
            raise InvalidNodeSpec(
                f"node {spec.name}: a kubelet {spec.kubelet.version} does not work with an API server {version}; it "
                f"may be {OLDER_KUBELETS} minor versions older, and not newer"
            )
    for name, count in Counter(spec.name for spec in specs).items():
        if count > 1:
            raise InvalidNodeSpec(f"two nodes are called {name}")
