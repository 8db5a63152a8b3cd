import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.discover.test_allocations import Kubelet
from tests.discover.test_kubelet_config import config
from tests.publish.test_node_feature import Server as FeatureServer
from tests.publish.test_publisher import Clock, Server, status

from topomend.agent import AgentSettings, run
from topomend.agent.health import Health
from topomend.agent.loop import DELAYS, _Agent, _Watcher
from topomend.discover.allocations import Allocations
from topomend.discover.assemble import Discovery, assemble
from topomend.discover.host import Host
from topomend.discover.kubelet_config import KubeletConfig
from topomend.kube.errors import APIError, ServerFailed, TooManyRequests, Unanswered, retry_after
from topomend.model.nodes.kubelet import DEFAULT_VERSION, KubeletSettings
from topomend.model.nodes.node_features import NodeFeatures
from topomend.model.shapes.shape import parse_shape
from topomend.publish.node_feature import NodeFeaturePublisher
from topomend.publish.publisher import NodeFacts, Publisher
from topomend.runtime.backoff import Retry


def test_each_failure_doubles_the_wait_up_to_ten_seconds_and_a_success_resets_it() -> None:
    retry = Retry(DELAYS)
    for number in range(30):
        delay = retry.failed(100.0)
        longest = min(10.0, 2.0**number)
        assert longest / 2 <= delay <= longest
        assert retry.until == 100.0 + delay
    retry.succeeded()
    assert retry.until == 0.0
    assert retry.failed(100.0) <= 1.0


def test_waits_differ_between_nodes() -> None:
    assert len({Retry(DELAYS).failed(0.0) for _ in range(20)}) > 10


def test_a_time_that_the_server_names_is_respected() -> None:
    assert Retry(DELAYS).failed(0.0, retry_after(TooManyRequests(429, "", "", retry_after=7.0))) == 7.0


def test_without_a_cluster_the_agent_ends_with_3_and_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert run(AgentSettings("n1")) == 3
    assert "set KUBECONFIG, or run in a pod with a service account" in caplog.text


@pytest.mark.parametrize("flag", ["--metrics-address", "--health-address"])
@pytest.mark.parametrize("address", ["here", "127.0.0.1:http", ":99999", "203.0.113.1:1"])
def test_an_address_that_cannot_be_listened_on_ends_the_agent_with_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, flag: str, address: str
) -> None:
    configure(tmp_path, monkeypatch)
    metrics, health = AgentSettings("n1", metrics_address=address), AgentSettings("n1", health_address=address)
    assert run(metrics if flag == "--metrics-address" else health) == 2
    assert f"{flag} {address} cannot be listened on" in caplog.text


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.0.0.1:http", ":10250"])
def test_what_is_no_kubelets_address_ends_the_agent_with_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    configure(tmp_path, monkeypatch)
    assert run(AgentSettings("n1", kubelet_address=address)) == 2
    assert f"the kubelet cannot be asked: '{address}' is neither HOST nor HOST:PORT" in caplog.text


def test_what_is_no_account_to_ask_as_ends_the_agent_with_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configure(tmp_path, monkeypatch)
    assert run(AgentSettings("n1", kubelet_address="127.0.0.1", kubelet_reader="reader")) == 2
    assert "'reader' is not NAMESPACE/NAME" in caplog.text


def test_the_kubelets_file_is_judged_by_the_version_of_the_node_unless_a_flag_names_another(tmp_path: Path) -> None:
    """Kubelets before 1.33 know the gate CPUManager; the newest does not start with it."""
    file = config(tmp_path, featureGates={"CPUManager": True})
    settings = AgentSettings("n1", kubelet_config=file, root=tmp_path)

    def read(watcher: _Watcher, version: str) -> tuple[str, str]:
        discovery, _ = watcher.look(NodeFacts("uid", version))
        (found,) = [each for each in discovery.conditions if each.type == "KubeletConfigRead"]
        return discovery.state.kubelet.version, found.reason

    watcher = _Watcher(settings, None)
    assert read(watcher, "") == (DEFAULT_VERSION, "Invalid")
    assert read(watcher, "v1.31.13") == ("v1.31.13", "Read")
    assert read(watcher, "v1.33.5") == ("v1.33.5", "Invalid")
    named = _Watcher(replace(settings, kubelet_version="v1.31.13"), None)
    assert read(named, "v1.33.5") == ("v1.31.13", "Read")


