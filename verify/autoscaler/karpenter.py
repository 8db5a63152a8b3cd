"""Builds Karpenter's kwok provider from its Go module, and runs it beside a sandbox. ``__main__`` says what is tried.

Karpenter listens on all addresses: run it in a network namespace.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from topomend.kube.client import Client, Resource
from topomend.kube.errors import APIError
from topomend.sandbox.layout import cache_folder

MODULE, VERSION = "sigs.k8s.io/karpenter", "v1.14.0"
"""The newest release that Go 1.26.8 builds."""

NODE_CLAIMS = Resource("karpenter.sh/v1", "nodeclaims", namespaced=False)

_CRDS = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
_NODE_POOLS = Resource("karpenter.sh/v1", "nodepools", namespaced=False)
_NODE_CLASSES = Resource("karpenter.kwok.sh/v1alpha1", "kwoknodeclasses", namespaced=False)


def build() -> Path:
    """The program, built where it is not there yet: four minutes on two cores. Needs Go."""
    folder = cache_folder() / "karpenter" / VERSION
    program = folder / "karpenter-kwok"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "go.mod").unlink(missing_ok=True)
        _go(folder, "mod", "init", "topomend.io/karpenter")
        _go(folder, "get", f"{MODULE}/kwok@{VERSION}")
        _go(folder, "build", "-o", f"{program}.part", f"{MODULE}/kwok")
        Path(f"{program}.part").rename(program)
    return program


def _go(folder: Path, *arguments: str) -> str:
    return subprocess.run(["go", *arguments], cwd=folder, check=True, text=True, stdout=subprocess.PIPE).stdout  # noqa: S607  Go is where the user has it


def install(client: Client, program: Path, resources: Mapping[str, str]) -> None:
    """Karpenter's kinds, and one pool whose nodes have these ``resources``, as Quantities."""
    found = json.loads(_go(program.parent, "list", "-m", "-json", MODULE))
    for folder in ("pkg/apis/crds", "kwok/apis/crds"):
        for path in sorted((Path(found["Dir"]) / folder).glob("karpenter*.yaml")):
            client.create(_CRDS, yaml.safe_load(path.read_text()))
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
