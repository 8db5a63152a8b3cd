"""The page about dra-driver-cpu: its commands print what it shows, ``fit`` of slices as the driver documents them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.builders import TWO_NUMA_NODES, node_state
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import cluster_of
from tests.clusters import ROOT

from topomend.cli.kubectl_numa import numa
from topomend.cli.main import main

PAGE = (ROOT / "docs" / "reference" / "dra-driver-cpu.md").read_text()

BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
"""The language of each block, and what is in it."""

SIMULATE, FIT, LINT = "$ topomend simulate ", "$ kubectl numa fit ", "$ topomend lint "


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's manifests under their names, and the configuration of a kubelet as the driver needs it."""
    for content in (content for kind, content in BLOCKS if kind == "yaml"):
        name = re.match(r"# (\S+)", content)
        assert name
        (tmp_path / name[1]).write_text(content)
    configuration = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    (tmp_path / "kubelet.yaml").write_text(f"{configuration}cpuManagerPolicy: none\n")
    monkeypatch.chdir(tmp_path)


def shown(command: str) -> Iterator[tuple[list[str], list[str]]]:
    """The arguments of each command of the page that begins so, and the lines below it."""
    for block in (content for kind, content in BLOCKS if not kind):
        for part in re.split(r"^(?=\$ )", block, flags=re.MULTILINE):
            if part.startswith(command):
                line, *printed = part.splitlines()
                yield shlex.split(line.removeprefix(command)), printed


def slices() -> dict[str, Any]:
    """Two groups of three CPUs as the driver publishes them (docs/user/device-attributes.md of dra-driver-cpu)."""
    devices = [
        {
            "name": f"cpudevnuma00{number}",
            "allowMultipleAllocations": True,
            "attributes": {name: {"int": number} for name in ("resource.kubernetes.io/numaNode", "dra.cpu/numaNodeID")},
            "capacity": {"dra.cpu/cpu": {"value": "3"}},
        }
        for number in range(2)
    ]
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": "a"}, "spec": {"driver": "dra.cpu", "nodeName": "a", "pool": pool, "devices": devices}}


def test_simulate_prints_what_the_page_shows() -> None:
    commands = list(shown(SIMULATE))
    assert len(commands) == 2
    for arguments, printed in commands:
        answer = CliRunner().invoke(main, ["simulate", *arguments], catch_exceptions=False)
        assert answer.stdout.splitlines() == printed


def test_a_kubelet_starts_with_the_policy_that_the_driver_needs() -> None:
    ((arguments, _),) = shown(LINT)
    assert CliRunner().invoke(main, ["lint", *arguments], catch_exceptions=False).exit_code == 0


def test_fit_prints_what_the_page_shows(tmp_path: Path) -> None:
    cluster = cluster_of([node_state(TWO_NUMA_NODES, name="a", cpu_manager="none")], [])
    selectors = [{"cel": {"expression": 'device.driver == "dra.cpu"'}}]
    cluster.items |= {
        "resourceslices": [slices()],
        "deviceclasses": [{"metadata": {"name": "dra.cpu"}, "spec": {"selectors": selectors}}],
        "resourceclaims": [],
    }
    ((arguments, printed),) = shown(FIT)
    with kubeconfig_of(cluster, tmp_path) as kubeconfig:
        answer = CliRunner().invoke(numa, ["fit", *arguments, "--kubeconfig", str(kubeconfig)], catch_exceptions=False)
    assert answer.stdout.splitlines() == printed
