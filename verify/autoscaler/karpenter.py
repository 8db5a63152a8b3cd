"""Builds Karpenter's kwok provider from its Go module, and runs it beside a sandbox. ``__main__`` says what is tried.

Karpenter listens on all addresses: run it in a network namespace.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.clusters import CRDS
from tools.commands import Unavailable

from topomend.kube.client import Client
from topomend.kube.errors import APIError
from topomend.kube.resources import Resource
from topomend.sandbox.layout import cache_folder
from topomend.sandbox.releases.build import locked
from topomend.sandbox.releases.toolchain import environment, find_go, run_go

MODULE, VERSION = "sigs.k8s.io/karpenter", "v1.14.0"
"""The newest release that Go 1.26.8 builds."""

MINIMUM_GO = "1.26.5"
"""As its go.mod says."""

NODE_CLAIMS = Resource("karpenter.sh/v1", "nodeclaims", namespaced=False)

_NODE_POOLS = Resource("karpenter.sh/v1", "nodepools", namespaced=False)
_NODE_CLASSES = Resource("karpenter.kwok.sh/v1alpha1", "kwoknodeclasses", namespaced=False)


def build() -> Path:
    """The program, built where it is not there yet: four minutes on two cores.

    Raises SandboxUnavailable where Go is missing and cannot be downloaded, Unavailable where it fails.
    """
    folder = cache_folder() / "karpenter" / VERSION
    program = folder / "karpenter-kwok"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock", lambda: _say("waiting for another build of Karpenter")):
        if not program.exists():
            _say(f"building Karpenter {VERSION}, once")
            (folder / "go.mod").unlink(missing_ok=True)
            _go(folder, "mod", "init", "topomend.io/karpenter")
            _go(folder, "get", f"{MODULE}/kwok@{VERSION}")
            partial = program.with_suffix(".partial")
            _go(folder, "build", "-o", str(partial), f"{MODULE}/kwok")
            partial.replace(program)
    return program


def _go(folder: Path, *arguments: str) -> str:
    done = run_go(find_go(MINIMUM_GO, _say), folder, {**os.environ, **environment()}, *arguments)
    if done.returncode:
        raise Unavailable(f"go {arguments[0]} failed in {folder}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _say(progress: str) -> None:
    sys.stderr.write(f"{progress}\n")


def install(client: Client, program: Path, resources: Mapping[str, str]) -> None:
    """Karpenter's kinds, and the one kind of nodes that it may make: with these ``resources``, as Quantities."""
    found = json.loads(_go(program.parent, "list", "-m", "-json", MODULE))
    for folder in ("pkg/apis/crds", "kwok/apis/crds"):
        for path in sorted((Path(found["Dir"]) / folder).glob("karpenter*.yaml")):
            client.create(CRDS, yaml.safe_load(path.read_text()))
    _instance_types(program).write_text(json.dumps([_instance_type(resources)]))


def create_pool(client: Client) -> bool:
    """Returns whether it exists: its kinds are served a moment after their definitions."""
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    requirements = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
    template = {"spec": {"nodeClassRef": reference, "requirements": requirements, "expireAfter": "Never"}}
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
    try:
        for resource, content in (
            (_NODE_CLASSES, _object("karpenter.kwok.sh/v1alpha1", "KWOKNodeClass", {})),
            (_NODE_POOLS, _object("karpenter.sh/v1", "NodePool", {"template": template, "disruption": disruption})),
        ):
            client.apply(resource, "default", content)
    except APIError:
        return False
    return True


def _object(api_version: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "default"}, "spec": spec}


def _instance_type(resources: Mapping[str, str]) -> dict[str, Any]:
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]},
    ]
    offering = {"Price": 1.0, "Available": True, "Requirements": requirements}
    return {
        "name": "made-up",
        "offerings": [offering],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": resources,
    }


def _instance_types(program: Path) -> Path:
    return program.parent / "instance_types.json"


@contextmanager
def running(program: Path, kubeconfig: Path, log: Path) -> Iterator[None]:
    """Karpenter beside the cluster of this kubeconfig; it ends with the context."""
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "DISABLE_LEADER_ELECTION": "true",
        "SYSTEM_NAMESPACE": "kube-system",
        "INSTANCE_TYPES_FILE_PATH": str(_instance_types(program)),
    }
    with log.open("wb") as output:
        process = subprocess.Popen([str(program)], env=environment, stdout=output, stderr=output)
        try:
            yield
            if process.poll() is not None:
                raise AssertionError(f"Karpenter ended: {log.read_text()[-2000:]}")
        finally:
            process.terminate()
            process.wait()
