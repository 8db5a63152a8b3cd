"""One table of kubeconfigs, each tried with every client against a real API server: agent, operator and plugin.

kubectl is tried beside them: what it takes and how it merges files is what is right.
"""

import base64
import json
import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.clusters import NODE_A, Cluster, pod
from tests.faults.proxy import Proxy
from tests.kube.certificates import Authority
from tests.kube.fronts import ConnectProxy, Door, connect_proxy, front
from tests.operator_process import Operator
from tests.seeds import SEED
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.controller.ingest import WatchEvent
from topomend.controller.own_objects import OwnObjects
from topomend.controller.watch_streams import WatchStreams
from topomend.kube.agent_client import AgentClient
from topomend.kube.client import Client, connect
from topomend.kube.connection.access import find_access
from topomend.kube.connection.kubeconfig import NotConfigured, load
from topomend.kube.errors import APIError
from topomend.kube.resources import NODES, Resource
from topomend.sandbox.releases.build import ensure_binary

pytestmark = pytest.mark.cluster

NAME = "api.internal"
"""A name that no resolver knows; the certificate of one front has no other."""

BASIC = f"Basic {base64.b64encode(b'me:pass word').decode()}"


@dataclass
class World:
    """The ways to one API server: fronts by name, their certificates' authority, a proxy, and the folder of files."""

    folder: Path
    authority: Authority
    cluster: Cluster
    token: str
    doors: dict[str, Door]
    fronts: dict[str, Proxy]
    proxy: ConnectProxy
    http_port: int
    runs: Iterator[int] = field(default_factory=count)

    @property
    def ca(self) -> str:
        return base64.b64encode(self.authority.certificate.read_bytes()).decode()

    def server(self, name: str = "plain", host: str = "127.0.0.1") -> str:
        return f"https://{host}:{self.fronts[name].port}"

    def verified(self, name: str = "plain", **fields: Any) -> dict[str, Any]:
        return {"server": self.server(name), "certificate-authority-data": self.ca, **fields}

    def client_certificate(self, name: str) -> tuple[Path, Path]:
        """Certificate and key of a client of this name."""
        self.authority.issue(name, f"DNS:{name}")
        return self.authority.folder / f"{name}.crt", self.authority.folder / f"{name}.key"

    def script(self, name: str, *lines: str) -> Path:
        """An exec plugin that runs these lines of shell."""
        path = self.folder / name
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o700)
        return path


