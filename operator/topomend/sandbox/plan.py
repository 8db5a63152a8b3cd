"""Everything that is written before a sandbox starts: machines, configurations, accounts, and the supervisor's plan."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from topomend.sandbox import bearers, control_plane, layout
from topomend.sandbox.api import API
from topomend.sandbox.host import free_ports, python_path
from topomend.sandbox.installation import TOKENS_PROGRAM, components
from topomend.sandbox.kubelet import (
    CRI_SOCKET,
    KERNEL_TUNABLES,
    KUBELET_WORK,
    WRITABLE,
    kubelet_config,
    kubelet_flags,
    node_mounts,
)
from topomend.sandbox.machine_files import write_machine
from topomend.sandbox.node_spec import NodeSpec, fingerprint

ETCD, API_SERVER = "etcd", "kube-apiserver"
CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
RUNTIME, DEVICE_PLUGIN = "runtime", "device-plugin"


def kubelet_program(node_name: str) -> str:
    """What the supervisor calls the kubelet of a node."""
    return f"kubelet-{node_name}"


class Preparation:
    """The files of a sandbox that is about to start."""

    def __init__(  # noqa: PLR0913 - what a sandbox is made of, each part by its name
        self,
        folder: Path,
        binary: Path,
        specs: Sequence[NodeSpec],
        *,
        audit: bool,
        topomend: bool,
        user_namespace: bool,
        api_server_flags: Sequence[str],
    ) -> None:
        self._folder, self._binary, self._specs = folder, binary, specs
        self._audit, self._topomend, self._user_namespace = audit, topomend, user_namespace
        self._api_server_flags = api_server_flags
        self._files = control_plane.Files(folder)
        self._accounts = control_plane.accounts(spec.name for spec in specs)
        names, count = [spec.name for spec in specs], len(specs)
        self._port, *ports = free_ports(2 + 2 * count)
        self._kubelet_ports = dict(zip(names, ports[:count], strict=True))
        self.components = components(names, ports[count:])
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
        self._pod_tokens().write(self._folder)
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
        for name in ("device-plugins", KUBELET_WORK.name):
            (kubelet / name).mkdir(parents=True)
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
            API_SERVER: [
                *control_plane.api_server_flags(self._files, self._port, audit=self._audit),
                *self._api_server_flags,
            ],
            CONTROLLER_MANAGER: control_plane.controller_manager_flags(self._files),
            SCHEDULER: control_plane.scheduler_flags(self._files),
        }
        programs = [self._program(name, [str(self._binary), name, *own]) for name, own in flags.items()]
        # The sockets' whole paths may be longer than a socket's path may be (108 bytes): named from where it runs.
        sockets = [f"/proc/self/cwd/nodes/{spec.name}/kubelet/{CRI_SOCKET.name}" for spec in self._specs]
        programs.append(self._program(RUNTIME, [str(self._binary), "cri", *sockets]))
        plugin = [sys.executable, "-m", "topomend.sandbox.device_plugin", "plugins.json"]
        programs.append(self._program(DEVICE_PLUGIN, plugin, PYTHONPATH=python_path()))
        for spec in self._specs:
            command = [str(self._binary), "kubelet", *kubelet_flags(spec)]
            programs.append(self._program(kubelet_program(spec.name), command, node=spec.name))
        programs += self._topomend_programs()
        return {
            "compose": self._compose(),
            "nodes": {
                spec.name: {"mounts": node_mounts(self._node_folder(spec)), "writable": WRITABLE}
                for spec in self._specs
            },
            "programs": programs,
        }

    def _compose(self) -> Sequence[Mapping[str, Any]]:
        """The folders that this machine lacks: the kubelet's own, and the one of udev that an agent's pod mounts."""
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
        """topomend's own programs: they are started where it is installed."""
        command = [sys.executable, "-m", "topomend.sandbox.pod_tokens", str(self._folder)]
        tokens = self._program(TOKENS_PROGRAM, command, PYTHONPATH=python_path())
        programs = [tokens]
        for component in self.components:
            programs.append(
                self._program(
                    component.program,
                    [sys.executable, "-m", "topomend.cli", *component.command],
                    node=component.node or None,
                    PYTHONPATH=python_path(),
                    KUBECONFIG=str(component.kubeconfig(self._folder)),
                    SYSTEMD_DEVICE_VERIFY_SYSFS="0",
                )
            )
        return [{**program, "restart": True} for program in programs]

    def _pod_tokens(self) -> bearers.Plan:
        served = tuple(
            bearers.Bearer(one.program, one.namespace, one.account, one.node, str(one.kubeconfig(self._folder)))
            for one in self.components
        )
        admin = self._accounts[control_plane.ADMIN]
        return bearers.Plan(control_plane.HOST, self._port, str(self._files.certificate), admin.token, bearers=served)

    def _program(self, name: str, argv: list[str], node: str | None = None, **environment: str) -> Mapping[str, Any]:
        return {
            "name": name,
            "argv": argv,
            "environment": {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._folder), **environment},
            "directory": str(KUBELET_WORK) if node else str(self._folder),
            "log": str(self._folder / "logs" / f"{name}.log"),
            "node": node,
        }

    def _description(self) -> Mapping[str, Any]:
        """What another process needs to know of this sandbox."""
        return {
            "fingerprint": cluster_fingerprint(self._specs, audit=self._audit, topomend=self._topomend),
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
                }
                for spec in self._specs
            ],
        }


def cluster_fingerprint(specs: Sequence[NodeSpec], *, audit: bool, topomend: bool) -> Mapping[str, Any]:
    """What a sandbox was started as, for telling whether another request means the same."""
    return {"audit": audit, "topomend": topomend, "nodes": [fingerprint(spec) for spec in specs]}
