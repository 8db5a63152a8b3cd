"""What gates new pods on API servers of several releases: policies, the webhook, both, and the change between them.

The API servers are real, and two of them serve one cluster during an upgrade, as the servers of a control plane do.
"""

import base64
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.manifests import objects
from tests.clusters import COLLECTOR_SECONDS, NODE_A, SHAPE, SYSTEM, pod
from tests.deploy.api import API, administrator, have_default_account, path_of
from tests.deploy.conftest import token_of
from tests.intercepted import Intercepted
from tests.waiting import eventually, stretched

from topomend.controller.own_objects import OwnObjects
from topomend.gating import definitions, installer
from topomend.gating.certificates import renewed
from topomend.gating.definitions import NAMES, Installation
from topomend.gating.installer import NO_WEBHOOK, Installer
from topomend.gating.known_parameters import WATCHED, KnownParameters
from topomend.kube.client import Client, connect
from topomend.kube.errors import TooManyRequests, Unanswered
from topomend.runtime.http.server import Page
from topomend.runtime.http.webhook_server import Answers
from topomend.sandbox import NodeSpec, Sandbox
from topomend.sandbox.processes.host import free_ports
from topomend.wire import group

pytestmark = pytest.mark.cluster

STEERED = "steered"
ADMISSION = "/apis/admissionregistration.k8s.io"
OURS = Installation(SYSTEM, "topomend-operator")
BEFORE_POLICIES = "1.35"
BRAKED = "11111111-0000-0000-0000-000000000000"
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
        have_default_account(admin, f"/api/v1/namespaces/{STEERED}")
        write_steering(sandbox)
        yield sandbox


def write_steering(sandbox: Sandbox) -> None:
    """Have its namespaces steered for an hour. Creates the kind too where it is missing."""
    admin = administrator(sandbox.kubeconfig)
    (kind,) = (item for item in objects() if item["metadata"]["name"] == "steerings.topomend.io")
    assert admin.apply(path_of(kind), kind).allowed
    until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    steering = {"apiVersion": group.API_VERSION, "kind": group.STEERING, "validUntil": until}
    steering["metadata"] = {"name": group.STEERING_NAME}  # type: ignore[assignment]
    path = f"/apis/{group.API_VERSION}/namespaces/{SYSTEM}/steerings/{group.STEERING_NAME}"
    eventually("the steering", lambda: admin.apply(path, steering).allowed)


PATIENT_SECONDS = 30
"""How long API servers wait for a webhook here: one that stands still with the machine gates pods nonetheless."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait longer than the two seconds after which they create pods without it."""
    monkeypatch.setattr(definitions, "TIMEOUT_SECONDS", PATIENT_SECONDS)


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
    eventually("their policies to be gone", lambda: not policies(admin), COLLECTOR_SECONDS)
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
        process.wait(60)


def _answers(admin: API) -> bool:
    try:
        return admin.get(f"{ADMISSION}/v1/mutatingadmissionpolicies").allowed
    except OSError:
        return False


@contextmanager
def installing(kubeconfig: Path, *, leads: bool = True, listens: bool = True) -> Iterator[Installer]:
    client = connect(str(kubeconfig))
    known = KnownParameters(lambda: None)
    own_objects = OwnObjects(client.access, SYSTEM, WATCHED, known.told)
    made = of_client(client, known, own_objects.start, leads=leads, listens=listens)
    try:
        yield made
    finally:
        made.close()
        own_objects.stop()
        client.close()


def of_client(
    client: Client, known: KnownParameters, watch: Callable[[], None], *, leads: bool = True, listens: bool = True
) -> Installer:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}" if listens else ""
    url = f"https://{address}" if listens else ""
    return Installer(client, OURS, address, url, lambda: leads, parameters=known, watch=watch, took=lambda _: None)


def ensure(made: Installer) -> None:
    """As the operator does, which tries again where the API server has no answer yet."""
    eventually("the API server's answer", lambda: _is_ensured(made))


