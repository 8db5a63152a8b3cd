"""The real operator has the memory of its pod, whatever the pods of others are like.

It runs in a cgroup with the limit of ``deploy/base/operator.yaml``: where it needs more, the kernel kills it. Each test
also has a pod of another namespace ungated meanwhile. HUGE in the environment is how many huge pods there are.
"""

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import ROOT, Cluster, pod
from tests.operator_process import Operator
from tests.waiting import eventually
from verify.e2e.cgroups import CgroupsUnavailable, GroupTree

from topomend.kube.client import NAMESPACES, PODS, RELAUNCHES
from topomend.kube.errors import AlreadyExists
from topomend.wire.group import FIT_GATE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

LIMIT = 512 << 20
HUGE = int(os.environ.get("HUGE", "60"))
TENANT = "tenant"
AT_ONCE = 4
IN_TIME = 30.0
"""Seconds in which another namespace's pod is ungated; a machine that nothing else uses needs one or two."""

_numbers = count()


class Limited:
    """The operator in a cgroup of its own, on a cluster with a tenant."""

    def __init__(self, cluster: Cluster, group: GroupTree, folder: Path) -> None:
        self.cluster, self.group, self._folder = cluster, group, folder
        self.operator: Operator | None = None

    def start(self) -> None:
        """Start a process that shares no page with any other."""
        operator = Operator(
            self.cluster.sandbox.kubeconfig,
            self._folder / "operator.log",
            "--relist-seconds=5",
            module="topomend.cli",
        )
        assert hasattr(operator.process, "pid")
        self.group.add_to_memory(operator.process.pid)
        self.operator = operator
        eventually("the operator to list or to end", lambda: "is listed" in operator.text() or self._ended(), 120)

    def is_well(self) -> None:
        """It lives, and lets a pod of another namespace go."""
        assert self.operator is not None
        assert (self.group.killed_for_memory(), self._ended()) == (0, False), self.operator.text()[-2000:]
        name = f"other-{next(_numbers)}"
        content = pod(name, 1)
        content["spec"]["schedulingGates"] = [{"name": FIT_GATE}]
        self.cluster.create(content)
        begun = time.monotonic()
        eventually("another namespace's pod to be ungated", lambda: self._is_ungated(name) or self._ended(), IN_TIME)
        assert (self.group.killed_for_memory(), self._ended()) == (0, False), self.operator.text()[-2000:]
        print(f"ungated in {time.monotonic() - begun:.1f} s, {self.group.resident() >> 20} MiB")
        self.cluster.remove(self.cluster.get(name))

    def _is_ungated(self, name: str) -> bool:
        return "schedulingGates" not in self.cluster.get(name)["spec"]

    def _ended(self) -> bool:
        return self.operator is not None and self.operator.process.poll() is not None

    def create(self, contents: Sequence[dict[str, Any]]) -> None:
        """Create these pods of the tenant's."""

        def create(content: dict[str, Any]) -> None:
            eventually(f"{content['metadata']['name']} to be created", lambda: self._exists(content), 120)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(create, contents))

    def _exists(self, content: dict[str, Any]) -> bool:
        with suppress(AlreadyExists):  # the answer to an earlier request came too late
            self.cluster.create(content, TENANT)
        return True

    def end(self) -> None:
        """Stop the operator, and remove what the tenant has."""
        if self.operator and not self._ended():
            self.operator.terminate()
        if self.operator:
            print(self.operator.text()[-10_000:])
        for resource in (PODS, RELAUNCHES):
            delete_collection(self.cluster, resource.path(TENANT))


def delete_collection(cluster: Cluster, path: str) -> None:
    """Delete all objects of a kind in a namespace at once."""
    options = {"gracePeriodSeconds": 0}
    eventually("all to be deleted", lambda: cluster.client._ask("DELETE", path, options) and True)


@pytest.fixture
def limited(fragmented: Cluster, tmp_path: Path) -> Iterator[Limited]:
    """The operator is not started yet."""
    with suppress(AlreadyExists):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}}
        fragmented.client.create(NAMESPACES, namespace)
    group = GroupTree(f"topomend-memory-{os.getpid()}-{next(_numbers)}")
    try:
        group.create()
        group.limit_memory(LIMIT)
    except (CgroupsUnavailable, OSError) as error:
        group.remove()
        pytest.skip(f"memory cannot be limited here: {error}")
    tenant = Limited(fragmented, group, tmp_path)
    try:
        yield tenant
    finally:
        tenant.end()
        group.remove()


def huge(name: str, **spec: Any) -> dict[str, Any]:
    """A pod of 1.5 MB of JSON, of which Python makes ten times as much.

    As many variables of an environment would do the same, but cost an API server seconds: it counts who manages each.
    """
    content = pod(name, 3)
    content["spec"] |= spec
    content["spec"]["containers"][0]["args"] = [f"{index:05}" for index in range(180_000)]
    return content


def test_the_limit_is_the_one_that_the_operator_has_where_it_is_installed() -> None:
    assert f"memory: {LIMIT >> 20}Mi" in (ROOT / "deploy" / "base" / "operator.yaml").read_text()


def test_huge_pods_neither_kill_the_operator_at_its_start_nor_as_they_come(limited: Limited) -> None:
    nowhere = {"nodeSelector": {"no": "node"}}
    limited.create([huge(f"huge-{index}", **nowhere) for index in range(HUGE)])
    limited.start()
    limited.is_well()
    limited.create([huge(f"later-{index}", **nowhere) for index in range(HUGE // 4)])
    limited.is_well()
    time.sleep(10)  # a relist
    limited.is_well()
