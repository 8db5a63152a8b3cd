"""Is my pod aligned on a machine of four NUMA nodes? A real kubelet answers."""

import json
from pathlib import Path

import pytest
from topomend_sandbox import Sandbox, SandboxError

POD = Path(__file__).parents[1] / "trainer.yaml"


def test_my_pod_is_aligned_with_its_gpu(cluster: Sandbox) -> None:
    cluster.kubectl("apply", f"--filename={POD}")
    cluster.kubectl("wait", "pod/trainer", "--for=jsonpath={.status.phase}=Running", "--timeout=60s")
    (main,) = cluster.resources("trainer")
    assert main.devices == {"vendor.com/gpu": ("gpu-2-0",)}
    assert main.cpus == {8, 9, 10, 11}
    assert main.numa_nodes == {2}


def test_a_wider_pod_is_refused_on_the_same_machine(cluster: Sandbox) -> None:
    manifest = json.loads(cluster.kubectl("create", "--dry-run=client", "-o", "json", f"--filename={POD}"))
    manifest["metadata"]["name"] = "wide"
    manifest["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "5", "memory": "1Gi"}
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(manifest))
    cluster.kubectl("wait", "pod/wide", "--for=jsonpath={.status.phase}=Failed", "--timeout=60s")
    with pytest.raises(SandboxError, match="TopologyAffinityError"):
        cluster.resources("wide")