def _is_ensured(made: Installer) -> bool:
    try:
        made.ensure()
    except (TooManyRequests, Unanswered):
        return False
    return True


def gates(admin: API, content: dict[str, Any] | None = None) -> list[str]:
    """The gates of a new pod in the steered namespace; without ``content`` of one that a kubelet would align."""
    answer = admin.create(f"/api/v1/namespaces/{STEERED}/pods", content or pod(next(_names), 1), dry_run=True)
    assert answer.allowed, answer.message
    return [gate["name"] for gate in answer.content["spec"].get("schedulingGates", [])]


def small() -> dict[str, Any]:
    """A pod that no kubelet would align."""
    made = pod(next(_names), 1)
    del made["spec"]["containers"][0]["resources"]
    return made


@contextmanager
def limiting_webhook(folder: Path) -> Iterator[dict[str, Any]]:
    """The configuration of somebody else's webhook, which gives each new pod of a steered namespace limits."""
    pairs = renewed(None, ["127.0.0.1"], datetime.now(UTC))
    assert pairs is not None
    (folder / "pair.pem").write_bytes(pairs.key + pairs.certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "pair.pem")
    limits = {"limits": {"cpu": "1", "memory": "64Mi"}}
    patch = [{"op": "add", "path": "/spec/containers/0/resources", "value": limits}]

    def limited(body: bytes) -> Page:
        review = json.loads(body)
        answer = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch"}
        answer["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
        return Page(200, "application/json", json.dumps({**review, "request": None, "response": answer}).encode())

    server = Answers("127.0.0.1:0", {"/": limited}, tls, lambda _: None)
    webhook = {
        "name": "limits.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{server.port}/", "caBundle": pairs.as_secret()["ca.crt"]},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {group.STEER_LABEL: "enabled"}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
        "timeoutSeconds": PATIENT_SECONDS,
    }
    content = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    yield {**content, "metadata": {"name": "limits"}, "webhooks": [webhook]}
    server.close()


def webhooks(admin: API) -> Sequence[str]:
    """The definitions that have a webhook."""
    read = {name: admin.get(f"{ADMISSION}/v1/mutatingwebhookconfigurations/topomend-{name}") for name in NAMES}
    return [name for name, answer in read.items() if answer.content.get("webhooks")]


def asked(sandbox: Sandbox, definition: str) -> int:
    """How many pods the API server has asked the webhook about."""
    command = [*sandbox.kubectl_prefix(), "get", "--raw", "/metrics"]
    metrics = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sum(
        int(line.rpartition(" ")[2])
        for line in metrics.splitlines()
        if line.startswith("apiserver_admission_webhook_request_total{") and f'name="{definition}.' in line
    )


def write_brake(admin: API, *, listed: bool) -> None:
    """Have the brake list a controller, or no longer."""
    content = {"apiVersion": group.API_VERSION, "kind": group.BRAKE, "metadata": {"name": group.BRAKE_NAME}}
    path = f"/apis/{group.API_VERSION}/namespaces/{SYSTEM}/brakes/{group.BRAKE_NAME}"
    assert admin.apply(path, content).allowed
    assert admin.patch(path, {"owners": {BRAKED: "steered/ReplicaSet/storm" if listed else None}}).allowed


def policies(admin: API, version: str = "v1") -> Sequence[str]:
    """The definitions that have a policy and its binding."""
    paths = [f"{ADMISSION}/{version}/mutatingadmission{plural}/topomend-" for plural in ("policies", "policybindings")]
    return [name for name in NAMES if all(admin.get(path + name).allowed for path in paths)]


