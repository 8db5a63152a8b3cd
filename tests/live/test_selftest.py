"""The self-test on real kubelets with real agents: all agree, a lie is found, and nothing is ever left."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.intercepted import Intercepted
from tests.live.conftest import ROOT, install_kinds, start_agent
from tests.processes import end
from tests.waiting import eventually, stretched

from topomend.cli.kubectl_numa import numa
from topomend.cli.numa.cluster import cluster as cluster_module
from topomend.kube.client import Client, connect
from topomend.kube.errors import Refused, Untrusted
from topomend.kube.resources import (
    NAMESPACES,
    NODE_TOPOLOGIES,
    NODES,
    PODS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
)
from topomend.runtime.manifests import documents
from topomend.sandbox import NodeSpec, Sandbox
from topomend.selftest.cases import choose
from topomend.selftest.manifest import pod_manifest
from topomend.wire.group import SELFTEST_LABEL
from topomend.wire.node import read_node
from topomend.wire.published.node_topology import read_node_topology

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

GPUS = "device:vendor.com/gpu@0=1,1=1"

SPECS = (
    NodeSpec.of_shape(
        "none",
        "sockets:1 numa:2 cores:4 memory:4Gi",
        cpu_manager_policy="none",
        memory_manager_policy="None",
    ),
    NodeSpec.of_shape(
        "best-effort",
        "sockets:2 numa:1 cores:4 threads:2 memory:6Gi device:vendor.com/gpu@1=2",
        topology_manager_policy="best-effort",
    ),
    NodeSpec.of_shape(
        "restricted",
        f"sockets:2 numa:2 cores:2 threads:2 memory:4Gi hugepages-2Mi:64 {GPUS}",
        topology_manager_policy="restricted",
    ),
    NodeSpec.of_shape(
        "single",
        f"sockets:1 numa:2 cores:6 memory:8Gi {GPUS} device:vendor.com/nic@1=1",
        topology_manager_policy="single-numa-node",
    ),
    NodeSpec.of_shape(
        "whole-pods",
        f"sockets:2 numa:1 cores:6 memory:8Gi {GPUS}",
        topology_manager_policy="single-numa-node",
        topology_manager_scope="pod",
    ),
)
"""Each policy, both scopes, both managers off and on, devices, huge pages."""

LIAR = NodeSpec.of_shape("liar", "sockets:1 numa:2 cores:4 memory:4Gi", topology_manager_policy="restricted")
"""Its agent reads a configuration that its kubelet does not run with."""

PATIENCE = 300
"""Seconds for each step: more than any takes, for a busy machine must not make an answer unsure."""

TENANT = "tenant-of-single"


@dataclass(frozen=True)
class World:
    """The sandbox, and its administrator."""

    sandbox: Sandbox
    client: Client

    def command(self, *arguments: str) -> list[str]:
        # As from a terminal: whoever runs the tests in the background may ignore these signals.
        signals = "".join(f"signal.signal({number:d}, signal.SIG_DFL); " for number in (signal.SIGTERM, signal.SIGHUP))
        heeding = f"import signal; {signals}signal.signal(signal.SIGINT, signal.default_int_handler); "
        plugin = f"{heeding}from topomend.cli.kubectl_numa import main; main()"
        return [sys.executable, "-c", plugin, *self._words(arguments)]

    def start(self, *arguments: str, **streams: Any) -> subprocess.Popen[str]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), "PYTHONUNBUFFERED": "1"}
        return subprocess.Popen(self.command(*arguments), env=environment, text=True, **streams)

    def ask(self, *arguments: str) -> Result:
        return CliRunner().invoke(numa, self._words(arguments))

    def _words(self, arguments: Sequence[str]) -> list[str]:
        return ["selftest", *arguments, f"--timeout={PATIENCE}", "--kubeconfig", str(self.sandbox.kubeconfig)]

    def left(self) -> list[str]:
        """The namespaces of tests, under way or left."""
        return [each["metadata"]["name"] for each in self.client.list(NAMESPACES, labels=SELFTEST_LABEL).items]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Kubelets of SPECS and LIAR, each with its agent, and nothing left of any test."""
    folder = tmp_path_factory.mktemp("agents")
    with Sandbox.up((*SPECS, LIAR), on_progress=print) as sandbox, ExitStack() as stack:
        client = connect(str(sandbox.kubeconfig))
        stack.callback(client.close)
        install_kinds(client)
        configuration = yaml.safe_load((sandbox.folder / "nodes" / LIAR.name / "kubelet" / "config.yaml").read_text())
        lie = folder / "lie.yaml"
        lie.write_text(yaml.safe_dump({**configuration, "topologyManagerPolicy": "best-effort"}))
        for spec in (*SPECS, LIAR):
            told = lie if spec is LIAR else None
            log = folder / f"{spec.name}.log"
            stack.callback(end, start_agent(sandbox, spec.name, log, told))
        world = World(sandbox, client)
        for spec in (*SPECS, LIAR):
            eventually(f"{spec.name} to be published", _plans(world, spec.name))
        yield world
        assert not world.left()


