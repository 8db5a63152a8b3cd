"""Agents ask their kubelets for what they run with: a real kubelet's answer, and what the token shown to it is worth.

The sandbox's kubelets sign their own certificates, as most do. Other certificates: tests/kube/test_kubelet_client.py.
"""

import base64
import json
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.manifests import objects
from tests.deploy.api import API, Answer, path_of
from tests.deploy.conftest import token_of
from tests.deploy.programs.test_programs import TOPOMEND, environment
from tests.deploy.rights import may
from tests.waiting import eventually

from topomend.kube.errors import Forbidden, Refused
from topomend.kube.kubelet_client import KubeletClient
from topomend.model.condition import Condition
from topomend.sandbox import Sandbox
from topomend.wire.published.node_topology import read_conditions, read_node_topology

pytestmark = pytest.mark.cluster  # a real kubelet authenticates and authorizes through a real API server

NAMESPACE, READER = "topomend-agent", "topomend-kubelet-reader"
TOKENS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{READER}/token"
RIGHT = ("get", "", "nodes/configz")


class Kubelet:
    """The kubelet of a node, and the agent beside it."""

    def __init__(self, node: str, cluster: Sandbox, admin: API, agent: API, folder: Path) -> None:
        self._node, self._cluster, self._admin, self._folder = node, cluster, admin, folder
        self._environment = environment(agent, folder)
        parts = cluster.node(node)
        self.authority = f"--kubelet-ca={parts.kubelet_state}/pki/kubelet.crt"
        self.config = yaml.safe_load(self.inside("cat", str(parts.kubelet_config)))
        self.file = parts.kubelet_config

    def published(self, *flags: str, file: Path | None = None, port: int | None = None) -> tuple[Condition, str]:
        """What an agent with these flags says of the configuration, and the policy that it publishes."""
        return self.read(f"--kubelet-address=127.0.0.1{f':{port}' if port else ''}", *flags, file=file)

    def read(self, *flags: str, file: Path | None = None) -> tuple[Condition, str]:
        """The same of an agent that is not told to ask the kubelet."""
        socket = f"--pod-resources={self._cluster.node(self._node).pod_resources}"
        config = [f"--kubelet-config={file}"] if file else []
        self.inside(*TOPOMEND, "agent", "--node-name", self._node, "--once", socket, *config, *flags)
        content = self._admin.get(f"/apis/topomend.io/v1alpha1/nodetopologies/{self._node}").content
        condition = next(condition for condition in read_conditions(content) if condition.type == "KubeletConfigRead")
        return condition, read_node_topology(content).kubelet.topology_manager_policy

    def other_file(self) -> Path:
        """A configuration file that is not what the kubelet runs with."""
        path = self._folder / "config.yaml"
        path.write_text(yaml.safe_dump({**self.config, "topologyManagerPolicy": "best-effort"}))
        return path

    def inside(self, *command: str) -> str:
        """What a command that runs where the kubelet does says."""
        run = subprocess.run(
            [*self._cluster.exec_prefix(self._node), *command],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout


KubeletOf = Callable[[str], Kubelet]


@pytest.fixture(scope="module")
def kubelet_of(
    cluster: Sandbox, admin: API, agent_on: Callable[[str], API], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeletOf]:
    """Kubelets remember for a while what an account may do: where another answer is wanted, another is asked."""
    nodes = set()
    eventually("the reader's right", lambda: may(admin, NAMESPACE, READER, RIGHT, "default"))

    @cache
    def kubelet(node: str) -> Kubelet:
        nodes.add(node)
        return Kubelet(node, cluster, admin, agent_on(node), tmp_path_factory.mktemp(node))

    yield kubelet
    for node in nodes:
        admin.delete(f"/apis/topomend.io/v1alpha1/nodetopologies/{node}")


@pytest.fixture
def kubelet(kubelet_of: KubeletOf) -> Kubelet:
    return kubelet_of("split")


@pytest.fixture
def without_the_right(admin: API) -> Iterator[None]:
    """The reader's right is taken away, which the API server has noticed; it is back afterwards."""
    binding = next(
        item for item in objects() if item["kind"] == "ClusterRoleBinding" and item["metadata"]["name"] == READER
    )
    admin.delete(path_of(binding))
    eventually("the right's end", lambda: not may(admin, NAMESPACE, READER, RIGHT, "default"))
    yield
    assert admin.apply(path_of(binding), binding).allowed
    eventually("the right", lambda: may(admin, NAMESPACE, READER, RIGHT, "default"))


# What is read


def test_a_kubelet_that_signs_for_itself_is_read_and_said_to_be_unverified(kubelet: Kubelet) -> None:
    condition, policy = kubelet.published()
    assert (condition.status, condition.reason) == ("True", "ReadFromConfigz"), condition.message
    assert "its certificate was not verified (self-signed certificate" in condition.message
    assert "serverTLSBootstrap" in condition.message
    assert policy == "single-numa-node"


def test_a_kubelet_whose_authority_is_named_is_verified(kubelet: Kubelet) -> None:
    condition, policy = kubelet.published(kubelet.authority, "--kubelet-tls-verify=required")
    assert (condition.status, condition.reason, condition.message) == ("True", "ReadFromConfigz", "")
    assert policy == "single-numa-node"


def test_whoever_wants_kubelets_verified_gets_nothing_from_one_that_is_not(kubelet: Kubelet) -> None:
    condition, _ = kubelet.published("--kubelet-tls-verify=required")
    assert (condition.status, condition.reason) == ("False", "NotGiven")
    assert "its certificate is not trusted" in condition.message
    assert "--kubelet-ca" in condition.message
    condition, policy = kubelet.published("--kubelet-tls-verify=required", file=kubelet.file)
    assert (condition.status, condition.reason) == ("True", "ConfigzUnavailable")
    assert policy == "single-numa-node"


def test_of_a_kubelet_whose_process_is_seen_no_flag_stays_unknown(kubelet: Kubelet) -> None:
    """The agent runs beside the kubelet here, as it does outside a container; its flags override nothing."""
    condition, policy = kubelet.read(file=kubelet.file)
    assert (condition.status, condition.reason, condition.message) == ("True", "Read", "")
    assert policy == "single-numa-node"


def test_what_the_kubelet_runs_with_counts_where_its_file_says_otherwise(kubelet: Kubelet) -> None:
    condition, policy = kubelet.published(kubelet.authority, file=kubelet.other_file())
    assert (condition.status, condition.reason) == ("True", "FileContradicted")
    assert "the kubelet runs with another topologyManagerPolicy than its file says" in condition.message
    assert policy == "single-numa-node"


def test_a_kubelet_that_does_not_answer_is_named_and_the_file_is_read(kubelet: Kubelet) -> None:
    condition, policy = kubelet.published(port=1, file=kubelet.file)
    assert condition.reason == "ConfigzUnavailable"
    assert "the kubelet at 127.0.0.1:1 does not answer: Connection refused" in condition.message
    assert policy == "single-numa-node"


@pytest.mark.usefixtures("without_the_right")
def test_without_the_right_the_kubelet_refuses_and_what_to_do_is_said(kubelet_of: KubeletOf) -> None:
    kubelet = kubelet_of("pods")
    condition, _ = kubelet.published()
    assert (condition.status, condition.reason) == ("False", "NotGiven")
    assert "403" in condition.message
    assert "a kubelet before 1.33 wants nodes/proxy" in condition.message
    assert "docs/run/layouts.md" in condition.message
    condition, policy = kubelet.published(file=kubelet.file)
    assert (condition.status, condition.reason) == ("True", "ConfigzUnavailable")
    assert policy == "single-numa-node"


# What the token is worth


@pytest.fixture(scope="module")
def agent(agent_on: Callable[[str], API]) -> API:
    """The agent of ``worth``, a node without a kubelet."""
    return agent_on("worth")


def spec(admin: API, node: str = "worth", seconds: int = 600, **reference: Any) -> dict[str, Any]:
    """As the agent on ``node`` asks."""
    uid = admin.get(f"/api/v1/nodes/{node}").content["metadata"]["uid"]
    bound = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, **reference}
    return {"expirationSeconds": seconds, "boundObjectRef": bound}


