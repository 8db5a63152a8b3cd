"""How a kubelet is asked and whom it may be. A real one's answer: tests/deploy/programs/test_kubelet_configz."""

import functools
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.kube.certificates import Authority, Server, serving

from topomend.kube.connection.tls import trusting
from topomend.kube.errors import APIError, Forbidden, Refused, Unanswered
from topomend.kube.kubelet_client import KubeletClient


class Token:
    """Counts how often it was read, and whether it was given back."""

    def __init__(self) -> None:
        self.reads, self.forgotten = 0, 0

    def read(self, node_uid: str) -> str:
        self.reads += 1
        return f"token-{self.reads}-of-{node_uid}"

    def forget(self) -> None:
        self.forgotten += 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def of_the_cluster(cluster: Authority) -> Iterator[Server]:
    """A kubelet whose certificate the cluster signed for the node's name."""
    with serving(cluster.issue("n1", "DNS:n1")) as server:
        yield server


@pytest.fixture(scope="module")
def of_its_own(stranger: Authority) -> Iterator[Server]:
    """A kubelet whose certificate the cluster did not sign."""
    with serving(stranger.issue("n1", "DNS:n1")) as server:
        yield server


@pytest.fixture(autouse=True)
def _forget(of_the_cluster: Server, of_its_own: Server) -> None:
    for server in (of_the_cluster, of_its_own):
        server.status, server.body = 200, b'{"kubeletconfig": {}}'
        server.asked.clear()


def client(
    address: str, cluster: Authority, token: Token | None = None, *, ca: Path | None = None, must_verify: bool = False
) -> KubeletClient:
    tls = functools.partial(trusting, cluster.certificate)
    return KubeletClient(address, "n1", token or Token(), tls=tls, authority=ca, must_verify=must_verify)


# Where it is


@pytest.mark.parametrize("address", ["", ":10250", "10.0.0.1:", "10.0.0.1:http", "10.0.0.1:0", "h:70000"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is neither HOST nor HOST:PORT"):
        KubeletClient(address, "n1", Token())


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("127.0.0.1", "127.0.0.1:9"),
        ("127.0.0.1:7", "127.0.0.1:7"),
        ("::1", "[::1]:9"),
        ("[::1]", "[::1]:9"),
        ("[::1]:7", "[::1]:7"),
        ("::1:10250", "[::1]:10250"),
        ("localhost", "localhost:9"),
    ],
)
def test_a_port_in_the_address_counts_else_the_one_that_the_node_names(address: str, asked: str) -> None:
    """Ports at which nobody listens."""
    with pytest.raises(Unanswered) as failure:
        KubeletClient(address, "n1", Token()).configz("uid", 9)
    assert str(failure.value).startswith(f"the kubelet at {asked} does not answer: ")


def test_a_kubelet_with_an_ipv6_address_alone_is_verified_by_it(cluster: Authority) -> None:
    with serving(cluster.issue("v6", "IP:::1"), "::1") as server:
        answer = client("::1", cluster).configz("uid", server.port)
    assert (answer.content, answer.unverified) == ({}, "")


# Who it is


def test_a_certificate_of_the_clusters_authority_is_verified(cluster: Authority, of_the_cluster: Server) -> None:
    answer = client("127.0.0.1", cluster, must_verify=True).configz("uid", of_the_cluster.port)
    assert (answer.content, answer.unverified) == ({"kubeletconfig": {}}, "")
    assert of_the_cluster.asked == [("GET /configz HTTP/1.1", "Bearer token-1-of-uid")]


def test_what_another_authority_signed_is_read_and_said_to_be_unverified(
    cluster: Authority, of_its_own: Server
) -> None:
    answer = client("127.0.0.1", cluster).configz("uid", of_its_own.port)
    assert answer.content == {"kubeletconfig": {}}
    assert "certificate" in answer.unverified


def test_a_certificate_for_another_name_and_address_is_unverified(cluster: Authority) -> None:
    with serving(cluster.issue("n2", "DNS:n2")) as server:
        assert "mismatch" in client("127.0.0.1", cluster).configz("uid", server.port).unverified
        with pytest.raises(Unanswered, match="mismatch"):
            client("127.0.0.1", cluster, must_verify=True).configz("uid", server.port)


def test_where_it_must_be_verified_a_stranger_is_shown_no_token(cluster: Authority, of_its_own: Server) -> None:
    token = Token()
    with pytest.raises(Unanswered, match=r"its certificate is not trusted .*--kubelet-ca"):
        client("127.0.0.1", cluster, token, must_verify=True).configz("uid", of_its_own.port)
    assert (token.reads, of_its_own.asked) == (0, [])


def test_an_authority_that_is_named_is_trusted_beside_the_clusters(
    cluster: Authority, stranger: Authority, of_its_own: Server, of_the_cluster: Server
) -> None:
    for server in (of_its_own, of_the_cluster):
        asking = client("127.0.0.1", cluster, ca=stranger.certificate, must_verify=True)
        assert asking.configz("uid", server.port).unverified == ""


def test_an_authority_that_cannot_be_read_is_named(cluster: Authority, tmp_path: Path) -> None:
    with pytest.raises(Unanswered, match="No such file"):
        client("127.0.0.1:9", cluster, ca=tmp_path / "none").configz("uid")


def test_a_server_that_speaks_no_tls_gets_no_token(cluster: Authority) -> None:
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                heard.append(connection.recv(1 << 16))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        answering = pool.submit(answer)
        with pytest.raises(Unanswered, match="does not answer"):
            client(f"127.0.0.1:{server.getsockname()[1]}", cluster).configz("uid")
        answering.result()
    assert b"token" not in heard[0]


# What it answers


@pytest.mark.parametrize(("status", "kind"), [(401, Forbidden), (403, Forbidden), (405, Refused), (500, Refused)])
def test_a_refusal_gives_the_token_back_where_that_was_not_accepted(
    cluster: Authority, of_the_cluster: Server, status: int, kind: type[Refused]
) -> None:
    token = Token()
    of_the_cluster.status, of_the_cluster.body = status, b"no"
    with pytest.raises(kind, match=f"{status}: no"):
        client("127.0.0.1", cluster, token).configz("uid", of_the_cluster.port)
    assert token.forgotten == (kind is Forbidden)


def test_an_answer_that_is_no_json_or_too_long_is_none(cluster: Authority, of_the_cluster: Server) -> None:
    for body, words in ((b"{", "invalid JSON"), (b" " * (1 << 21), "longer than")):
        of_the_cluster.body = body
        with pytest.raises(Unanswered, match=words):
            client("127.0.0.1", cluster).configz("uid", of_the_cluster.port)


def test_without_a_token_nothing_is_asked(cluster: Authority, of_the_cluster: Server) -> None:
    class Broken(Token):
        def read(self, node_uid: str) -> str:
            del node_uid
            raise APIError("none to be had")

    with pytest.raises(APIError, match="none to be had"):
        client("127.0.0.1", cluster, Broken()).configz("uid", of_the_cluster.port)
    assert of_the_cluster.asked == []
