"""A cluster on which topomend is installed as it is deployed, at work; and the command that takes it off."""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deploy.manifests import objects
from tests.clusters import (
    COLLECTOR_SECONDS,
    CRDS,
    DEPLOYMENTS,
    NODE_A,
    NODE_B,
    ROOT,
    SYSTEM,
    Cluster,
    pod,
    two_node_cluster,
)
from tests.deploy.api import API, administrator, path_of
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.drain.leftovers import leftovers
from topomend.kube.errors import AlreadyExists, APIError, NotFound
from topomend.kube.resources import BRAKES, NAMESPACES, NODES, PODS, RELAUNCHES, STEERINGS, Resource
from topomend.relaunch import manifest
from topomend.sandbox.processes.host import free_ports
from topomend.sandbox.releases.build import ensure_binary
from topomend.wire.group import API_VERSION, NAME_POLICY_ANNOTATION, PLACEHOLDER_GATE, RELAUNCH, RELAUNCH_FINALIZER
from topomend.wire.relaunch_record import manifest_status, record_name

QUOTAS = Resource("v1", "resourcequotas")
STEERED, DENIED = "steered", "denied"
PARAMETERS = ((BRAKES, "topomend-brake"), (STEERINGS, "topomend-steer"))
LOOK_SECONDS = 0.25
"""How often the process of a pod looks whether that has ended."""
READY_GATE = "example.com/ready"
LABELS = "app.kubernetes.io/name=topomend,app.kubernetes.io/component=operator"
HURRIED = """\
from topomend.cli.kubectl_numa import main
from topomend.drain import drain, operators

drain.IN_FORCE_SECONDS = operators.RENEW_DEADLINE_SECONDS = 1.0
main()
"""


@dataclass(frozen=True)
class Drained:
    """How a drain ended."""

    code: int
    lines: tuple[str, ...]


class Replica:
    """The operator's process of one of the Deployment's pods, for which the sandbox's runtime runs nothing: it ends
    with its pod, and its pod is ready when it says so, as by the kubelet's probe."""

    def __init__(self, cluster: Cluster, content: dict[str, Any], log: Path) -> None:
        name, uid = content["metadata"]["name"], content["metadata"]["uid"]
        self._health = f"127.0.0.1:{free_ports(1)[0]}"
        flags = (
            "--leader-elect",
            f"--identity={name}_{uid}",
            f"--pod-name={name}",
            f"--pod-uid={uid}",
            "--placeholders",
            f"--health-address={self._health}",
        )
        self.operator = Operator(cluster.sandbox.kubeconfig, log, *flags)
        self._cluster, self._name, self.uid = cluster, name, uid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._end_with_the_pod, daemon=True)
        self._thread.start()

    def _end_with_the_pod(self) -> None:
        is_ready = False
        while not self._ended.wait(LOOK_SECONDS):
            is_ready = is_ready or self._tell_ready()
            with suppress(APIError):
                try:
                    metadata = self._cluster.get(self._name, SYSTEM)["metadata"]
                    ends = metadata["uid"] != self.uid or "deletionTimestamp" in metadata
                except NotFound:
                    ends = True
                if ends:
                    self.operator.terminate()
                    return

    def _tell_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._health}/readyz", timeout=5):
                pass
        except OSError:
            return False
        with suppress(APIError):
            conditions = [{"type": READY_GATE, "status": "True"}]
            status = self._cluster.get(self._name, SYSTEM)["status"]
            patch = {"status": {"conditions": [*status.get("conditions", ()), *conditions]}}
            self._cluster.client.merge(PODS, self._name, patch, SYSTEM, subresource="status")
            return True
        return False

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        if self.operator.process.poll() is None:
            self.operator.kill()


