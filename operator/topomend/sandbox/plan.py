"""Write a sandbox's files before it starts: machines, configurations, accounts, and the supervisor's plan.

Starting the programs is left to ``supervisor``, their order to ``cluster``.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox import control_plane, layout
from topomend.sandbox.api import API
from topomend.sandbox.devices import dra_plan
from topomend.sandbox.installed import bearers
from topomend.sandbox.installed.installation import PROBED_PORTS, TOKENS_PROGRAM, components, hosts, kept
from topomend.sandbox.node.kubelet import (
    CRI_SOCKET,
    HOSTS,
    KERNEL_TUNABLES,
    KUBELET_WORK,
    SHARED,
    WRITABLE,
    kubelet_config,
    kubelet_flags,
    node_mounts,
)
from topomend.sandbox.node.machine_files import write_machine
from topomend.sandbox.node.node_spec import NodeSpec, fingerprint
from topomend.sandbox.processes.host import free_addresses, free_ports, python_path

ETCD, API_SERVER = "etcd", "kube-apiserver"
CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
RUNTIME, DEVICE_PLUGIN, DRA_DRIVER = "runtime", "device-plugin", "dra-driver"

HANDED_ON = ("GOGC", "GOMEMLIMIT")
"""The caller's variables that every program gets as well: how much memory Go spends to save CPU time
(https://go.dev/doc/gc-guide)."""


def kubelet_program(node_name: str) -> str:
    """The name of a node's kubelet in the supervisor's plan."""
    return f"kubelet-{node_name}"


class Preparation:
    """The files of a sandbox that is about to start. The constructor also picks its ports and tokens.

    ``binaries`` are those of the releases that run, and of the default one. ``version`` is the control plane's release.
    """

    def __init__(  # noqa: PLR0913 - what a sandbox is made of, each part by its name
        self,
        folder: Path,
        binaries: Mapping[str, Path],
        specs: Sequence[NodeSpec],
        *,
        version: str,
        audit: bool,
        topomend: bool,
        mode: str,
        user_namespace: bool,
        api_server_flags: Sequence[str],
        emulated_version: str,
    ) -> None:
        self._folder, self._binaries, self._specs, self._version = folder, binaries, specs, version
        self._audit, self._topomend, self._mode, self._user_namespace = audit, topomend, mode, user_namespace
        self._api_server_flags = api_server_flags
        self._emulation = control_plane.emulation_flags(emulated_version)
        self._files = control_plane.Files(folder)
        self._accounts = control_plane.accounts(spec.name for spec in specs)
        names, count = [spec.name for spec in specs], len(specs)
        self._port, *ports = free_ports(2 + 2 * count)
        self._kubelet_ports = dict(zip(names, ports[:count], strict=True))
        self.components = components(names, ports[count:], free_addresses(1 + count, PROBED_PORTS))
        self._server = f"https://{control_plane.HOST}:{self._port}"
        token = self._accounts[control_plane.ADMIN].token
        self.api = API(control_plane.HOST, self._port, self._files.certificate, token)
        self.first_programs = [ETCD, API_SERVER, RUNTIME, *([DEVICE_PLUGIN] if self._plugins() else [])]
        self.later_programs = [DRA_DRIVER] if self._drivers().nodes else []

    def write(self) -> None:
        """Write every file that does not need the API server's certificate."""
        for name in ("logs", "pki"):
            (self._folder / name).mkdir(mode=0o700)
        layout.link(self._folder, self._binaries[self._version])
        layout.write_private(self._files.tokens, control_plane.token_file(self._accounts.values()))
        layout.write_private(self._files.audit_policy, json.dumps(control_plane.AUDIT_POLICY))
        key = [self._tools, "key", str(self._files.service_account_key)]
        subprocess.run(key, stdin=subprocess.DEVNULL, check=True)
        for spec in self._specs:
            self._write_node(spec)
        layout.write_private(self._folder / "plugins.json", json.dumps(self._plugins()))
        self._drivers().write(self._folder)
        self._pod_tokens().write(self._folder)
        layout.write_private(self._folder / layout.PLAN_FILE, json.dumps(self._plan()))
        layout.write_private(self._folder / layout.SANDBOX_FILE, json.dumps(self._description()))

    def write_kubeconfigs(self) -> None:
        """Write the kubeconfigs, which contain the API server's certificate; the API server must be ready."""
        authority = self._files.certificate.read_bytes()
        places = {
            control_plane.ADMIN: self._folder / layout.KUBECONFIG_FILE,
            control_plane.CONTROLLER_MANAGER: self._files.kubeconfig(control_plane.CONTROLLER_MANAGER),
            control_plane.SCHEDULER: self._files.kubeconfig(control_plane.SCHEDULER),
            **{f"node:{spec.name}": self._kubelet_folder(spec) / "kubeconfig" for spec in self._specs},
        }
        for account, place in places.items():
            layout.write_private(place, control_plane.kubeconfig(self._server, authority, self._accounts[account]))

    @property
    def _tools(self) -> str:
        """The binary of the default release: it alone has etcd, the container runtime and ``key``."""
        return str(self._binaries[DEFAULT_VERSION])

    def _node_folder(self, spec: NodeSpec) -> Path:
        return self._folder / "nodes" / spec.name

    def _kubelet_folder(self, spec: NodeSpec) -> Path:
        return self._node_folder(spec) / "kubelet"

    def _write_node(self, spec: NodeSpec) -> None:
        node, kubelet = self._node_folder(spec), self._kubelet_folder(spec)
        for name in ("device-plugins", "plugins_registry", KUBELET_WORK.name):
            (kubelet / name).mkdir(parents=True)
        write_machine(node / "machine", spec.machine, (*spec.devices, *spec.claimable))
        for name, setting in KERNEL_TUNABLES.items():
            place = node / "tunables" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"{setting}\n")
        operator, agent = self.components[0], next(one for one in self.components if one.node == spec.name)
        names_of_host = HOSTS.read_text() if HOSTS.is_file() else ""
        (node / "hosts").write_text(f"{names_of_host.rstrip()}\n{hosts(operator.address, agent.address)}")
        config = kubelet_config(spec, port=self._kubelet_ports[spec.name], user_namespace=self._user_namespace)
        (kubelet / layout.KUBELET_CONFIG.name).write_text(yaml.safe_dump(dict(config), sort_keys=False))

    def _plugins(self) -> Sequence[Mapping[str, Any]]:
        """The device plugins, one for each node and resource; folders are relative to the plugin's working folder."""
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

    def _drivers(self) -> dra_plan.Plan:
        """The DRA drivers, one for each node and resource, each with the account of its node's kubelet."""
        nodes = tuple(
            dra_plan.NodeDevices(
                spec.name, self._accounts[f"node:{spec.name}"].token, f"nodes/{spec.name}/kubelet", spec.claimable
            )
            for spec in self._specs
            if spec.claimable
        )
        return dra_plan.Plan(control_plane.HOST, self._port, str(self._files.certificate), nodes)

    def _plan(self) -> Mapping[str, Any]:
        """The supervisor's plan: its mounts and programs."""
        flags = {
            ETCD: control_plane.etcd_flags(),
            API_SERVER: [
                *control_plane.api_server_flags(self._files, self._port, audit=self._audit),
                *self._api_server_flags,
                *self._emulation,
            ],
            CONTROLLER_MANAGER: [*control_plane.controller_manager_flags(self._files), *self._emulation],
            SCHEDULER: [*control_plane.scheduler_flags(self._files), *self._emulation],
        }
        control_plane_binary = str(self._folder / layout.CONTROL_PLANE_LINK)
        programs = [
            self._program(name, [self._tools if name == ETCD else control_plane_binary, name, *program_flags])
            for name, program_flags in flags.items()
        ]
        # Relative to the working folder: the absolute paths may exceed the limit of a socket's path (108 bytes).
        sockets = [f"/proc/self/cwd/nodes/{spec.name}/kubelet/{CRI_SOCKET.name}" for spec in self._specs]
        programs.append(self._program(RUNTIME, [self._tools, "cri", *sockets]))
        plugin = [sys.executable, "-m", "topomend.sandbox.devices.device_plugin", "plugins.json"]
        programs.append(self._program(DEVICE_PLUGIN, plugin, PYTHONPATH=python_path()))
        driver = [sys.executable, "-m", "topomend.sandbox.devices.dra_driver", str(self._folder)]
        programs.append(self._program(DRA_DRIVER, driver, PYTHONPATH=python_path()))
        for spec in self._specs:
            command = [str(self._binaries[spec.kubelet.version]), "kubelet", *kubelet_flags(spec)]
            programs.append(self._program(kubelet_program(spec.name), command, node=spec.name))
        programs += self._topomend_programs()
        return {
            "compose": self._compose(),
            "nodes": {
                spec.name: {"mounts": node_mounts(self._node_folder(spec)), "writable": WRITABLE, "shared": SHARED}
                for spec in self._specs
            },
            "programs": programs,
        }

    def _compose(self) -> Sequence[Mapping[str, Any]]:
        """The folders that the host may lack: the kubelet's own, and the one of udev that an agent's pod mounts."""
        wanted = [(layout.KUBELET_ROOT.parent, layout.KUBELET_ROOT), (layout.UDEV_DATA.parents[1], layout.UDEV_DATA)]
        composed = []
        for number, (directory, folder) in enumerate(wanted):
            if folder.is_dir() or (folder.parent.is_dir() and folder.parent != directory):
                continue
            scratch = self._folder / f"scratch-{number}"
            scratch.mkdir()
            add = [str(folder.relative_to(directory))]
            composed.append({"directory": str(directory), "scratch": str(scratch), "add": add})
        return composed

    def _topomend_programs(self) -> Sequence[Mapping[str, Any]]:
        """topomend's own programs. They start only if topomend is installed in the sandbox."""
        command = [sys.executable, "-m", "topomend.sandbox.installed.pod_tokens", str(self._folder)]
        tokens = self._program(TOKENS_PROGRAM, command, PYTHONPATH=python_path())
        programs = [tokens]
        for component in self.components:
            program = self._program(
                component.program,
                [sys.executable, "-m", "topomend.cli"],
                node=component.node or None,
                PYTHONPATH=python_path(),
                KUBECONFIG=str(component.kubeconfig(self._folder)),
                SYSTEMD_DEVICE_VERIFY_SYSFS="0",
            )
            programs.append({**program, "launch": str(component.launch(self._folder))})
        return [{**program, "restart": True} for program in programs]

    def _pod_tokens(self) -> bearers.Plan:
        served = tuple(
            bearers.Bearer(
                component.program,
                component.namespace,
                component.account,
                component.node,
                str(component.kubeconfig(self._folder)),
                launch=str(component.launch(self._folder)),
                address=component.address,
                replaced=component.replaced,
                added=component.flags,
            )
            for component in self.components
        )
        token, authority = self._accounts[control_plane.ADMIN].token, str(self._files.certificate)
        return bearers.Plan(control_plane.HOST, self._port, authority, token, bearers=served, adapted=kept())

    def _program(self, name: str, argv: list[str], node: str | None = None, **environment: str) -> Mapping[str, Any]:
        handed_on = {variable: os.environ[variable] for variable in HANDED_ON if variable in os.environ}
        own = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._folder)}
        return {
            "name": name,
            "argv": argv,
            "environment": {**handed_on, **own, **environment},
            "directory": str(KUBELET_WORK) if node else str(self._folder),
            "log": str(self._folder / "logs" / f"{name}.log"),
            "node": node,
        }

    def _description(self) -> Mapping[str, Any]:
        """The facts about this sandbox that ``registry`` reads in other processes."""
        return {
            "fingerprint": cluster_fingerprint(
                self._specs, version=self._version, audit=self._audit, topomend=self._topomend, mode=self._mode
            ),
            "version": self._version,
            "server": self._server,
            "token": self._accounts[control_plane.ADMIN].token,
            "user_namespace": self._user_namespace,
            "metrics": {component.program: component.metrics for component in self.components},
            "nodes": [
                {
                    "name": spec.name,
                    "numa_nodes": len(spec.machine.numa_nodes),
                    "cpus": spec.machine.cpus.bit_count(),
                    "memory": sum(node.memory for node in spec.machine.numa_nodes),
                    "policy": spec.kubelet.topology_manager_policy,
                    "scope": spec.kubelet.topology_manager_scope,
                    "version": spec.kubelet.version,
                }
                for spec in self._specs
            ],
        }


def cluster_fingerprint(
    specs: Sequence[NodeSpec], *, version: str, audit: bool, topomend: bool, mode: str
) -> Mapping[str, Any]:
    """A value that is equal for equal requests, to tell whether a running sandbox is the requested one."""
    nodes = [fingerprint(spec) for spec in specs]
    return {"version": version, "audit": audit, "topomend": topomend, "mode": mode, "nodes": nodes}