Ways = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def world(two_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    authority = Authority.make(folder)
    kubeconfig = two_nodes.sandbox.kubeconfig
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    doors = {name: Door() for name in ("plain", "named", "certified", "six")}
    here = authority.issue("here", "IP:127.0.0.1", "IP:::1")
    with ExitStack() as stack:

        def opened(name: str, certificate: Path = here, **fields: Any) -> Proxy:
            return stack.enter_context(front(kubeconfig, folder, certificate, doors[name], **fields))

        fronts = {
            "plain": opened("plain"),
            "named": opened("named", authority.issue("named", f"DNS:{NAME}")),
            "certified": opened("certified", clients_of=authority),
            "six": opened("six", host="::1"),
        }
        # As kubectl proxy does: kubectl sends no credentials over plain http.
        http = Proxy(kubeconfig, folder, account=lambda _: {"Authorization": f"Bearer {token}"})
        stack.callback(http.close)
        proxy = stack.enter_context(connect_proxy(BASIC))
        for state in two_nodes.states.values():
            two_nodes.publish(state)
        yield World(folder, authority, two_nodes, token, doors, fronts, proxy, http.port)


def insecure(world: World) -> Ways:
    return {"server": world.server(), "insecure-skip-tls-verify": True}, {"token": world.token}


def authority_inline(world: World) -> Ways:
    return world.verified(), {"token": world.token}


def authority_in_a_file(world: World) -> Ways:
    return {"server": world.server(), "certificate-authority": "ca.crt"}, {"token": world.token}


def server_name(world: World) -> Ways:
    return world.verified("named", **{"tls-server-name": NAME}), {"token": world.token}


def insecure_with_a_server_name(world: World) -> Ways:
    cluster = {"server": world.server("named"), "insecure-skip-tls-verify": True, "tls-server-name": NAME}
    return cluster, {"token": world.token}


def certificate_inline(world: World) -> Ways:
    world.doors["certified"].names = {"inline"}
    files = world.client_certificate("inline")
    certificate, key = (base64.b64encode(file.read_bytes()).decode() for file in files)
    return world.verified("certified"), {"client-certificate-data": certificate, "client-key-data": key}


def certificate_in_files(world: World) -> Ways:
    world.doors["certified"].names = {"files"}
    certificate, key = world.client_certificate("files")
    return world.verified("certified"), {"client-certificate": certificate.name, "client-key": str(key)}


def certificate_and_key_in_one_file(world: World) -> Ways:
    """As kubelets keep theirs."""
    world.doors["certified"].names = {"one"}
    both = world.authority.issue("one", "DNS:one")
    return world.verified("certified"), {"client-certificate": str(both), "client-key": str(both)}


def token_file(world: World) -> Ways:
    (world.folder / "token").write_text(f"{world.token}\n")
    return world.verified(), {"tokenFile": "token", "token": "an old one"}


def exec_token(world: World) -> Ways:
    credential = json.dumps(
        {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": world.token}}
    )
    world.script("plugin", "echo unrelated words >&2", f"echo '{credential}'")
    exec_ = {"command": "./plugin", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    return world.verified(), {"exec": exec_}


def exec_certificate(world: World) -> Ways:
    """It gets its arguments and variables, and is told of the cluster."""
    world.doors["certified"].names = {"issued"}
    certificate, key = (file.read_text() for file in world.client_certificate("issued"))
    status = {"clientCertificateData": certificate, "clientKeyData": key}
    answer = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": status}
    (world.folder / "issued.json").write_text(json.dumps(answer))
    world.script(
        "certifier",
        '[ "$1" = "an argument" ] && [ "$VARIABLE" = "a value" ] || exit 3',
        f'echo "$KUBERNETES_EXEC_INFO" | grep -q \'"server": *"{world.server("certified")}"\' || exit 4',
        f'cat "{world.folder}/issued.json"',
    )
    exec_ = {
        "command": str(world.folder / "certifier"),
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "args": ["an argument"],
        "env": [{"name": "VARIABLE", "value": "a value"}],
        "provideClusterInfo": True,
    }
    return world.verified("certified"), {"exec": exec_}


def proxy(world: World) -> Ways:
    return world.verified(**{"proxy-url": f"http://me:pass%20word@127.0.0.1:{world.proxy.port}"}), {
        "token": world.token
    }


def proxy_and_server_name(world: World) -> Ways:
    url = f"http://me:pass%20word@127.0.0.1:{world.proxy.port}"
    return world.verified("named", **{"proxy-url": url, "tls-server-name": NAME}), {"token": world.token}


def plain_http(world: World) -> Ways:
    return {"server": f"http://127.0.0.1:{world.http_port}"}, {"token": world.token}


def plain_http_without_a_scheme(world: World) -> Ways:
    return {"server": f"localhost:{world.http_port}"}, {"token": world.token}


def ipv6(world: World) -> Ways:
    return {"server": world.server("six", "[::1]"), "certificate-authority-data": world.ca}, {"token": world.token}


def password(world: World) -> Ways:
    world.doors["plain"].authorizations.add(BASIC)
    return world.verified(), {"username": "me", "password": "pass word"}


def impersonation(world: World) -> Ways:
    return world.verified(), {"token": world.token, "as": "somebody", "as-groups": ["system:masters"]}


ROWS: list[Callable[[World], Ways]] = [
    insecure,
    authority_inline,
    authority_in_a_file,
    server_name,
    insecure_with_a_server_name,
    certificate_inline,
    certificate_in_files,
    certificate_and_key_in_one_file,
    token_file,
    exec_token,
    exec_certificate,
    proxy,
    proxy_and_server_name,
    plain_http,
    plain_http_without_a_scheme,
    ipv6,
    password,
    impersonation,
]


def config(cluster: dict[str, Any], user: dict[str, Any], name: str = "c") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
    }


@pytest.fixture
def use(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Write kubeconfigs, and have the programs use them."""

    def written(*configs: dict[str, Any]) -> str:
        paths = [world.folder / f"kubeconfig-{number}" for number in range(len(configs))]
        for path, content in zip(paths, configs, strict=True):
            path.write_text(yaml.safe_dump(content))
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, paths)))
        return str(paths[0])

    return written


# What each client does with a kubeconfig


def agent(_: World, *flags: str) -> None:
    assert not flags, "an agent has no flags for this"
    with closing(AgentClient()) as client:
        assert client.node(NODE_A)["metadata"]["name"] == NODE_A


def operator(world: World, *flags: str) -> None:
    """Its client reads and writes, and its watches deliver what that changes.

    kopf has listed the node before that changes: so the change comes by its watch. aiohttp leaves the socket open of a
    connection that is not made yet when kopf ends.
    """
    assert not flags, "an operator has no flags for this"
    mark = f"run-{next(world.runs)}"
    arrived, listed, told = threading.Event(), threading.Event(), threading.Event()

    def is_marked(content: dict[str, Any]) -> bool:
        return bool(content["metadata"].get("annotations", {}).get("row") == mark)

    def see(event: WatchEvent) -> None:
        if is_marked(event.content):
            arrived.set()

    def tell(_: Resource, content: dict[str, Any], is_deleted: bool) -> None:
        listed.set()
        if is_marked(content) and not is_deleted:
            told.set()

    with closing(connect()) as client:
        streams = WatchStreams(client, see, lambda: None)
        own_objects = OwnObjects(client.access, "default", ((NODES, NODE_A),), tell)
        streams.start()
        own_objects.start()
        try:
            eventually("every kind to be watched", streams.are_up)
            eventually("kopf to list the node", listed.is_set)
            client.merge(NODES, NODE_A, {"metadata": {"annotations": {"row": mark}}})
            eventually("the change to arrive", arrived.is_set)
            eventually("kopf to tell of it", told.is_set)
        finally:
            streams.stop()
            own_objects.stop()


def plugin(_: World, *flags: str) -> None:
    result = CliRunner().invoke(numa, ["show", "-o", "name", *flags])
    assert result.exit_code == 0, result.output
    assert f"nodetopology.topomend.io/{NODE_A}" in result.output.split()


def kubectl(_: World, *flags: str) -> None:
    """The oracle: a row that it did not take would be no kubeconfig."""
    said = kubectl_says("get", "node", NODE_A, "-o", "name", *flags)
    assert said.stdout == f"node/{NODE_A}\n", said.stderr


def kubectl_says(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What the sandbox's own kubectl answers with the kubeconfig of the environment."""
    command = [str(ensure_binary(print)), "kubectl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


CLIENTS = [agent, operator, plugin, kubectl]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_every_kubeconfig_leads_every_client_to_the_cluster(
    row: Callable[[World], Ways], client: Callable[[World], None], world: World, use: Callable[..., str]
) -> None:
    for door in world.doors.values():
        door.sni.clear()
        door.seen.clear()
    world.proxy.connected.clear()
    use(config(*row(world)))
    client(world)
    seen = [headers for door in world.doors.values() for headers in door.seen]
    assert seen or row in (plain_http, plain_http_without_a_scheme)
    if row in (server_name, insecure_with_a_server_name, proxy_and_server_name):
        assert set(world.doors["named"].sni) == {NAME}
    assert bool(world.proxy.connected) == (row in (proxy, proxy_and_server_name))
    if row is impersonation:
        assert {(headers.get("Impersonate-User"), headers.get("Impersonate-Group")) for headers in seen} == {
            ("somebody", "system:masters")
        }


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_two_files_are_one_kubeconfig(client: Callable[[World], None], world: World, use: Callable[..., str]) -> None:
    """The first has the user, the second context and cluster, and a user of the same name that is nobody."""
    cluster, user = authority_in_a_file(world)
    first = {"users": [{"name": "c", "user": user}]}
    use(first, config(cluster, {"token": "nobody's"}))
    client(world)


def test_the_plugin_uses_the_context_and_the_file_that_flags_name(world: World, use: Callable[..., str]) -> None:
    good, bad = config(*authority_inline(world), name="good"), config({"server": "https://127.0.0.1:1"}, {}, "bad")
    both = {key: bad[key] + good[key] for key in ("clusters", "users", "contexts")} | {"current-context": "bad"}
    path = use(both)
    plugin(world, "--context", "good")
    os.environ["KUBECONFIG"] = "/nowhere"  # that of the fixture, which takes it back
    plugin(world, "--kubeconfig", path, "--context", "good")


@pytest.mark.parametrize(
    "verb",
    [
        ["show"],
        ["aligned", "-A"],
        ["explain", "pod/kubeconfigs"],
        ["fit", "-f", "{pod}"],
        ["relaunches"],
        ["export"],
        ["drain", "--dry-run"],
        ["check"],
    ],
    ids=lambda verb: verb[0],
)
def test_every_verb_works_without_verifying_the_server(
    verb: list[str], world: World, use: Callable[..., str], tmp_path: Path
) -> None:
    use(config(*insecure(world)))
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump(pod("kubeconfigs", 1)))
    made = world.cluster.create(pod("kubeconfigs", 1))
    try:
        result = CliRunner().invoke(numa, [part.format(pod=manifest) for part in verb])
    finally:
        world.cluster.remove(made)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    assert result.exit_code in (0, 1), result.output


def test_several_files_are_merged_as_kubectl_merges_them(use: Callable[..., str]) -> None:
    """Random files with few names, some of them with a mistake. What kubectl refuses may be refused otherwise."""
    chance = random.Random(f"{SEED} kubeconfigs")
    taken = 0
    for _ in range(15):
        configs = [some_config(chance) for _ in range(chance.randint(1, 3))]
        use(*configs)
        said = kubectl_says("config", "view", "--minify", "--raw", "-o", "json")
        paths = [Path(name) for name in os.environ["KUBECONFIG"].split(os.pathsep)]
        if said.returncode:
            continue
        try:
            chosen = load(paths).select()
        except NotConfigured as error:
            refusal = str(error)
        else:
            refusal = ""
        merged = json.loads(said.stdout)
        if not merged["clusters"]:  # kubectl prints it, and can ask nothing with it
            assert "cluster" in refusal, configs
            continue
        assert not refusal, configs
        taken += 1
        assert chosen.context == merged["current-context"], configs
        assert chosen.namespace == merged["contexts"][0]["context"].get("namespace", "default"), configs
        assert chosen.cluster.text("server") == merged["clusters"][0]["cluster"]["server"], configs
        users = merged["users"] or [{"user": {}}]
        assert chosen.user.text("username") == (users[0]["user"] or {}).get("username", ""), configs
    assert taken


def some_config(chance: random.Random) -> dict[str, Any]:
    """A kubeconfig with entries of few names, not all of which it names are there."""
    number = chance.randint(0, 999)
    parts: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    if chance.random() < 0.6:
        parts["current-context"] = chance.choice("ab")
    fields = {"cluster": {"server": f"https://s{number}"}, "user": {"username": f"u{number}"}, "context": {}}
    for kind, own in fields.items():
        names = [name for name in "abc" if chance.random() < 0.7]
        parts[f"{kind}s"] = [{"name": name, kind: own or some_context(chance)} for name in names]
    return parts


def some_context(chance: random.Random) -> dict[str, str]:
    fields = {"cluster": chance.choice("abc"), "user": chance.choice("abc"), "namespace": f"n{chance.randint(0, 9)}"}
    return {key: value for key, value in fields.items() if chance.random() < 0.9}


# What is replaced while a program runs


def test_a_token_file_and_a_certificate_are_read_again(world: World, use: Callable[..., str]) -> None:
    cluster, user = certificate_in_files(world)
    door = world.doors["certified"]
    use(config(cluster, user))
    with closing(AgentClient()) as first, closing(connect()) as second:
        first.node(NODE_A)
        second.get(NODES, NODE_A)
        world.authority.issue("renewed", "DNS:renewed")
        for ending in ("crt", "key"):
            (world.folder / f"renewed.{ending}").replace(world.folder / f"files.{ending}")
        door.names = {"renewed"}
        door.seen.clear()
        first.node(NODE_A)
        second.get(NODES, NODE_A)
        assert {headers["certificate"] for headers in door.seen} == {"renewed"}
    cluster, user = token_file(world)
    use(config(cluster, user))
    with closing(AgentClient()) as first, closing(connect()) as second:
        (world.folder / "token").write_text("nobody's")
        with pytest.raises(APIError, match="401 Unauthorized"):
            first.node(NODE_A)
        with pytest.raises(APIError, match="401 Unauthorized"):
            second.get(NODES, NODE_A)
        (world.folder / "token").write_text(world.token)
        first.node(NODE_A)
        second.get(NODES, NODE_A)


def test_what_an_exec_plugin_issued_is_issued_anew_once_it_has_expired(world: World, use: Callable[..., str]) -> None:
    """It issues a wrong token from its second call on, so a call that was not needed shows."""
    cluster, user = exec_token(world)
    calls, answer = world.folder / "calls", world.folder / "answer.json"

    def issue(token: str, seconds: float) -> None:
        expires = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"token": token, "expirationTimestamp": expires}
        credential = {"apiVersion": user["exec"]["apiVersion"], "kind": "ExecCredential", "status": status}
        answer.write_text(json.dumps(credential))

    calls.write_text("")
    world.script("plugin", f"echo >> {calls}", f"cat {answer}")
    issue(world.token, 3600)
    use(config(cluster, user))
    with closing(connect()) as client:
        for _ in range(3):
            client.get(NODES, NODE_A)
        assert calls.read_text() == "\n"
    issue(world.token, -60)
    calls.write_text("")
    with closing(connect()) as client:
        for _ in range(3):
            client.get(NODES, NODE_A)
        assert len(calls.read_text()) >= 3


def test_watches_begin_once_the_account_is_accepted_and_the_field_is_named_until_then(
    world: World, use: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster, user = token_file(world)
    (world.folder / "token").write_text("nobody's")
    path = use(config(cluster, user))
    client = Client(find_access())
    streams = WatchStreams(client, lambda _: None, lambda: None)
    streams.start()
    try:
        said = f"does not accept the account: tokenFile of user c (cluster c of {path}, context c)"
        eventually("the field to be named", lambda: said in caplog.text)
        (world.folder / "token").write_text(world.token)
        eventually("every kind to be watched", streams.are_up)
    finally:
        streams.stop()
        client.close()
    assert "nobody's" not in caplog.text


# As processes


def test_an_operator_that_does_not_verify_the_server_relaunches_a_refused_pod(
    world: World, fragmented: Cluster, use: Callable[..., str], start_operator: Callable[..., Operator]
) -> None:
    started = start_operator(kubeconfig=Path(use(config(*insecure(world)))))
    started.wait_until_it_watches()
    relaunched(fragmented, "insecure")


def test_an_operator_whose_certificate_is_replaced_goes_on(
    world: World, fragmented: Cluster, use: Callable[..., str], start_operator: Callable[..., Operator]
) -> None:
    """The front takes the old certificate no more, as an API server does once it has expired, and ends every watch."""
    door = world.doors["certified"]
    started = start_operator(kubeconfig=Path(use(config(*certificate_in_files(world)))))
    started.wait_until_it_watches()
    world.authority.issue("renewed", "DNS:renewed")
    for ending in ("crt", "key"):
        (world.folder / f"renewed.{ending}").replace(world.folder / f"files.{ending}")
    door.names = {"renewed"}
    door.seen.clear()
    assert world.fronts["certified"].cut()
    eventually("the watches to be back", lambda: world.fronts["certified"].streams("pods"), 60)
    relaunched(fragmented, "rotated")
    assert "renewed" in {headers["certificate"] for headers in door.seen}


def relaunched(cluster: Cluster, name: str) -> None:
    """Have a pod be refused, and wait until another runs in its place."""
    made = cluster.create(pod(name, 3, preferred=NODE_A))

    def runs_anew() -> bool:
        now = cluster.running(name)
        return now is not None and now["metadata"]["uid"] != made["metadata"]["uid"]

    eventually(f"{name} to run again", runs_anew, 60)


@pytest.mark.parametrize("broken", ["gone", "untrusted"])
def test_an_operator_that_cannot_use_its_kubeconfig_ends_with_one_line(
    broken: str, world: World, tmp_path: Path, use: Callable[..., str], start_operator: Callable[..., Operator]
) -> None:
    cluster, user = authority_inline(world)
    if broken == "gone":
        user = {"tokenFile": str(tmp_path / "gone")}
        expected = f"tokenFile of user c cannot be read: {tmp_path}/gone: No such file or directory"
    else:
        (tmp_path / "other").mkdir()
        other = Authority.make(tmp_path / "other").certificate.read_bytes()
        cluster["certificate-authority-data"] = base64.b64encode(other).decode()
        expected = "certificate-authority-data of the cluster must be the authority that signed it"
    path = use(config(cluster, user))
    started = start_operator(kubeconfig=Path(path))
    assert started.process.wait(240) == 3
    (line,) = started.text().splitlines()
    assert line.startswith("Error: ")
    assert path in line
    assert expected in line


def test_agent_and_plugin_say_the_same_about_a_kubeconfig_that_cannot_be_used(
    world: World, use: Callable[..., str]
) -> None:
    path = use(config({"server": world.server(), "certificate-authority": "gone.crt"}, {"token": world.token}))
    with pytest.raises(NotConfigured) as caught:
        AgentClient()
    result = CliRunner().invoke(numa, ["show"])
    assert result.exit_code == 3
    assert result.output == f"Error: {caught.value}\n"
    assert str(caught.value) == (
        f"{path}, context c: certificate-authority of cluster c cannot be read: {world.folder}/gone.crt: "
        "No such file or directory"
    )