def requested(api: API, content: dict[str, Any], path: str = TOKENS) -> Answer:
    return api.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": content})


@pytest.fixture
def stolen(admin: API, agent: API) -> API:
    """Who has the token that a kubelet was shown."""
    answer = requested(agent, spec(admin))
    assert answer.allowed, answer.message
    return admin.as_token(answer.content["status"]["token"])


def test_a_stolen_token_opens_nothing_of_a_kubelet_but_its_configuration(kubelet_of: KubeletOf, stolen: API) -> None:
    """Asked with that token where the kubelet listens, with curl's own words for each of its doors."""
    kubelet = kubelet_of("split")
    doors = {
        "/configz": 200, "/pods": 403, "/runningpods/": 403, "/stats/summary": 403, "/metrics": 403, "/logs/": 403,
        "/checkpoint/a/b/c": 403, "/run/a/b/c": 403, "/exec/a/b/c": 403, "/attach/a/b/c": 403, "/portForward/a/b": 403,
        "/containerLogs/a/b/c": 403, "/debug/pprof/": 403, "/debug/flags/v": 403,
    }  # fmt: skip
    answers = kubelet.inside(sys.executable, "-c", KNOCK, str(kubelet.config["port"]), stolen.token, *doors)
    assert json.loads(answers) == doors


