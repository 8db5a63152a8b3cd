"""Where a kubelet can be asked. A real one's answer, certificate and rights: tests/deploy/test_kubelet_configz."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from topomend.kube.access import Access
from topomend.kube.errors import Unanswered
from topomend.kube.kubelet import KubeletClient

NOBODY = Access("api", 443, "", None, lambda: "token")


@pytest.mark.parametrize("address", ["", "here", ":10250", "10.0.0.1:", "10.0.0.1:http", "10.0.0.1:0", "h:70000"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        KubeletClient(NOBODY, address, "n1")


@pytest.mark.parametrize("host", ["::1", "[::1]", "127.0.0.1"])
def test_nobody_at_the_address_is_an_answer_that_did_not_arrive(host: str) -> None:
    with pytest.raises(Unanswered, match=r"the kubelet at .*:9 does not answer: "):
        KubeletClient(NOBODY, f"{host}:9", "n1").configz()


def test_a_server_that_speaks_no_tls_gets_no_token() -> None:
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                heard.append(connection.recv(1 << 16))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        answering = pool.submit(answer)
        with pytest.raises(Unanswered, match="does not answer"):
            KubeletClient(NOBODY, f"127.0.0.1:{server.getsockname()[1]}", "n1").configz()
        answering.result()
    assert b"token" not in heard[0]


def test_an_authority_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unanswered, match="No such file"):
        KubeletClient(NOBODY, "127.0.0.1:9", "n1", tmp_path / "none").configz()