def test_where_policies_are_served_a_webhook_is_beside_steering_alone(newer: Sandbox) -> None:
    with installing(newer.kubeconfig) as made:
        admin = administrator(newer.kubeconfig)
        ensure(made)
        assert made.is_ready
        assert (made.why_not_gating(), webhooks(admin), policies(admin)) == ("", ["steer"], list(NAMES))
        eventually("the policy", lambda: gates(admin) == [group.FIT_GATE])
        path = f"{ADMISSION}/v1/mutatingwebhookconfigurations/topomend-steer"
        assert admin.delete(path).allowed
        eventually("the policy to go with its configuration", lambda: "steer" not in policies(admin), COLLECTOR_SECONDS)
        ensure(made)
        assert ("steer" in policies(admin), webhooks(admin), made.why_not_gating()) == (False, [], "")
        (again,) = (item for item in objects() if path_of(item) == path)
        assert admin.apply(path, again).allowed
        ensure(made)
        assert (webhooks(admin), policies(admin)) == (["steer"], list(NAMES))


def test_a_configuration_that_is_deleted_while_it_is_applied_stays_deleted(newer: Sandbox) -> None:
    admin = administrator(newer.kubeconfig)

    def delete_all(method: str, target: str) -> None:
        if method == "PATCH" and "/mutatingwebhookconfigurations/" in target:
            for name in NAMES:
                admin.delete(f"{ADMISSION}/v1/mutatingwebhookconfigurations/topomend-{name}")

    with installing(newer.kubeconfig) as made:
        made._client = Intercepted(made._client, delete_all)
        ensure(made)
    present = [admin.get(f"{ADMISSION}/v1/mutatingwebhookconfigurations/topomend-{name}").code for name in NAMES]
    assert present == [404] * len(NAMES)
    eventually("the policies to go with their configurations", lambda: not policies(admin), COLLECTOR_SECONDS)


