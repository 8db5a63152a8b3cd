"""One sandbox for all faults, and operators side by side: each behind a proxy of its own, in a namespace of its own."""

import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from tests import audit_log
from tests.clusters import NODE_B, Cluster, events_of
from tests.faults.proxy import Proxy, Request
from tests.operator_process import Operator
from tests.refusing_node import refused_pod, refusing_cluster
from tests.waiting import awake, eventually

from topomend.controller.relist import UNFINISHED
from topomend.kube.errors import NotFound
from topomend.kube.resources import NAMESPACES, PODS, RELAUNCHES
from topomend.sandbox.processes.host import free_ports


class Scene:
    """One operator behind a proxy, which sees the pods of one namespace alone."""

    def __init__(self, cluster: Cluster, folder: Path, name: str) -> None:
        self.cluster, self.namespace, self._folder = cluster, name, folder
        folder.mkdir()
        cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.proxy = Proxy(cluster.sandbox.kubeconfig, folder, ("events", "brakes", "steerings"), namespace=name)
        self.operators: list[Operator] = []
        self._address = self._metrics = ""

    def start(self, *flags: str, module: str = "", kubeconfig: Path | None = None) -> Operator:
        """Start an operator, and wait until it watches."""
        self._address, self._metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
        before = set(map(id, self.proxy.streams()))  # those of one that was killed may not have ended yet
        log = self._folder / f"operator-{len(self.operators)}.log"
        served = (f"--health-address={self._address}", f"--metrics-address={self._metrics}")
        operator = Operator(kubeconfig or self.proxy.kubeconfig, log, *served, *flags, module=module)
        self.operators.append(operator)
        eventually("the operator to watch", lambda: len(set(map(id, self.proxy.streams())) - before) >= 4 or kubeconfig)
        return operator

    @property
    def operator(self) -> Operator:
        return self.operators[-1]

    def refuse(self, name: str, **metadata: Any) -> dict[str, Any]:
        """A pod that numa-a's kubelet has refused; returned as it was made."""
        content = refused_pod(name, **metadata)
        made: dict[str, Any] = eventually(
            "the pod to be accepted", lambda: self.cluster.create(content, self.namespace)
        )
        eventually(f"{name} to be refused", lambda: self.phase(name) == "Failed" or self.uid(name) != uid_of(made))
        return made

    def get(self, name: str) -> dict[str, Any]:
        return self.cluster.get(name, self.namespace)

    def phase(self, name: str) -> str:
        return str(self.get(name)["status"].get("phase"))

    def uid(self, name: str) -> str:
        return uid_of(self.get(name))

    def exists(self, name: str) -> bool:
        try:
            self.get(name)
        except NotFound:
            return False
        return True

    def records(self) -> dict[str, dict[str, Any]]:
        """The records by the name of their pod."""
        listing = self.cluster.client.list(RELAUNCHES, namespace=self.namespace)
        return {record["spec"]["pod"]["name"]: record for record in listing.items}

    def record_at(self, name: str, step: str) -> dict[str, Any] | None:
        """The record of a pod, once it is at this step."""
        return self.records()[name] if self.step(name) == step else None

    def step(self, name: str) -> str:
        record = self.records().get(name, {})
        return str(record.get("status", {}).get("step", ""))

    def notes(self, content: dict[str, Any], reason: str) -> list[str]:
        """The notes of the events of this reason on an object."""
        return [event["note"] for event in events_of(self.cluster, content, reason)]

    def runs_anew(self, old: dict[str, Any], seconds: float) -> float:
        """Wait until a refused pod runs on numa-b, on a busy machine longer than ``seconds``; how long that took."""
        begun = awake()
        name = old["metadata"]["name"]

        def is_new() -> dict[str, Any] | None:
            replacement = self.get(name)
            return (
                replacement
                if uid_of(replacement) != uid_of(old) and replacement["status"].get("phase") == "Running"
                else None
            )

        replacement = eventually(f"{name} to run again", is_new, seconds)
        took = awake() - begun
        assert replacement["spec"]["nodeName"] == NODE_B
        eventually("the record to end", lambda: self.step(name) == "Launched")
        assert "finalizers" not in self.get(name)["metadata"]
        self.nothing_doubled(name)
        return took

    def nothing_doubled(self, name: str) -> None:
        """By the audit log: one pod of this name ever came to a node by a scheduler."""
        assert self.cluster.sandbox.audit_log
        history = audit_log.histories(self.cluster.sandbox.audit_log)[(self.namespace, name)]
        assert len(set(history.bound)) == 1, history

    def listed_again(self) -> None:
        """Wait until the operator has listed everything twice more, and has been given both lists."""
        before = self._lists()  # the last of which may have been answered already
        eventually("the operator to list everything", lambda: self._lists() >= before + 3)

    def _lists(self) -> int:
        """How often the operator has begun to list pods, which comes last, but for what its streams list."""
        asked = [request for request in list(self.proxy.asked) if request.lists("pods")]
        return len([request for request in asked if is_first_page(request)])

    def healthz(self) -> tuple[int, str]:
        """What the operator's liveness endpoint says; of one that does not answer, 0 and why."""
        try:
            with urllib.request.urlopen(f"http://{self._address}/healthz", timeout=30) as answer:
                return answer.status, answer.read().decode().strip()
        except HTTPError as error:
            return error.code, error.read().decode().strip()
        except OSError as error:  # it has just been started, or the machine is busy
            return 0, str(error)

    def metric(self, name: str) -> float:
        """A gauge of the operator's."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def remove(self, name: str) -> None:
        """Delete a pod for good."""
        self.cluster.remove(self.get(name))

    def is_well(self) -> None:
        """The operator lives, its liveness endpoint says so before long, and it has logged no traceback."""
        eventually("it to be well", lambda: self.healthz() == (200, "ok"))
        assert self.operator.process.poll() is None
        assert "Traceback" not in self.operator.text()

    def end(self) -> None:
        for operator in self.operators:
            if operator.process.poll() is None:
                operator.kill()
            print(f"{self.namespace}, {operator.log.name}:\n{operator.text()}")  # shown where the test fails
        self.proxy.close()
        for content in self.cluster.client.list(PODS, namespace=self.namespace).items:
            if content["metadata"].get("finalizers"):
                patch = {"metadata": {"finalizers": None}}
                self.cluster.client.merge(PODS, content["metadata"]["name"], patch, self.namespace)
            self.cluster.remove(content)


def is_first_page(request: Request) -> bool:
    """Whether this request of a relist begins with the pods."""
    return request.query.get("fieldSelector") == UNFINISHED and "continue" not in request.query


def uid_of(content: dict[str, Any]) -> str:
    return str(content["metadata"]["uid"])


@pytest.fixture(scope="package")
def lopsided() -> Iterator[Cluster]:
    """numa-b has room for twenty of our pods: operators that do not see one another's never want the same hole."""
    with refusing_cluster("numa:4 cores:16 memory:8Gi") as cluster:
        yield cluster


@pytest.fixture
def scene_of(lopsided: Cluster, tmp_path: Path) -> Iterator[Callable[[str], Scene]]:
    """Make a scene by its name; ended with the test."""
    made: list[Scene] = []

    def make(name: str) -> Scene:
        made.append(Scene(lopsided, tmp_path / name, name))
        return made[-1]

    yield make
    for scene in made:
        scene.end()