def _plans(world: World, node: str) -> Callable[[], bool]:
    return lambda: world.ask(node, "--dry-run").exit_code == 0


@pytest.fixture
def tenant(world: World) -> Iterator[str]:
    """A pod of somebody else on ``single``, which holds a device and CPUs."""
    resources = {"limits": {"cpu": "2", "memory": "1Gi", "vendor.com/nic": "1"}}
    spec = {"nodeName": "single", "containers": [{"name": "main", "image": "x", "resources": resources}]}
    content = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": TENANT}, "spec": spec}
    made = world.client.create(PODS, content, "default")
    eventually("it to be published", lambda: TENANT in str(world.client.get(NODE_TOPOLOGIES, "single")["status"]))
    yield TENANT
    world.client.delete(PODS, TENANT, "default", uid=made["metadata"]["uid"])
    eventually("it to be gone", lambda: TENANT not in str(world.client.get(NODE_TOPOLOGIES, "single")["status"]))


@pytest.fixture
def cordoned(world: World) -> Iterator[str]:
    """A node to which no scheduler binds a pod."""
    world.client.merge(NODES, "best-effort", {"spec": {"unschedulable": True}})
    yield "best-effort"
    world.client.merge(NODES, "best-effort", {"spec": {"unschedulable": None}})


@pytest.mark.night  # make e2e has the self-test as installed
def test_every_case_agrees_under_each_policy_on_a_busy_and_on_a_cordoned_node(
    world: World, tenant: str, cordoned: str, tmp_path: Path
) -> None:
    assert cordoned in [spec.name for spec in SPECS]
    reports = {spec.name: tmp_path / f"{spec.name}.yaml" for spec in SPECS}
    runs = {name: world.start(name, "--yes", "-o", "json", "--report", str(file)) for name, file in reports.items()}
    refused = dict[str, set[str]]()
    for name, run in runs.items():
        stdout, stderr = run.communicate(timeout=stretched(300))
        assert run.returncode == 0, (name, stdout, stderr)
        answer = json.loads(stdout)
        print(name, answer["counts"])
        assert answer["counts"] == {"agrees": len(answer["cases"]), "differs": 0, "unsure": 0, "notTried": 0}
        assert answer["notes"] == []
        refused[name] = {each["name"] for each in answer["cases"] if not each["happened"]["admitted"]}
        report = reports[name].read_text()
        assert tenant not in report
        assert {item["kind"] for item in documents(report)[0]["items"]} == {"Node", "NodeTopology"}
    assert refused["none"] == refused["best-effort"] == set()
    assert {"beyond", "device-1-beyond", "memory-beyond", "huge-pages-1-beyond"} <= refused["restricted"]
    assert "two-containers" in refused["whole-pods"] - refused["single"]
    assert not world.left()


def test_a_dry_run_creates_nothing_and_asks_nothing(world: World) -> None:
    before = world.client.newest_version(NAMESPACES)
    answer = json.loads(world.ask("single", "--dry-run", "-o", "json").stdout)
    assert [each["predicted"]["admitted"] for each in answer["cases"] if each["name"] in ("one-cpu", "beyond")] == [
        True,
        False,
    ]
    with world.client.watch_lines(NAMESPACES, before, 1) as lines:  # of the past it tells at once
        assert [line for line in lines if SELFTEST_LABEL.encode() in line] == []