KNOCK = """
import json, ssl, sys, urllib.error, urllib.request
port, token, *paths = sys.argv[1:]
def knock(path):
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as refusal:
        return refusal.code
print(json.dumps({path: knock(path) for path in paths}))
"""


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nodes", "/api/v1/nodes/split", "/api/v1/nodes/split/proxy/configz", "/api/v1/pods",
        "/api/v1/namespaces/topomend-agent/secrets", "/apis/topomend.io/v1alpha1/nodetopologies/split",
    ],
)  # fmt: skip
def test_a_stolen_token_reads_nothing_of_the_api(stolen: API, path: str) -> None:
    """Every right there is, as the authorizer has it: test_roles."""
    assert stolen.get(path).code == 403


def test_a_stolen_token_makes_no_other_token(admin: API, stolen: API) -> None:
    assert requested(stolen, spec(admin)).code == 403
    assert requested(stolen, {"expirationSeconds": 600}, TOKENS.replace(READER, "topomend-agent")).code == 403


def test_a_token_ends_after_ten_minutes_and_with_its_node(admin: API, agent_on: Callable[[str], API]) -> None:
    ending = agent_on("ending")
    answer = requested(ending, spec(admin, "ending"))
    token = answer.content["status"]["token"]
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["exp"] - claims["iat"] == 600
    assert claims["kubernetes.io"]["node"]["name"] == "ending"
    holder = admin.as_token(token)
    assert holder.get("/api/v1/nodes").code == 403
    admin.delete("/api/v1/nodes/ending")
    # The API server keeps what it knows of a token for ten seconds.
    eventually("the token's end", lambda: holder.get("/api/v1/nodes").code == 401)


# What an agent may ask for


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"seconds": 601}, "must live ten minutes"),
        ({"seconds": 1 << 31}, "must live ten minutes"),
        ({"uid": "5f5a4f3c-0000-4000-8000-000000000000"}, "own Node|does not match"),
        ({"uid": ""}, "own Node"),
        ({"name": "split", "uid": ""}, "own Node"),
        ({"kind": "Pod", "name": "agent-worth", "uid": ""}, "own Node|different serviceaccount"),
        ({"kind": "Secret", "name": "any", "uid": ""}, "own Node|not found"),
    ],
    ids=str,
)
def test_a_token_lives_no_longer_than_ten_minutes_and_than_the_agents_own_node(
    admin: API, agent: API, content: dict[str, Any], words: str
) -> None:
    answer = requested(agent, spec(admin, **content))
    assert not answer.allowed
    assert any(word in answer.message for word in words.split("|")), answer.message


def test_a_token_that_is_bound_to_nothing_or_lives_as_long_as_by_default_is_refused(admin: API, agent: API) -> None:
    assert "own Node" in requested(agent, {"expirationSeconds": 600}).message
    bound = {"boundObjectRef": spec(admin)["boundObjectRef"]}
    assert "must live ten minutes" in requested(agent, bound).message


def test_an_agent_gets_no_token_for_another_node(admin: API, agent: API) -> None:
    answer = requested(agent, spec(admin, "split"))
    assert answer.code == 403
    assert "own Node" in answer.message


@pytest.mark.parametrize("account", ["topomend-agent", "default"])
def test_of_no_other_account_an_agent_gets_a_token(admin: API, agent: API, account: str) -> None:
    assert requested(agent, spec(admin), TOKENS.replace(READER, account)).code == 403


def test_an_agents_account_without_a_node_gets_no_token(admin: API) -> None:
    """A copied secret of the account, say: its tokens name no node."""
    copied = admin.as_token(token_of(admin, NAMESPACE, "topomend-agent"))
    answer = requested(copied, spec(admin, "split"))
    assert answer.code == 403
    assert "own Node" in answer.message


def test_the_policy_is_about_agents_alone(admin: API) -> None:
    for account in (READER, "topomend-agent"):
        assert requested(admin, {"expirationSeconds": 7200}, TOKENS.replace(READER, account)).allowed


# The client itself


def test_a_token_that_the_api_server_does_not_know_is_refused_as_such(kubelet: Kubelet) -> None:
    class Unknown:
        forgotten = False

        def read(self, node_uid: str) -> str:
            del node_uid
            return "unknown"

        def forget(self) -> None:
            self.forgotten = True

    token = Unknown()
    client = KubeletClient("127.0.0.1", "split", token, tls=ssl.create_default_context)
    with pytest.raises(Forbidden) as refusal:
        client.configz("uid", kubelet.config["port"])
    assert isinstance(refusal.value, Refused)
    assert (refusal.value.status, token.forgotten) == (401, True)
