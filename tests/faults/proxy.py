"""A proxy on loopback before an API server that makes whatever can go wrong between it and a client.

It speaks HTTP to its client, or HTTPS where it is given a certificate, and HTTPS to the server, one connection a client
connection. It forwards the client's own account, unless ``account`` gives another. Four things can be set on it at any
time:

- ``fault`` is called around every write (before it is forwarded, before its answer is read, after the answer was handed
  over), and may do anything, such as kill the client; raising ``HangUp`` loses the answer;
- ``rules`` are asked before every request is forwarded: the first answer among theirs is given instead;
- ``rewrite`` is given every event of every watch, and may change or swallow it;
- ``cut``, ``stall`` and ``end`` act on the watches that are open.
"""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from enum import Enum
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET, AF_INET6, SHUT_RDWR
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

CHUNK = 65536

IDLE_SECONDS = 30.0
"""How long a client's connection may lie idle: less than the 90 s after which the API server closes one."""

OF_A_NAMESPACE = ("/api/v1/pods", "/apis/topomend.io/v1alpha1/relaunches")
"""The lists and watches of all namespaces that can be made those of one."""


class HangUp(ConnectionError):
    """Raised by a fault or a rule: the connection is closed, without an answer."""


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
    body: bytes = field(default=b"", repr=False)


Fault = Callable[[Write, Moment], None]


@dataclass(frozen=True)
class Request:
    """One request as it came. ``url`` is the path with its query; ``plural`` the last part of the path."""

    method: str
    url: str
    path: str
    query: Mapping[str, str]

    @property
    def plural(self) -> str:
        """What is listed or watched; of a request for one object, its name."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def watches(self) -> bool:
        """Whether a stream is asked for."""
        return self.method == "GET" and self.query.get("watch") == "true"

    def lists(self, plural: str) -> bool:
        """Whether these are asked for, and not to be watched."""
        return self.method == "GET" and not self.watches and self.plural == plural


@dataclass(frozen=True)
class Answer:
    """What the proxy answers by itself. One that is not ``complete`` ends with the connection."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True


Rule = Callable[[Request], Answer | None]
Account = Callable[[BaseHTTPRequestHandler], Mapping[str, str] | Answer]
"""The headers to add to a request by what its connection and its headers prove, or the answer to give instead."""

Rewrite = Callable[[Request, dict[str, Any]], dict[str, Any] | None]


def failure(status: int, reason: str, **headers: str) -> Answer:
    """A failure in the API's words."""
    return Answer(status, json.dumps(status_of(status, reason)).encode(), headers)


def status_of(code: int, reason: str) -> dict[str, Any]:
    """A metav1.Status."""
    message = f"{reason}, by the fault proxy"
    words = {"status": "Failure", "message": message, "reason": reason, "code": code}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, **words}


