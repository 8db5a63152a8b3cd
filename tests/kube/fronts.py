"""What stands before a real API server: a front that asks who comes, and a proxy that has to be passed."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import yaml
from tests.faults.proxy import Answer, Proxy, failure
from tests.kube.certificates import Authority


@dataclass
class Door:
    """Who may pass a front: clients with a certificate of one of these names, or with one of these authorizations.

    They are the administrator afterwards. Others pass as the API server knows them.
    """

    names: set[str] = field(default_factory=set)
    authorizations: set[str] = field(default_factory=set)
    sni: list[str | None] = field(default_factory=list)
    seen: list[dict[str, str]] = field(default_factory=list)
    """The headers of every request, with the name in its client certificate as ``certificate``."""


@contextmanager
def front(
    kubeconfig: Path,
    folder: Path,
    certificate: Path,
    door: Door,
    *,
    host: str = "127.0.0.1",
    clients_of: Authority | None = None,
) -> Iterator[Proxy]:
    """A TLS front before the API server of the administrator's ``kubeconfig``, with this certificate.

    With ``clients_of`` it takes only clients with a certificate of this authority.
    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    tls.sni_callback = lambda _, name, __: door.sni.append(name)
    if clients_of:
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_verify_locations(clients_of.certificate)
    administrator = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]

    def account(handler: BaseHTTPRequestHandler) -> dict[str, str] | Answer:
        name = _common_name(handler.connection)
        authorization = handler.headers.get("Authorization", "")
        door.seen.append({**dict(handler.headers.items()), "certificate": name})
        if name in door.names or authorization in door.authorizations:
            return {"Authorization": f"Bearer {administrator}"}
        return {} if authorization else failure(401, "Unauthorized")

    proxy = Proxy(kubeconfig, folder, host=host, tls=tls, account=account)
    try:
        yield proxy
    finally:
        proxy.close()


def _common_name(connection: socket.socket) -> str:
    shown = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    subject = dict(pair[0] for pair in (shown or {}).get("subject", ()) if isinstance(pair[0], tuple))
    return str(subject.get("commonName", ""))


@dataclass
class ConnectProxy:
    """An HTTP proxy that only connects: the servers that it connected to, and the authorization that it wants."""

    port: int = 0
    connected: list[str] = field(default_factory=list)
    authorization: str = ""


@contextmanager
def connect_proxy(authorization: str = "") -> Iterator[ConnectProxy]:
    """Such a proxy on loopback."""
    proxy = ConnectProxy(authorization=authorization)
    listener = socket.create_server(("127.0.0.1", 0))
    proxy.port = listener.getsockname()[1]
    open_now: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                client, _ = listener.accept()
                open_now.append(client)
                threading.Thread(target=_pass_on, args=(proxy, client, open_now), daemon=True).start()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield proxy
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in open_now:
            _end(connection)


def _pass_on(proxy: ConnectProxy, client: socket.socket, open_now: list[socket.socket]) -> None:
    with suppress(OSError):
        head = b""
        while b"\r\n\r\n" not in head:
            some = client.recv(1)  # nothing of the tunnel's own bytes
            if not some:
                return
            head += some
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        method, target, _ = first.split(" ")
        if proxy.authorization and headers.get("proxy-authorization", "") != proxy.authorization.lower():
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            _end(client)
            return
        if method != "CONNECT":
            client.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            _end(client)
            return
        proxy.connected.append(target)
        host, _, port = target.rpartition(":")
        server = socket.create_connection((host.strip("[]"), int(port)))
        open_now.append(server)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        threading.Thread(target=_copy, args=(server, client), daemon=True).start()
        _copy(client, server)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while some := source.recv(65536):
            target.sendall(some)
    _end(source)
    _end(target)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
