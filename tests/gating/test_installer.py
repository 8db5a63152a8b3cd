"""What gates new pods on API servers of several releases: policies, the webhook, and the change from one to the other.

The API servers are real, and two of them serve one cluster during an upgrade, as the servers of a control plane do.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
import yaml
from deploy.manifests import objects
from tests.clusters import NODE_A, SHAPE, SYSTEM, pod
from tests.deploy.api import API, administrator, path_of
from tests.waiting import eventually

from topomend.gating import installer
from topomend.gating.definitions import NAMES, Installation
from topomend.gating.installer import NO_WEBHOOK, Installer
from topomend.kube.client import Client, connect
from topomend.kube.errors import TooManyRequests, Unanswered
from topomend.sandbox import NodeSpec, Sandbox
from topomend.sandbox.host import free_ports
from topomend.wire import group

pytestmark = pytest.mark.cluster

STEERED = "steered"
ADMISSION = "/apis/admissionregistration.k8s.io"
OURS = Installation(SYSTEM, "topomend-operator")
BEFORE_POLICIES = "1.35"
BETA = "--runtime-config=admissionregistration.k8s.io/v1beta1=true"
_names = (f"new-{number}" for number in count())


@contextmanager
def control_plane(*flags: str, emulated_version: str = "") -> Iterator[Sandbox]:
    """A cluster with everything installed, and a steered namespace whose steering is valid."""
    specs = [NodeSpec.of_shape(NODE_A, SHAPE)]
    with Sandbox.up(specs, api_server_flags=flags, emulated_version=emulated_version) as sandbox:
        admin = administrator(sandbox.kubeconfig)
        for item in objects():
            if item["kind"] not in ("DaemonSet", "Deployment"):
                eventually(path_of(item), lambda item=item: admin.apply(path_of(item), item).allowed)  # type: ignore[misc]
        labels = {group.STEER_LABEL: "enabled"}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STEERED, "labels": labels}}
        assert admin.apply(f"/api/v1/namespaces/{STEERED}", namespace).allowed
        until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        steering = {"apiVersion": group.API_VERSION, "kind": group.STEERING, "validUntil": until}
        steering["metadata"] = {"name": group.STEERING_NAME}  # type: ignore[assignment]
        path = f"/apis/{group.API_VERSION}/namespaces/{SYSTEM}/steerings/{group.STEERING_NAME}"
        assert admin.apply(path, steering).allowed
        yield sandbox


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, Sandbox]]:
    """One control plane with policies, in both versions, and one without."""
    with control_plane(BETA) as newer, control_plane(emulated_version=BEFORE_POLICIES) as older:
        yield {"newer": newer, "older": older}


@pytest.fixture
def newer(clusters: dict[str, Sandbox]) -> Sandbox:
    return as_installed(clusters["newer"])


@pytest.fixture
def older(clusters: dict[str, Sandbox]) -> Sandbox:
    return as_installed(clusters["older"])


def as_installed(sandbox: Sandbox) -> Sandbox:
    """The cluster as before any operator."""
    admin = administrator(sandbox.kubeconfig)
    for item in objects():
        if item["kind"] == "MutatingWebhookConfiguration":
            admin.delete(path_of(item))
    eventually("their policies to be gone", lambda: not policies(admin))
    for item in objects():
        if item["kind"] == "MutatingWebhookConfiguration":
            assert admin.apply(path_of(item), item).allowed
    secret = f"/api/v1/namespaces/{SYSTEM}/secrets/{OURS.service}"
    assert admin.patch(secret, {"data": None}).allowed
    return sandbox


@contextmanager
def another_api_server(sandbox: Sandbox, folder: Path) -> Iterator[Path]:
    """A further API server of the same cluster, which is newer: the kubeconfig for it."""
    (program,) = (
        program
        for program in json.loads((sandbox.folder / "plan.json").read_text())["programs"]
        if program["name"] == "kube-apiserver"
    )
    (port,) = free_ports(1)
    changed = [
        f"--secure-port={port}" if flag.startswith("--secure-port=") else flag
        for flag in program["argv"]
        if not flag.startswith("--emulated-version=")
    ]
    content = yaml.safe_load(sandbox.kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    kubeconfig = folder / "another.kubeconfig"
    kubeconfig.touch(0o600)
    kubeconfig.write_text(yaml.safe_dump(content))
    with (folder / "another.log").open("w") as log:
        process = subprocess.Popen(changed, cwd=sandbox.folder, stdout=log, stderr=log)
    try:
        admin = administrator(kubeconfig)
        eventually("the other API server", lambda: _answers(admin), 60)
        yield kubeconfig
    finally:
        process.kill()  # it would wait for its watches to end
        process.wait(30)


def _answers(admin: API) -> bool:
    try:
        return admin.get(f"{ADMISSION}/v1/mutatingadmissionpolicies").allowed
    except (OSError, ValueError):
        return False


@contextmanager
def installing(kubeconfig: Path, *, leads: bool = True, listens: bool = True) -> Iterator[Installer]:
    client = connect(str(kubeconfig))
    made = of_client(client, leads=leads, listens=listens)
    try:
        yield made
    finally:
        made.close()
        client.close()


def of_client(client: Client, *, leads: bool = True, listens: bool = True) -> Installer:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}" if listens else ""
    return Installer(client, OURS, address, f"https://{address}" if listens else "", lambda: leads)


def ensure(made: Installer) -> None:
    """As the operator does, which tries again where the API server has no answer yet."""
    eventually("the API server's answer", lambda: _is_ensured(made))


def _is_ensured(made: Installer) -> bool:
    try:
        made.ensure()
    except (TooManyRequests, Unanswered):
        return False
    return True


def gates(admin: API) -> list[str]:
    """The gates of a new pod in the steered namespace."""
    answer = admin.create(f"/api/v1/namespaces/{STEERED}/pods", pod(next(_names), 1), dry_run=True)
    assert answer.allowed, answer.message
    return [gate["name"] for gate in answer.content["spec"].get("schedulingGates", [])]


def webhooks(admin: API) -> Sequence[str]:
    """The definitions that have a webhook."""
    read = {name: admin.get(f"{ADMISSION}/v1/mutatingwebhookconfigurations/topomend-{name}") for name in NAMES}
    return [name for name, answer in read.items() if answer.content.get("webhooks")]


def policies(admin: API, version: str = "v1") -> Sequence[str]:
    """The definitions that have a policy and its binding."""
    paths = [f"{ADMISSION}/{version}/mutatingadmission{plural}/topomend-" for plural in ("policies", "policybindings")]
    return [name for name in NAMES if all(admin.get(path + name).allowed for path in paths)]


def test_where_policies_are_served_they_gate_and_no_webhook_is_written(newer: Sandbox) -> None:
    with installing(newer.kubeconfig) as made:
        admin = administrator(newer.kubeconfig)
        ensure(made)
        assert made.is_ready
        assert (made.why_not_gating(), webhooks(admin), policies(admin)) == ("", [], list(NAMES))
        eventually("the policy", lambda: gates(admin) == [group.FIT_GATE])
        path = f"{ADMISSION}/v1/mutatingwebhookconfigurations/topomend-steer"
        assert admin.delete(path).allowed
        eventually("the policy to go with its configuration", lambda: "steer" not in policies(admin))
        ensure(made)
        assert "steer" not in policies(admin)
        (again,) = (item for item in objects() if path_of(item) == path)
        assert admin.apply(path, again).allowed
        ensure(made)
        assert policies(admin) == list(NAMES)


def test_policies_that_are_served_as_v1beta1_alone_are_used_as_such(
    newer: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by API servers of 1.34 and 1.35 whose administrators turned them on. This one, of 1.36, serves v1 as well."""
    monkeypatch.setattr(installer, "_VERSIONS", ("v1beta1",))
    with installing(newer.kubeconfig) as made:
        admin = administrator(newer.kubeconfig)
        ensure(made)
        assert (made.why_not_gating(), webhooks(admin), policies(admin, "v1beta1")) == ("", [], list(NAMES))
        eventually("the policy", lambda: gates(admin) == [group.FIT_GATE])