def test_a_node_that_publishes_what_its_kubelet_does_not_do_is_found_out(world: World, tmp_path: Path) -> None:
    report = tmp_path / "report.yaml"
    answer = world.ask("liar", "--yes", "--report", str(report))
    assert answer.exit_code == 1, answer.output
    lines = [line for line in answer.stdout.splitlines() if line.startswith("beyond: ")]
    assert len(lines) == 1
    assert lines[0].startswith("beyond: predicted: admitted; what happened: refused, TopologyAffinityError: ")
    assert "one-cpu: " not in answer.stdout
    basis = {each["case"]: each for each in documents(report.read_text())[0]["selftest"]["predictedFrom"]}
    assert "beyond" in basis
    assert basis["beyond"]["nodeTopology"]["status"]["kubelet"]["topologyManagerPolicy"] == "best-effort"


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(each, marks=pytest.mark.night) for each in (signal.SIGTERM, signal.SIGHUP))],
    ids=["ctrl-c", "term", "hang-up"],
)
def test_an_interrupted_test_leaves_nothing_and_tells_what_it_has_found(world: World, number: signal.Signals) -> None:
    run = world.start("whole-pods", "--yes")
    assert run.stderr
    first = run.stderr.readline()  # a case has ended, and the next one is under way
    assert first.startswith("1/"), first
    run.send_signal(number)
    stdout, stderr = run.communicate(timeout=stretched(120))
    assert run.returncode == 3, (stdout, stderr)
    assert "note: interrupted: the other cases were not tried" in stderr
    assert "not tried" in stdout.splitlines()[-1]
    assert not world.left()


def test_whoever_cannot_be_asked_has_to_say_yes(world: World) -> None:
    answer = world.ask("single")
    assert answer.exit_code == 2
    assert "give --yes" in answer.stderr
    assert not world.left()


def test_whoever_says_no_has_nothing_created(world: World) -> None:
    ours, theirs = pty.openpty()
    try:
        run = world.start("single", stdin=theirs)
        os.write(ours, b"n\n")
        _, stderr = run.communicate(timeout=stretched(60))
    finally:
        os.close(ours)
        os.close(theirs)
    assert "Create " in stderr
    assert run.returncode == 1
    assert not world.left()


def test_an_image_that_cannot_be_pulled_is_said_and_changes_no_answer(world: World) -> None:
    answer = world.ask("none", "--yes", "--image", "Not/An/Image")
    assert answer.exit_code == 0, answer.output
    assert "note: the pods were admitted and do not start (InvalidImageName: " in answer.stderr


@contextmanager
def policy_against_tests(client: Client) -> Iterator[None]:
    """An admission policy of the cluster that refuses the pods of tests."""
    name = "no-selftest.example.com"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "validations": [
            {
                "expression": f"!has(object.metadata.labels) || !('{SELFTEST_LABEL}' in object.metadata.labels)",
                "message": "nobody tests here",
            }
        ],
    }
    version = VALIDATING_ADMISSION_POLICIES.api_version
    policy = {"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    binding = policy | {"kind": "ValidatingAdmissionPolicyBinding", "spec": bound}
    made = [
        (resource, client.create(resource, content))
        for resource, content in (
            (VALIDATING_ADMISSION_POLICIES, policy),
            (VALIDATING_ADMISSION_POLICY_BINDINGS, binding),
        )
    ]
    eventually("the policy to be in force", lambda: not _may_test(client))
    yield
    for resource, content in made:
        client.delete(resource, name, uid=content["metadata"]["uid"])
    eventually("the policy to be out of force", lambda: _may_test(client))


def _may_test(client: Client) -> bool:
    metadata = {"name": "tried", "labels": {SELFTEST_LABEL: "true"}}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    try:
        client.create(PODS, pod, "default", dry_run=True)
    except Refused:
        return False
    return True


def test_pods_that_the_cluster_does_not_let_in_are_unsure_and_say_why(world: World) -> None:
    with policy_against_tests(world.client):
        answer = world.ask("none", "--yes")
    assert answer.exit_code == 3, answer.output
    assert "one-cpu: the cluster refused to create the pod: " in answer.stdout
    assert "nobody tests here" in answer.stdout
    assert not world.left()


def test_every_pod_may_enter_a_namespace_of_the_level_restricted(world: World) -> None:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    content = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "level-", "labels": label}}
    made = world.client.create(NAMESPACES, content)
    name = made["metadata"]["name"]
    node = read_node(world.client.get(NODES, "single"))
    state = read_node_topology(world.client.get(NODE_TOPOLOGIES, "single"))
    cases = choose(state, node, {}).cases
    try:
        for case in cases:
            pod = pod_manifest(case, node, name, "any")
            eventually(f"{case.name} to be let in", lambda pod=pod: world.client.create(PODS, pod, name, dry_run=True))  # type: ignore[misc]
    finally:
        world.client.delete(NAMESPACES, name, uid=made["metadata"]["uid"])
    assert {"init-container", "sidecar", "devices"} <= {case.name for case in cases}


