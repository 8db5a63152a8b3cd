"""The overlay that has agents ask their kubelets for what they run with: its one right, and a real kubelet's answer."""

import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from tests.deploy.api import API, path_of
from tests.deploy.conftest import wait_until
from tests.deploy.manifests import DEPLOY
from tests.deploy.test_programs import TOPOMEND, environment
from tests.deploy.test_roles import AGENT, granted, may

from topomend.sandbox import Sandbox
from topomend.wire.node_topology import Condition, read_conditions, read_node_topology

pytestmark = pytest.mark.cluster  # a real kubelet authenticates and authorizes through a real API server

OVERLAY = DEPLOY / "overlays" / "kubelet-configz"
ACCOUNT = ("topomend-agent", "topomend-agent")
ROLE = list(yaml.safe_load_all((OVERLAY / "role.yaml").read_text()))


class Kubelet:
    """The kubelet of a node, and the agent beside it."""

    def __init__(self, node: str, cluster: Sandbox, admin: API, agent: API, folder: Path) -> None:
        self._node, self._cluster, self._admin, self._folder = node, cluster, admin, folder
        self._environment = environment(agent, folder)
        parts = cluster.node(node)
        self.authority = f"--kubelet-ca={parts.kubelet_state}/pki/kubelet.crt"
        self.config = yaml.safe_load(self._inside("cat", str(parts.kubelet_config)))
        self.file = parts.kubelet_config

    def published(self, *flags: str, file: Path | None = None, port: int | None = None) -> tuple[Condition, str]:
        """What an agent with these flags says of the configuration, and the policy that it publishes."""
        return self.read(f"--kubelet-address=127.0.0.1:{port or self.config['port']}", *flags, file=file)

    def read(self, *flags: str, file: Path | None = None) -> tuple[Condition, str]:
        """The same of an agent that is not told to ask the kubelet."""
        socket = f"--pod-resources={self._cluster.node(self._node).pod_resources}"
        config = f"--kubelet-config={file or self.file}"
        self._inside(*TOPOMEND, "agent", "--node-name", self._node, "--once", socket, config, *flags)
        content = self._admin.get(f"/apis/topomend.io/v1alpha1/nodetopologies/{self._node}").content
        condition = next(each for each in read_conditions(content) if each.type == "KubeletConfigRead")
        return condition, read_node_topology(content).kubelet.topology_manager_policy

    def other_file(self) -> Path:
        """A configuration file that is not what the kubelet runs with."""
        path = self._folder / "config.yaml"
        path.write_text(yaml.safe_dump({**self.config, "topologyManagerPolicy": "best-effort"}))
        return path

    def _inside(self, *command: str) -> str:
        run = subprocess.run(
            [*self._cluster.exec_prefix(self._node), *command],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
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
def role(admin: API) -> Iterator[None]:
    """The overlay's right, which the API server has noticed; gone afterwards."""
    for item in ROLE:
        assert admin.apply(path_of(item), item).allowed
    right = ("get", "", "nodes/configz")
    wait_until(lambda: may(admin, *ACCOUNT, right, "default"), "the right")
    yield
    for item in reversed(ROLE):
        admin.delete(path_of(item))
    wait_until(lambda: not may(admin, *ACCOUNT, right, "default"), "the right's end")


@pytest.mark.usefixtures("role")
def test_the_overlay_grants_one_right_more_and_no_other(admin: API) -> None:
    assert granted(admin, *ACCOUNT, "default") == AGENT | {"nodes/configz": "get"}


def test_of_a_kubelet_whose_process_is_seen_no_flag_stays_unknown(kubelet: Kubelet) -> None:
    """The agent runs beside the kubelet here, as it does outside a container; its flags override nothing."""
    condition, policy = kubelet.read()
    assert (condition.status, condition.reason, condition.message) == ("True", "Read", "")
    assert policy == "single-numa-node"


def test_without_the_right_the_kubelet_refuses_and_the_file_is_read(kubelet_of: KubeletOf) -> None:
    kubelet = kubelet_of("pods")
    condition, policy = kubelet.published(kubelet.authority)
    assert (condition.status, condition.reason) == ("True", "ConfigzUnavailable")
    assert "403" in condition.message
    assert "needs the right nodes/configz (deploy/overlays/kubelet-configz)" in condition.message
    assert policy == "single-numa-node"


@pytest.mark.usefixtures("role")
def test_what_the_kubelet_runs_with_is_read_from_it(kubelet: Kubelet) -> None:
    condition, policy = kubelet.published(kubelet.authority)
    assert (condition.status, condition.reason, condition.message) == ("True", "ReadFromConfigz", "")
    assert policy == "single-numa-node"


@pytest.mark.usefixtures("role")
def test_what_the_kubelet_runs_with_counts_where_its_file_says_otherwise(kubelet: Kubelet) -> None:
    condition, policy = kubelet.published(kubelet.authority, file=kubelet.other_file())
    assert (condition.status, condition.reason) == ("True", "FileContradicted")
    assert "the kubelet runs with another topologyManagerPolicy than its file says" in condition.message
    assert policy == "single-numa-node"


@pytest.mark.usefixtures("role")
def test_a_kubelet_whose_certificate_nobody_trusts_is_told_no_token(kubelet: Kubelet) -> None:
    condition, _ = kubelet.published()
    assert condition.reason == "ConfigzUnavailable"
    assert "its certificate is not trusted" in condition.message
    assert "--kubelet-ca" in condition.message


@pytest.mark.usefixtures("role")
def test_a_kubelet_that_does_not_answer_is_named_and_the_file_is_read(kubelet: Kubelet) -> None:
    condition, policy = kubelet.published(kubelet.authority, port=1)
    assert condition.reason == "ConfigzUnavailable"
    assert "the kubelet at 127.0.0.1:1 does not answer: Connection refused" in condition.message
    assert policy == "single-numa-node"
