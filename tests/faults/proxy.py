"""A proxy on loopback before an API server, which counts the writes that pass and can call out around any of them.

It speaks HTTP to its client and HTTPS to the server, one connection a client connection, and forwards the client's own
account. Streams (watches) pass chunk by chunk. Faults are calls at three moments of a request: before it is forwarded,
after it was forwarded and before the answer is read, and after the answer was handed to the client.
"""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from enum import Enum
from http.client import HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

CHUNK = 65536


class Moment(Enum):
    """When, in the course of one request."""

    BEFORE = "before it is forwarded"
    BETWEEN = "after it is forwarded, before its answer"
    AFTER = "after its answer"


@dataclass(frozen=True)
class Write:
    """One request that changes something: its number from 1, and what it is."""

    number: int
    method: str
    path: str


Fault = Callable[[Write, Moment], None]


class Proxy:
    """Forwards to the API server of ``kubeconfig``; ``written`` are the writes that it saw, but for those of
    ``uncounted`` kinds (plurals).

    ``fault`` is called at each moment of each write and may do anything, such as kill the client.
    """

    def __init__(self, kubeconfig: Path, folder: Path, uncounted: tuple[str, ...] = ("events",)) -> None:
        configuration = yaml.safe_load(kubeconfig.read_text())
        cluster = configuration["clusters"][0]["cluster"]
        self._server = urlsplit(cluster["server"])
        self._context = _tls_context(cluster)
        self.fault: Fault = lambda _, __: None
        self.written: list[Write] = []
        self._uncounted = uncounted
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, name="proxy", daemon=True)
        self._thread.start()
        self.kubeconfig = folder / "proxy.kubeconfig"
        cluster["server"] = f"http://127.0.0.1:{self._http.server_port}"
        for name in ("certificate-authority", "certificate-authority-data"):
            cluster.pop(name, None)
        self.kubeconfig.write_text(yaml.safe_dump(configuration))
        self.kubeconfig.chmod(0o600)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def count(self, method: str, path: str) -> Write | None:
        """The write that a request is; None for one that only reads, or that does not count."""
        if method == "GET" or any(f"/{plural}" in path for plural in self._uncounted):
            return None
        with self._lock:
            write = Write(len(self.written) + 1, method, path)
            self.written.append(write)
            return write

    def connect(self) -> HTTPSConnection:
        return HTTPSConnection(self._server.hostname or "", self._server.port, context=self._context)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _forward(self) -> None:
                with suppress(OSError):  # either side may hang up
                    _forward(proxy, self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _forward  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _forward(proxy: Proxy, handler: BaseHTTPRequestHandler) -> None:
    length = int(handler.headers.get("Content-Length") or 0)
    body = handler.rfile.read(length) if length else None
    write = proxy.count(handler.command, handler.path)
    if write:
        proxy.fault(write, Moment.BEFORE)
    connection = proxy.connect()
    try:
        connection.request(handler.command, handler.path, body, _end_to_end(handler.headers))
        answer = connection.getresponse()
        if write:
            proxy.fault(write, Moment.BETWEEN)
        _hand_over(handler, answer)
        if write:
            proxy.fault(write, Moment.AFTER)
    finally:
        connection.close()


def _end_to_end(headers: Message | Mapping[str, str]) -> dict[str, str]:
    hop_by_hop = {"connection", "host", "transfer-encoding", "accept-encoding", "keep-alive", "upgrade"}
    return {name: value for name, value in headers.items() if name.lower() not in hop_by_hop}


def _hand_over(handler: BaseHTTPRequestHandler, answer: HTTPResponse) -> None:
    """The answer, chunked: the length of a stream is not known."""
    handler.send_response(answer.status)
    for name, value in _end_to_end(dict(answer.getheaders())).items():
        if name.lower() != "content-length":
            handler.send_header(name, value)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    while chunk := answer.read1(CHUNK):
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        handler.wfile.flush()
    handler.wfile.write(b"0\r\n\r\n")
    handler.wfile.flush()


def _tls_context(cluster: dict[str, Any]) -> ssl.SSLContext:
    if "certificate-authority-data" in cluster:
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        return ssl.create_default_context(cadata=authority)
    return ssl.create_default_context(cafile=cluster["certificate-authority"])


def audited(log: Path) -> list[dict[str, Any]]:
    """The events of an API server's audit log, one a line."""
    return [json.loads(line) for line in log.read_text().splitlines() if line.strip()]