def test_the_brake_has_a_webhook_beside_its_policy_while_it_lists_a_controller(
    newer: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installing(newer.kubeconfig) as made:
        admin = administrator(newer.kubeconfig)
        due = threading.Event()
        made._parameters._first_listed = due.set
        ensure(made)
        assert webhooks(admin) == ["steer"]
        write_brake(admin, listed=True)
        assert due.wait(stretched(30)), "the operator learns of the first controller at once"
        ensure(made)
        assert webhooks(admin) == ["steer", "brake"]
        write_brake(admin, listed=False)
        eventually("the list to be empty", lambda: not made._parameters.parameter("brake").owners)
        ensure(made)
        assert webhooks(admin) == ["steer", "brake"], "the next refused pod is likely soon"
        monkeypatch.setattr(installer, "SETTLED_SECONDS", 0.0)
        ensure(made)
        assert webhooks(admin) == ["steer"]


def test_beside_its_policy_the_webhook_is_asked_about_no_pod(newer: Sandbox) -> None:
    with installing(newer.kubeconfig) as made:
        admin = administrator(newer.kubeconfig)
        ensure(made)

        def is_asked() -> bool:
            before = asked(newer, "steer")
            assert gates(admin) == [group.FIT_GATE]
            return asked(newer, "steer") > before

        eventually("the webhook", lambda: gates(admin) == [group.FIT_GATE])
        eventually("the policy to gate first", lambda: not is_asked())
        before = asked(newer, "steer")
        assert all(gates(admin) == [group.FIT_GATE] for _ in range(20))
        assert asked(newer, "steer") == before


def test_a_pod_that_another_webhook_makes_one_to_be_aligned_is_gated(newer: Sandbox, tmp_path: Path) -> None:
    """The policies have seen it before, and one that did not match then is not run again."""
    admin = administrator(newer.kubeconfig)
    with installing(newer.kubeconfig) as made, limiting_webhook(tmp_path) as other:
        ensure(made)
        eventually("the policy", lambda: gates(admin) == [group.FIT_GATE])
        assert admin.apply(path_of(other), other).allowed
        try:
            eventually("both webhooks", lambda: gates(admin, small()) == [group.FIT_GATE])
        finally:
            assert admin.delete(path_of(other)).allowed
        eventually("the other's end", lambda: gates(admin, small()) == [])


def test_policies_are_installed_without_a_certificate_and_the_webhook_is_served_without_a_right_to_install(
    newer: Sandbox, tmp_path: Path
) -> None:
    admin = administrator(newer.kubeconfig)
    path = f"/api/v1/namespaces/{SYSTEM}/secrets/{OURS.service}"
    secret = admin.get(path).content
    assert admin.delete(path).allowed
    with installing(newer.kubeconfig) as made:
        ensure(made)
        assert (policies(admin), webhooks(admin), made.why_not_gating(), made.is_ready) == (list(NAMES), [], "", True)
        del secret["metadata"]["resourceVersion"], secret["metadata"]["uid"], secret["metadata"]["managedFields"]
        assert admin.create(path.rpartition("/")[0], secret).allowed
        ensure(made)
        assert webhooks(admin) == ["steer"]
    binding = next(item for item in objects() if path_of(item).endswith("clusterrolebindings/topomend-gating"))
    assert admin.delete(path_of(binding)).allowed
    try:
        content = yaml.safe_load(newer.kubeconfig.read_text())
        content["users"][0]["user"] = {"token": token_of(admin, SYSTEM, OURS.account)}
        account = tmp_path / "operator.kubeconfig"
        account.touch(0o600)
        account.write_text(yaml.safe_dump(content))
        with installing(account) as made:
            eventually("the right to be gone", lambda: _is_ensured(made) and "forbidden" in (made._problem or ""))
            assert made._webhook is not None
            assert (policies(admin), webhooks(admin)) == (list(NAMES), ["steer"]), "what was installed stays"
    finally:
        assert admin.apply(path_of(binding), binding).allowed


def test_policies_that_are_served_as_v1beta1_alone_are_used_as_such(
    newer: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by API servers of 1.34 and 1.35 whose administrators turned them on. This one, of 1.36, serves v1 as well."""
    monkeypatch.setattr(installer, "_VERSIONS", ("v1beta1",))
    with installing(newer.kubeconfig) as made:
        admin = administrator(newer.kubeconfig)
        ensure(made)
        assert (made.why_not_gating(), webhooks(admin), policies(admin, "v1beta1")) == ("", ["steer"], list(NAMES))
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
            assert webhooks(new) == ["steer"]
            assert all(gates(new) == [group.FIT_GATE] for _ in range(20))
        on_old._applied = None  # as an operator that has just begun to lead
        ensure(on_old)
        assert webhooks(old) == list(NAMES)
        eventually("the webhook again", lambda: gates(old) == [group.FIT_GATE])


STEERINGS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/steerings.topomend.io"


RESTARTS = 5


def test_a_steered_pod_is_gated_by_an_api_server_that_does_not_know_the_policies_parameters_yet(newer: Sandbox) -> None:
    """An API server looks a parameter's kind up when it starts, and then each 30 s: this one has started before it.

    Else it is a race that about every second start loses. On a slow machine the 30 s may be over: then it starts anew.
    """
    with installing(newer.kubeconfig) as made:
        ensure(made)
        eventually("the webhook", lambda: gates(administrator(newer.kubeconfig)) == [group.FIT_GATE])
        by_webhook = (_is_gated_by_the_webhook_once_restarted(newer, made) for _ in range(RESTARTS))
        assert any(by_webhook), "no policy has gated them"


def _is_gated_by_the_webhook_once_restarted(newer: Sandbox, made: Installer) -> bool:
    """Whether it was not the policy that gated new pods, all of which somebody has to gate."""
    admin = administrator(newer.kubeconfig)
    assert admin.delete(STEERINGS).allowed
    eventually("its kind to be gone", lambda: admin.get(STEERINGS).code == 404)
    newer.stop_api_server()
    newer.start_api_server()
    write_steering(newer)
    eventually("the webhook to know", lambda: made._parameters.parameter("steer").exists)
    before = asked(newer, "steer")
    assert all(gates(admin) == [group.FIT_GATE] for _ in range(20))
    return asked(newer, "steer") > before


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
            assert leader.certificate_expiry > time.time()
            assert follower.certificate_expiry == 0
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