@dataclass
class Stream:
    """A watch that is open."""

    request: Request
    handler: BaseHTTPRequestHandler
    connection: HTTPSConnection
    lock: threading.Lock = field(default_factory=threading.Lock)
    stalled: bool = False
    ended: bool = False

    def write(self, data: bytes) -> None:
        """One more chunk; an empty one ends the answer."""
        _chunk(self.handler, data)

    def hang_up(self) -> None:
        """End both connections."""
        self.ended = True
        for connected in (self.handler.connection, self.connection.sock):
            with suppress(OSError):
                if connected is not None:  # nobody is connected any more, or yet
                    connected.shutdown(SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that was killed in mid-request is what a proxy of faults is for."""


def _server_at(host: str, handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None) -> _Server:
    kind = type("Server", (_Server,), {"address_family": AF_INET6 if ":" in host else AF_INET})
    server: _Server = kind((host, 0), handler)
    if tls:  # the handshake is the handler's, in its own thread
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server


class Proxy:
    """Forwards to the API server of ``kubeconfig``; ``written`` are the writes that it saw, but for those of
    ``uncounted`` kinds (plurals), and ``asked`` are all requests.

    With ``namespace``, lists and watches of all pods and records are made those of this one, so that several clients
    on one cluster do not meet. ``answers`` are the last answers to GETs, by their URL.
    """

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        uncounted: tuple[str, ...] = ("events",),
        namespace: str = "",
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        account: Account = lambda _: {},
    ) -> None:
        configuration = yaml.safe_load(kubeconfig.read_text())
        cluster = configuration["clusters"][0]["cluster"]
        self._server = urlsplit(cluster["server"])
        self._context = _tls_context(cluster)
        self.account = account
        self.fault: Fault = lambda _, __: None
        self.rules: list[Rule] = []
        self.rewrite: Rewrite = lambda _, event: event
        self.written: list[Write] = []
        self.asked: list[Request] = []
        self.answers: dict[str, bytes] = {}
        self._uncounted, self._namespace = uncounted, namespace
        self._streams: list[Stream] = []
        self._lock = threading.Lock()
        self._http = _server_at(host, self._handler(), tls)
        self._thread = threading.Thread(target=self._http.serve_forever, name="proxy", daemon=True)
        self._thread.start()
        self.kubeconfig = folder / "proxy.kubeconfig"
        self.port = self._http.server_port
        cluster["server"] = f"http://127.0.0.1:{self.port}"
        for name in ("certificate-authority", "certificate-authority-data"):
            cluster.pop(name, None)
        self.kubeconfig.write_text(yaml.safe_dump(configuration))
        self.kubeconfig.chmod(0o600)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)
        for stream in self.streams():
            stream.hang_up()

    def streams(self, plural: str = "") -> list[Stream]:
        """The open watches of a kind, or of all. One that was cut or ended is none, though its thread may still run."""
        with self._lock:
            alive = [stream for stream in self._streams if not stream.ended]
            return [stream for stream in alive if plural in ("", stream.request.plural)]

    def cut(self, plural: str = "") -> int:
        """Break the watches off, and say how many."""
        open_now = self.streams(plural)
        for stream in open_now:
            stream.hang_up()
        return len(open_now)

    def stall(self, plural: str = "") -> int:
        """Have nothing more come on the watches that are open, which stay so, and say how many."""
        open_now = self.streams(plural)
        for stream in open_now:
            stream.stalled = True
        return len(open_now)

    def end(self, plural: str, data: bytes = b"") -> int:
        """Send this on the watches, end them as a server does, and say how many."""
        open_now = self.streams(plural)
        for stream in open_now:
            with stream.lock, suppress(OSError):
                if data:
                    stream.write(data)
                stream.write(b"")
                stream.hang_up()
        return len(open_now)

    def count(self, method: str, path: str, body: bytes = b"") -> Write | None:
        """The write that a request is; None for one that only reads, or that does not count."""
        if method == "GET" or "dryRun=" in path or any(f"/{plural}" in path for plural in self._uncounted):
            return None
        with self._lock:
            write = Write(len(self.written) + 1, method, path, body)
            self.written.append(write)
            return write

    def forget(self) -> None:
        """Begin to count anew."""
        with self._lock:
            self.written.clear()
            self.asked.clear()
            self.answers.clear()

    def connect(self) -> HTTPSConnection:
        return HTTPSConnection(self._server.hostname or "", self._server.port, context=self._context)

    def take(self, method: str, url: str) -> Request:
        """A request, as it is to be forwarded."""
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        if self._namespace and parts.path in OF_A_NAMESPACE and "spec.nodeName" not in query.get("fieldSelector", ""):
            head, _, plural = parts.path.rpartition("/")
            parts = parts._replace(path=f"{head}/namespaces/{self._namespace}/{plural}")
        request = Request(method, parts.geturl(), parts.path, query)
        with self._lock:
            self.asked.append(request)
        return request

    def opened(self, stream: Stream) -> None:
        with self._lock:
            self._streams.append(stream)

    def closed(self, stream: Stream) -> None:
        with self._lock:
            self._streams.remove(stream)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = IDLE_SECONDS

            def setup(self) -> None:
                super().setup()
                self._connection = proxy.connect()

            def finish(self) -> None:
                self._connection.close()
                super().finish()

            def _forward(self) -> None:
                try:
                    _forward(proxy, self, self._connection)
                except (OSError, HTTPException):  # either side may hang up
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _forward  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _forward(proxy: Proxy, handler: BaseHTTPRequestHandler, connection: HTTPSConnection) -> None:
    length = int(handler.headers.get("Content-Length") or 0)
    body = handler.rfile.read(length) if length else b""
    request = proxy.take(handler.command, handler.path)
    own = next(filter(None, (rule(request) for rule in proxy.rules)), None)
    if own:
        _give(handler, own)
        return
    account = proxy.account(handler)
    if isinstance(account, Answer):
        _give(handler, account)
        return
    write = proxy.count(request.method, request.url, body)
    fault = proxy.fault  # the one that was set when the request came, however long it takes
    if write:
        fault(write, Moment.BEFORE)
    connection.request(request.method, request.url, body or None, {**_end_to_end(handler.headers), **account})
    answer = connection.getresponse()
    if write:
        fault(write, Moment.BETWEEN)
    _head(handler, answer.status, dict(answer.getheaders()))
    if request.watches and answer.status == 200:
        _hand_on(proxy, Stream(request, handler, connection), answer)
    else:
        _hand_over(proxy, request, handler, answer)
    if write:
        fault(write, Moment.AFTER)


def _end_to_end(headers: Message | Mapping[str, str]) -> dict[str, str]:
    hop_by_hop = {"connection", "host", "transfer-encoding", "accept-encoding", "keep-alive", "upgrade"}
    return {name: value for name, value in headers.items() if name.lower() not in hop_by_hop}


def _head(handler: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str]) -> None:
    """The answer's head: chunked, the length of a stream is not known."""
    handler.send_response(status)
    for name, value in _end_to_end(headers).items():
        if name.lower() != "content-length":
            handler.send_header(name, value)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()


def _hand_over(proxy: Proxy, request: Request, handler: BaseHTTPRequestHandler, answer: HTTPResponse) -> None:
    body = answer.read()
    if request.method == "GET" and answer.status == 200:
        proxy.answers[request.url] = body
    _chunk(handler, body)
    _chunk(handler, b"")


def _give(handler: BaseHTTPRequestHandler, own: Answer) -> None:
    _head(handler, own.status, {"Content-Type": "application/json", **own.headers})
    if own.body:
        _chunk(handler, own.body)
    if not own.complete:
        raise HangUp("as the rule asks")
    _chunk(handler, b"")


def _chunk(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    """One chunk of an answer; an empty one ends it."""
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
    handler.wfile.flush()


def _hand_on(proxy: Proxy, stream: Stream, answer: HTTPResponse) -> None:
    proxy.opened(stream)
    try:
        for line in _lines(answer):
            event = proxy.rewrite(stream.request, json.loads(line))
            with stream.lock:
                if event is not None and not stream.stalled and not stream.ended:
                    stream.write(json.dumps(event).encode() + b"\n")
        with stream.lock:
            if stream.stalled:
                raise HangUp("nothing came for long")
            if not stream.ended:
                stream.write(b"")
    finally:
        proxy.closed(stream)
    if stream.ended:
        raise HangUp("ended")


def _lines(answer: HTTPResponse) -> Iterator[bytes]:
    rest = b""
    while chunk := answer.read1(CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines


def _tls_context(cluster: dict[str, Any]) -> ssl.SSLContext:
    if "certificate-authority-data" in cluster:
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        return ssl.create_default_context(cadata=authority)
    return ssl.create_default_context(cafile=cluster["certificate-authority"])