def test_a_kubelet_restarted_between_two_polls_or_after_an_outage_shows_once(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    first = Kubelet(tmp_path)
    watcher = _Watcher(AgentSettings("n1", pod_resources=first.socket, root=tmp_path / "root"), None)

    def restarted() -> list[bool]:
        watcher.look(NodeFacts("uid", "v1.36.3"))
        return [watcher.kubelet_restarted(), watcher.kubelet_restarted()]

    first.start()
    assert restarted() == [False, False], "its agent has just read the Node"
    first.stop()
    second = Kubelet(tmp_path)
    second.start()
    assert restarted() == [True, False]
    assert restarted() == [False, False]
    second.stop()
    assert restarted() == [False, False]
    third = Kubelet(tmp_path)
    third.start()
    assert restarted() == [True, False]
    third.stop()


def test_a_kubelet_that_starts_in_the_middle_of_a_poll_has_its_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    kubelets = [Kubelet(tmp_path), Kubelet(tmp_path)]
    watcher = _Watcher(AgentSettings("n1", pod_resources=kubelets[0].socket, root=tmp_path / "root"), None)
    running = KubeletSettings(topology_manager_policy="restricted")
    monkeypatch.setattr(watcher._config, "read", lambda _: KubeletConfig(running))
    kubelets[0].start()
    watcher.look(NodeFacts("uid", DEFAULT_VERSION))
    read = watcher._reader.read

    def start_meanwhile(**flags: bool) -> Allocations:
        nonlocal running
        kubelets[0].stop()
        kubelets[1].start()
        running = KubeletSettings(topology_manager_policy="best-effort")
        return read(**flags)

    monkeypatch.setattr(watcher._reader, "read", start_meanwhile)
    discovery, _ = watcher.look(NodeFacts("uid", DEFAULT_VERSION))
    kubelets[1].stop()
    assert discovery.state.kubelet.topology_manager_policy == "best-effort"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_a_signal_ends_the_agent_in_the_middle_of_a_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        configure(tmp_path, monkeypatch, listener.getsockname()[1])
        command = [str(Path(sys.executable).with_name("topomend")), "agent", "--node-name=n1"]
        with subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE, text=True) as agent:
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(1).startswith(b"G")  # the agent waits for an answer from here on
                agent.send_signal(number)
                _, log = agent.communicate(timeout=60)
    assert agent.returncode == 0
    assert "stopped by a signal" in log
    assert "not published" not in log


@pytest.mark.parametrize(
    "error", [ServerFailed(500, "InternalError", "conversion webhook failed"), Unanswered("timed out")]
)
def test_a_server_that_fails_for_another_object_leaves_the_node_topology_current(error: APIError) -> None:
    agent, server = _agent_with_features(error)
    assert agent.once() == 0
    assert server.object is not None
    ready, other = server.object["status"]["conditions"]
    assert (ready["status"], other["type"], other["reason"]) == ("True", "NodeFeaturePublished", "ServerFailed")
    assert not agent.health.unready()


def test_a_server_that_answers_nothing_at_all_ends_the_turn() -> None:
    agent, server = _agent_with_features(Unanswered("timed out"))
    agent.publisher.node()
    server.away = True
    assert agent.once() == 3
    assert agent.health.unready()


def _agent_with_features(error: APIError) -> tuple[_Agent, Server]:
    """An agent whose NodeFeature nobody takes, and the server of its NodeTopology."""

    server, clock, others = Server(), Clock(), FeatureServer()
    others.error = error
    features = NodeFeaturePublisher(others, "n1", "agents", clock.monotonic)
    found = assemble("n1", Host(parse_shape("cores:4").machine()), KubeletConfig(KubeletSettings()), Allocations())
    watcher = cast("_Watcher", SimpleNamespace(errors={}, look=lambda _: (found, status())))

    def publish(discovery: Discovery, status: Mapping[str, Any], node: NodeFacts) -> Mapping[str, Any]:
        return features.publish(lambda _: NodeFeatures({}, {}, {}), (discovery, ""), status, node)

    return _Agent(watcher, Publisher(server, "n1", clock.monotonic, clock.now), (publish,), Health(), None), server


def configure(folder: Path, monkeypatch: pytest.MonkeyPatch, port: int = 1) -> None:
    """Have KUBECONFIG name a cluster at this port. Nobody answers at port 1."""
    (folder / "kubeconfig").write_text(
        '{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],'
        f' "clusters": [{{"name": "c", "cluster": {{"server": "http://127.0.0.1:{port}"}}}}]}}'
    )
    monkeypatch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
