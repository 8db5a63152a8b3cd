"""Unary gRPC calls over a unix socket: the part of gRPC that pod-resources needs.

h2 speaks HTTP/2. This module adds gRPC's five bytes before a message and its status after it
(github.com/grpc/grpc doc/PROTOCOL-HTTP2.md). The ``grpc`` library takes 17 MB more on every node, and the gRPC
libraries for asyncio do not bound the size of an answer. Decoding messages is left to ``pod_resources``.
"""

import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error

from topomend.base.plain_text import plain

_PREFIX_BYTES = 5
"""One byte says whether the message is compressed, four bytes hold its length, big-endian."""

_READ_BYTES = 1 << 16
_OK = "0"
_STATUSES = {"4": "DEADLINE_EXCEEDED", "8": "RESOURCE_EXHAUSTED", "12": "UNIMPLEMENTED", "14": "UNAVAILABLE"}


class CallFailed(Exception):
    """``method`` failed: no server, no answer in time, or an error. The text is one line."""

    def __init__(self, method: str, why: str) -> None:
        super().__init__(why)
        self.method = method


def call_all(path: Path, service: str, methods: Sequence[str], seconds: float, most: int) -> list[bytes]:
    """Call every method of a service at once with an empty request; the serialized answers in the same order.

    Each call opens a new connection to the socket ``path``: the server may have been restarted, and HTTP/2 keeps state
    of each call for as long as a connection lives. All calls together end after ``seconds``. An answer of more than
    ``most`` bytes is refused before it is read. Raises CallFailed.
    """
    http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    http.initiate_connection()
    answers = {_ask(http, f"/{service}/{method}"): _UnaryResponse(method, most) for method in methods}
    try:
        with _Connection(path, seconds) as connection:
            while not all(answer.ended for answer in answers.values()):
                connection.send(http.data_to_send())
                _take(http, connection.receive(), answers)
    except (OSError, H2Error) as error:
        unanswered = next(answer.method for answer in answers.values() if not answer.ended)
        raise CallFailed(unanswered, _words(error)) from error
    return [answer.message() for answer in answers.values()]


def _ask(http: H2Connection, path: str) -> int:
    """Begin a call; returns the id of its stream."""
    stream: int = http.get_next_available_stream_id()
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    http.send_headers(stream, headers)
    http.send_data(stream, bytes(_PREFIX_BYTES), end_stream=True)
    return stream


def _take(http: H2Connection, received: bytes, answers: Mapping[int, "_UnaryResponse"]) -> None:
    for event in http.receive_data(received):
        if isinstance(event, ConnectionTerminated):
            raise ConnectionAbortedError(f"the server ended the connection (HTTP/2 error {event.error_code})")
        stream = getattr(event, "stream_id", None)
        if not isinstance(stream, int) or stream not in answers:
            continue
        if isinstance(event, DataReceived) and event.flow_controlled_length:
            http.acknowledge_received_data(event.flow_controlled_length, stream)
        answers[stream].take(event)


class _Connection:
    """A connection to a unix socket with one deadline, ``seconds`` from now, for everything. Raises OSError."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._path, self._deadline = path, time.monotonic() + seconds
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> Self:
        try:
            self._wait_at_most()
            self._socket.connect(str(self._path))
        except OSError:
            self._socket.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, content: bytes) -> None:
        if content:
            self._wait_at_most()
            self._socket.sendall(content)

    def receive(self) -> bytes:
        self._wait_at_most()
        if not (received := self._socket.recv(_READ_BYTES)):
            raise ConnectionResetError("the server closed the connection")
        return received

    def _wait_at_most(self) -> None:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining)


class _UnaryResponse:
    """The answer to one call as far as it was received."""

    def __init__(self, method: str, most: int) -> None:
        self.method, self._most = method, most
        self._content = bytearray()
        self._headers: dict[str, str] = {}
        self.ended = False

    def take(self, event: Event) -> None:
        """Add an event to the answer. Raises CallFailed if it ends the call with an error."""
        if isinstance(event, ResponseReceived | TrailersReceived):
            self._headers.update((str(name), str(value)) for name, value in event.headers or ())
        elif isinstance(event, DataReceived):
            self._content += event.data or b""
            self._check_length()
        elif isinstance(event, StreamEnded):
            self.ended = True
        elif isinstance(event, StreamReset):
            raise self._failed(f"UNAVAILABLE: the call was ended (HTTP/2 error {event.error_code})")

    def message(self) -> bytes:
        """The message, serialized. Raises CallFailed if the answer is an error or is not exactly one message."""
        if (status := self._headers.get(":status")) != "200":
            raise self._failed(f"UNAVAILABLE: the answer is HTTP status {status}, not gRPC")
        code = self._headers.get("grpc-status", "")
        if code != _OK:
            status_message = unquote(self._headers.get("grpc-message", ""))
            raise self._failed(f"{_STATUSES.get(code, f'status {code[:9]}')}: {plain(status_message, 160)}")
        if len(self._content) < _PREFIX_BYTES or self._content[0] or len(self._content) != self._whole():
            raise self._failed("INTERNAL: the answer is not one message as gRPC sends it")
        return bytes(memoryview(self._content)[_PREFIX_BYTES:])

    def _whole(self) -> int:
        return _PREFIX_BYTES + int.from_bytes(self._content[1:_PREFIX_BYTES], "big")

    def _check_length(self) -> None:
        announced = self._whole() if len(self._content) >= _PREFIX_BYTES else 0
        if max(announced, len(self._content)) > _PREFIX_BYTES + self._most:
            raise self._failed(f"RESOURCE_EXHAUSTED: the answer is longer than {self._most} bytes")

    def _failed(self, why: str) -> CallFailed:
        return CallFailed(self.method, why)


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "DEADLINE_EXCEEDED: no answer in time"
    if isinstance(error, OSError):
        return f"UNAVAILABLE: {error.strerror or error}"
    return f"UNAVAILABLE: this is not HTTP/2: {plain(str(error), 120)}"