@dataclass
class Installed:
    """topomend on a cluster, with everything under way that it can have under way."""

    cluster: Cluster
    folder: Path
    replicas: list[Replica] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    deleting: list["subprocess.Popen[str]"] = field(default_factory=list)

    def install(self) -> None:
        """Everything of deploy/ but the agents; nodes are published as agents would."""
        api = administrator(self.cluster.sandbox.kubeconfig)
        for item in objects():
            if item["kind"] != "DaemonSet":
                runnable = _runnable(item) if item["kind"] == "Deployment" else item
                eventually(f"{path_of(item)} to be taken", partial(_is_applied, api, runnable))
        for name, labels in ((STEERED, {"topomend.io/steer": "enabled"}), (DENIED, {})):
            self._create_namespace(name, labels)
        operator_pods = eventually("the operator's pods", self._operator_pods)
        self.replicas = [
            Replica(self.cluster, content, self.folder / f"operator-{number}-{time.monotonic_ns()}.log")
            for number, content in enumerate(operator_pods)
        ]
        for replica in self.replicas:
            replica.operator.wait_until_it_watches()
        eventually("the parameters to have both owners", lambda: min(map(len, map(self.owners, PARAMETERS))) == 2)

    def load(self) -> None:
        """A gated pod of a steered namespace, a refused one that waits, their placeholders, a braked Deployment, a
        relaunch whose pod is gone and cannot be created, and one with a name of its own whose pod is still there."""
        for state in list(self.cluster.states.values()):
            self.cluster.publish(replace(state, pods=(), memory=None))
        for node in (NODE_A, NODE_B):
            for number in range(2):
                self.cluster.occupy(node, f"filler-{node}-{number}", 2)
        eventually("steering to be in force", self.is_steered)
        self.cluster.create(pod("steered", 3), STEERED)
        waiting = self.cluster.create(pod("waiting", 3, node=NODE_A))
        own_name = {NAME_POLICY_ANNOTATION: "Suffix"}
        beside = self.cluster.create(pod("beside", 3, node=NODE_A, annotations=own_name), DENIED)
        eventually("both to be refused", lambda: self._is_refused("waiting") and self._is_refused("beside", DENIED))
        self.refused = {"waiting": waiting["metadata"]["uid"], "beside": beside["metadata"]["uid"]}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": _web()}
        self.cluster.client.create(DEPLOYMENTS, deployment, "default")
        eventually(
            "the Deployment to be braked", lambda: [pod for pod in self.pods() if pod.gates and "web-" in pod.name]
        )
        eventually("both to be recorded", lambda: len(self.cluster.records()) == 2)
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none"},
            "spec": {"hard": {"pods": "0"}},
        }
        self.cluster.client.create(QUOTAS, quota, DENIED)
        eventually(
            "the quota to count", lambda: self.cluster.client.get(QUOTAS, "none", DENIED).get("status", {}).get("used")
        )
        self._commit_lost("lost")
        eventually("beside to be claimed", lambda: self._claim(self.cluster.get("beside", DENIED)))
        eventually("both to be blocked", lambda: self.steps(DENIED) == ["Blocked", "Blocked"])
        eventually("placeholders of those that wait", lambda: len(self.placeholders()) >= 2)
        self._cordon(unschedulable=True)  # what is ungated waits for its scheduler: none is refused by a full node
        assert RELAUNCH_FINALIZER in self.cluster.get("beside", DENIED)["metadata"]["finalizers"]

    def allow(self) -> None:
        """Lift the quota."""
        uid = self.cluster.client.get(QUOTAS, "none", DENIED)["metadata"]["uid"]
        self.cluster.client.delete(QUOTAS, "none", DENIED, uid=uid)

    def steps(self, namespace: str) -> list[str]:
        records = self.cluster.client.list(RELAUNCHES, namespace=namespace).items
        return [str(record.get("status", {}).get("step", "Recorded")) for record in records]

    def owners(self, parameter: tuple[Resource, str]) -> list[str]:
        resource, name = parameter
        content = self.cluster.client.get(resource, name, SYSTEM)
        return [owner["uid"] for owner in content["metadata"].get("ownerReferences", ())]

    def pods(self) -> list[Any]:
        return [leftovers(content) for content in self.cluster.pods()]

    def placeholders(self) -> list[Any]:
        return [leftover for leftover in self.pods() if PLACEHOLDER_GATE in leftover.gates]

    def exists(self, parameter: tuple[Resource, str]) -> bool:
        try:
            return bool(self.uid(parameter))
        except NotFound:
            return False

    def uid(self, parameter: tuple[Resource, str]) -> str:
        resource, name = parameter
        return str(self.cluster.client.get(resource, name, SYSTEM)["metadata"]["uid"])

    def start_stranger(self) -> Operator:
        """An operator that runs by hand, and stands for election."""
        log = self.folder / "operator-stranger.log"
        return Operator(self.cluster.sandbox.kubeconfig, log, "--leader-elect", "--identity=elsewhere")

    def follow_the_deployment(self) -> Callable[[], None]:
        """Have every new pod of the Deployment run an operator, as its container would; until the answer is called."""
        known = {replica.uid for replica in self.replicas}
        ended = threading.Event()

        def follow() -> None:
            while not ended.wait(0.1):
                running = list[dict[str, Any]]()
                with suppress(APIError):  # it is asked again
                    running += self.cluster.client.list(PODS, namespace=SYSTEM, labels=LABELS).items
                for content in running:
                    uid = content["metadata"]["uid"]
                    if uid not in known and content["status"].get("phase") == "Running":
                        known.add(uid)
                        self.replicas.append(Replica(self.cluster, content, self.folder / f"operator-{uid}.log"))

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()

        def stop() -> None:
            ended.set()
            thread.join()

        return stop

    def drain(self, *flags: str, kubeconfig: Path | None = None, hurries: bool = False) -> Drained:
        process = self.start_drain(*flags, kubeconfig=kubeconfig, hurries=hurries)
        out, _ = process.communicate(timeout=240)
        print(f"drain {' '.join(flags)}: {process.returncode}\n{out}")
        return Drained(process.returncode, tuple(out.splitlines()))

    def start_drain(
        self, *flags: str, kubeconfig: Path | None = None, hurries: bool = False
    ) -> "subprocess.Popen[str]":
        """The command as it is installed. With ``hurries`` it waits for a second where it waits for what others may
        still write: for a test in which nobody does, or that shows something else."""
        program = [sys.executable, "-c", HURRIED] if hurries else [Path(sys.executable).with_name("kubectl-numa")]
        return subprocess.Popen(
            [*program, "drain", *flags],
            env={**os.environ, "KUBECONFIG": str(kubeconfig or self.cluster.sandbox.kubeconfig)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def start_delete(self) -> "subprocess.Popen[str]":
        """What README calls uninstalling; it waits until everything is gone."""
        deleting = subprocess.Popen(
            [
                str(ensure_binary(print)),
                "kubectl",
                f"--kubeconfig={self.cluster.sandbox.kubeconfig}",
                "delete",
                "--ignore-not-found",
                "-k",
                "deploy",
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.deleting.append(deleting)
        return deleting

    def assert_nothing_is_left_or_lost(self, *, beside: str = "beside") -> None:
        """Nothing of ours on any pod; each is there once, and those that were not refused run once there is room.

        An operator that retried before it was stopped may have relaunched ``beside``; else that is as it was.
        """
        assert [pod for pod in self.pods() if pod.any] == []
        for content in self.cluster.pods():
            if content["metadata"]["name"].startswith("filler-"):
                self.cluster.remove(content)
        for node in (NODE_A, NODE_B):
            eventually(f"the kubelet of {node} to give their CPUs back", partial(self._has_room, node))
        self._cordon(unschedulable=False)
        eventually("every pod to run", self._all_run)
        alive = {(pod.namespace, pod.name.split("-")[0]) for pod in self._alive()}
        assert alive - {(DENIED, "beside")} == {(STEERED, "steered"), ("default", "web"), (DENIED, "lost")}
        assert len(self._alive()) == len(alive)
        assert self.cluster.get("waiting")["metadata"]["uid"] == self.refused["waiting"]
        uids = {pod.uid for pod in self.pods()}
        assert (self.refused[beside] in uids) == ((DENIED, "beside") not in alive)
        assert [pod for pod in self.pods() if pod.any] == []

    def _has_room(self, node: str) -> bool:
        """Whether a pod that needs a whole NUMA node runs there. It is gone afterwards."""
        name = f"room-{node}"
        with suppress(AlreadyExists):
            self.cluster.create(pod(name, 4, node=node))
        content = self.cluster.get(name)
        phase = content["status"].get("phase")
        if phase in ("Running", "Failed"):
            self.cluster.remove(content)
        return bool(phase == "Running")

    def _alive(self) -> list[Any]:
        mine = [pod for pod in self.pods() if pod.namespace not in (SYSTEM, "topomend-agent")]
        return [pod for pod in mine if pod.phase != "Failed"]

    def _all_run(self) -> bool:
        return all(pod.phase == "Running" for pod in self._alive())

    def _operator_pods(self) -> list[dict[str, Any]]:
        operator_pods = self.cluster.client.list(PODS, namespace=SYSTEM, labels=LABELS).items
        running = [content for content in operator_pods if content["status"].get("phase") == "Running"]
        return running if len(running) == 2 else []

    def _create_namespace(self, name: str, labels: dict[str, str]) -> None:
        content = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.cluster.client.create(NAMESPACES, content)
        eventually("its account", lambda: self.cluster.client.get(Resource("v1", "serviceaccounts"), "default", name))

    def is_steered(self) -> bool:
        api = administrator(self.cluster.sandbox.kubeconfig)
        answer = api.apply(f"/api/v1/namespaces/{STEERED}/pods/tried", pod("tried", 3), dry_run=True)
        return bool(answer.allowed and answer.content["spec"].get("schedulingGates"))

    def _is_refused(self, name: str, namespace: str = "default") -> bool:
        return bool(self.cluster.get(name, namespace)["status"].get("phase") == "Failed")

    def _commit_lost(self, name: str) -> None:
        """The record of a pod that is gone already: the only copy of it.

        Meanwhile the operators stand still: they would cancel it before it is committed, and let its pod go.
        """
        content = pod(name, 3)
        self._signal_operators(signal.SIGSTOP)
        try:
            self._commit(name, f"uid-of-{name}", {"metadata": content["metadata"], "spec": content["spec"]})
        finally:
            self._signal_operators(signal.SIGCONT)

    def _signal_operators(self, number: signal.Signals) -> None:
        for replica in self.replicas:
            replica.operator.process.send_signal(number)

    def _cordon(self, *, unschedulable: bool) -> None:
        for name in (NODE_A, NODE_B):
            self.cluster.client.merge(NODES, name, {"spec": {"unschedulable": unschedulable}})

    def _claim(self, refused: dict[str, Any]) -> bool:
        """Begin with a relaunch, as where a node had admitted the pod a moment ago."""
        name, uid = refused["metadata"]["name"], refused["metadata"]["uid"]
        self.cluster.client.merge(PODS, name, manifest.claim(refused, record_name(name, uid)), DENIED)
        return True

    def _commit(self, name: str, uid: str, pod: dict[str, Any]) -> None:
        record = {
            "apiVersion": API_VERSION,
            "kind": RELAUNCH,
            "metadata": {"name": record_name(name, uid), "finalizers": [RELAUNCH_FINALIZER]},
            "spec": {
                "pod": {"name": name, "uid": uid},
                "refusedBy": NODE_A,
                "reason": "TopologyAffinityError",
                "attempt": 1,
                "manifestHash": manifest.digest(pod),
            },
        }
        made = self.cluster.client.create(RELAUNCHES, record, DENIED)["metadata"]["name"]
        status = {"status": {"step": "Committed"} | manifest_status(pod)}
        self.cluster.client.merge(RELAUNCHES, made, status, DENIED, subresource="status")

    def uninstall(self) -> None:
        """Whatever a test has left."""
        self._cordon(unschedulable=False)
        for replica in self.replicas:
            replica.end()
        for process in self.deleting:  # of a test that failed: its pipe would be another test's warning
            if process.stdout and not process.stdout.closed:
                process.kill()
                process.communicate()
        with suppress(NotFound):
            web = self.cluster.client.get(DEPLOYMENTS, "web", "default")
            self.cluster.client.delete(DEPLOYMENTS, "web", "default", uid=web["metadata"]["uid"])
        api = administrator(self.cluster.sandbox.kubeconfig)
        for record in self._records():
            self.cluster._unfinalize(RELAUNCHES, record)
        for item in reversed(objects()):
            api.delete(path_of(item))
        for name in (STEERED, DENIED):
            api.delete(f"/api/v1/namespaces/{name}")
        for content in self.cluster.pods():
            self.cluster._unfinalize(PODS, content["metadata"])
            self.cluster.remove(content)
        ours = {STEERED, DENIED, SYSTEM, "topomend-agent"}
        eventually("everything to be gone", lambda: not ours & self._names(NAMESPACES), 120)
        eventually("the kinds to be gone", lambda: not [name for name in self._names(CRDS) if "topomend" in name], 120)
        eventually("the pods to be gone", lambda: not self.cluster.pods(), COLLECTOR_SECONDS)

    def _records(self) -> list[dict[str, Any]]:
        try:
            return [record["metadata"] for record in self.cluster.records()]
        except NotFound:
            return []

    def _names(self, resource: Resource) -> set[str]:
        return {content["metadata"]["name"] for content in self.cluster.client.list(resource).items}


def _is_applied(api: API, item: dict[str, Any]) -> bool:
    return api.apply(path_of(item), item).allowed


def _runnable(deployment: dict[str, Any]) -> dict[str, Any]:
    """The Deployment with an image that the sandbox has; ready when its process says so, which nobody can probe."""
    made = deepcopy(deployment)
    spec = made["spec"]["template"]["spec"]
    spec["readinessGates"] = [{"conditionType": READY_GATE}]
    for container in spec["containers"]:
        container["image"] = "sandbox/pause"
        del container["readinessProbe"], container["livenessProbe"], container["resources"]
    return made


def _web() -> dict[str, Any]:
    template = pod("", 3)
    spec = {"metadata": {"labels": {"app": "web"}}, "spec": template["spec"]}
    return {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": spec}


@pytest.fixture(scope="module")
def drained_cluster() -> Iterator[Cluster]:
    """A sandbox of these tests' own: they take the kinds away."""
    with two_node_cluster() as cluster:
        yield cluster


@pytest.fixture
def installed(drained_cluster: Cluster, tmp_path: Path) -> Iterator[Installed]:
    """topomend as it is deployed."""
    made = Installed(drained_cluster, tmp_path)
    try:
        made.install()
        yield made
    finally:
        for log in sorted(tmp_path.glob("operator-*.log")):
            print(f"{log.name}:\n{log.read_text()}")
        made.uninstall()


@pytest.fixture
def loaded(installed: Installed) -> Installed:
    """The same at work."""
    installed.load()
    return installed