def test_an_api_server_that_is_no_longer_trusted_leaves_what_clean_deletes(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intercepted = Intercepted(world.client)
    sent = list[str]()

    def distrust_after_a_pod_was_deleted(method: str, target: str) -> None:
        sent.append(f"{method} {'a pod' if '/pods/' in target else target}")
        is_distrusted = "DELETE a pod" in sent and any(
            one.startswith("POST ") for one in sent[sent.index("DELETE a pod") :]
        )
        if is_distrusted:
            raise Untrusted(f"{method} {target}: the certificate has expired")

    intercepted.intercept = distrust_after_a_pod_was_deleted
    monkeypatch.setattr(cluster_module, "connect", lambda *_: intercepted)
    report = tmp_path / "report.yaml"
    answer = world.ask("none", "--yes", "--report", str(report))
    assert answer.exit_code == 3, answer.output
    assert documents(report.read_text())[0]["selftest"]["counts"]["notTried"] == 1
    assert "1 of 2 agree, 1 not tried" in answer.stdout
    assert "note: the other cases were not tried: POST " in answer.stderr
    (name,) = world.left()
    assert f"namespace {name} was not deleted" in answer.stderr
    assert "kubectl numa selftest --clean deletes it" in answer.stderr
    monkeypatch.undo()
    cleaned = world.ask("--clean", "--yes")
    assert (cleaned.exit_code, cleaned.stdout) == (0, f"{name} is deleted\n")
    assert world.ask("--clean", "--yes").stdout == "no test has left anything\n"


@contextmanager
def node_object(client: Client, name: str, *, system: str = "linux", ready: str = "True") -> Iterator[None]:
    """A Node without a kubelet."""
    metadata = {"name": name, "labels": {"kubernetes.io/os": system}}
    made = client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    condition = {"type": "Ready", "status": ready, "reason": "Test", "message": ""}
    client.patch_status(NODES, name, {"status": {"conditions": [condition]}})
    try:
        yield
    finally:
        client.delete(NODES, name, uid=made["metadata"]["uid"])


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"system": "windows"}, "ghost does not run Linux"),
        ({"ready": "False"}, "ghost is not Ready: its kubelet would not answer"),
        ({}, "ghost has no NodeTopology to predict from: see kubectl numa check"),
    ],
    ids=["Windows", "NotReady", "without agent"],
)
def test_a_node_that_cannot_be_tried_is_left_alone(world: World, node: dict[str, str], words: str) -> None:
    with node_object(world.client, "ghost", **node):
        answer = world.ask("ghost", "--yes")
    assert answer.exit_code == 3
    assert words in answer.stderr
    assert not world.left()


def test_a_node_that_is_not_there_is_named_with_the_nearest(world: World) -> None:
    answer = world.ask("singel", "--yes")
    assert answer.exit_code == 2
    assert "no node singel: did you mean single?" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name the NODE to try"),
        (("single", "--clean"), "give it without NODE"),
        (("single", "--dry-run", "--report", "report.yaml"), "give it without --dry-run"),
    ],
    ids=["no node", "clean one node", "report of nothing"],
)
def test_a_command_that_says_too_little_or_too_much_is_refused(
    world: World, arguments: tuple[str, ...], words: str
) -> None:
    answer = world.ask(*arguments)
    assert answer.exit_code == 2
    assert words in answer.stderr


def test_a_report_that_cannot_be_written_is_said_before_anything_is_created(world: World, tmp_path: Path) -> None:
    answer = world.ask("single", "--yes", "--report", str(tmp_path / "no" / "report.yaml"))
    assert answer.exit_code == 2
    assert "--report " in answer.stderr
    assert not world.left()