def test_an_upgrade_and_a_downgrade_leave_no_new_pod_ungated_and_gate_none_twice(
    older: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installing(older.kubeconfig) as on_old:
        old = administrator(older.kubeconfig)
        ensure(on_old)
        assert (on_old.is_ready, on_old.why_not_gating(), webhooks(old)) == (True, "", list(NAMES))
        eventually("the webhook", lambda: gates(old) == [group.FIT_GATE])
        with another_api_server(older, tmp_path) as kubeconfig, installing(kubeconfig) as on_new:
            new = administrator(kubeconfig)
            assert gates(new) == [group.FIT_GATE]
            ensure(on_new)
            eventually("the policies", lambda: policies(new) == list(NAMES))
            assert webhooks(new) == list(NAMES), "servers of the release before still need them"
            for _ in range(20):
                assert (gates(old), gates(new)) == ([group.FIT_GATE], [group.FIT_GATE])
            monkeypatch.setattr(installer, "SETTLED_SECONDS", 0.0)
            ensure(on_new)
            assert webhooks(new) == []
            eventually("policies alone", lambda: gates(new) == [group.FIT_GATE])
        on_old._applied = None  # as an operator that has just begun to lead
        ensure(on_old)
        assert webhooks(old) == list(NAMES)
        eventually("the webhook again", lambda: gates(old) == [group.FIT_GATE])


def test_a_second_operator_serves_what_the_leading_one_has_issued(older: Sandbox) -> None:
    with installing(older.kubeconfig, leads=False) as follower:
        admin = administrator(older.kubeconfig)
        ensure(follower)
        assert not follower.is_ready
        assert webhooks(admin) == []
        with installing(older.kubeconfig) as leader:
            ensure(leader)
            eventually("the leader's webhook", lambda: gates(admin) == [group.FIT_GATE])
            ensure(follower)
            assert follower.is_ready
            leader._url, leader._applied = follower._url, None  # both are behind one address
            ensure(leader)
            assert leader._webhook is not None
            leader._webhook.close()
            leader._webhook = None
            eventually("the follower's webhook", lambda: gates(admin) == [group.FIT_GATE])


def test_an_operator_says_why_no_pod_is_gated(older: Sandbox) -> None:
    admin = administrator(older.kubeconfig)
    with installing(older.kubeconfig, listens=False) as made:
        ensure(made)
        assert (made.why_not_gating(), made.is_ready, webhooks(admin)) == (NO_WEBHOOK, True, [])
        assert gates(admin) == []
    with installing(older.kubeconfig) as made:
        secret = admin.get(f"/api/v1/namespaces/{SYSTEM}/secrets/{OURS.service}").content
        assert admin.delete(f"/api/v1/namespaces/{SYSTEM}/secrets/{OURS.service}").allowed
        ensure(made)
        assert "not found" in made.why_not_gating()
        assert made.is_ready, "the rest of the operator works"
        del secret["metadata"]["resourceVersion"], secret["metadata"]["uid"], secret["metadata"]["managedFields"]
        assert admin.create(f"/api/v1/namespaces/{SYSTEM}/secrets", secret).allowed
        assert admin.delete(f"{ADMISSION}/v1/mutatingwebhookconfigurations/topomend-brake").allowed
        ensure(made)
        assert made.why_not_gating() == "MutatingWebhookConfiguration topomend-brake is missing; apply deploy/ again"
