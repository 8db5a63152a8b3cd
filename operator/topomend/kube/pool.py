"""Connections to one server that several threads share, over the standard library: the transport of the commands.

Owns which connection carries a request, and when one is kept for the next. Leaves the connection itself to
``connection/transport``, and paths, credentials and the meaning of a status to ``client``.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPResponse
from threading import Lock
from typing import Any, ClassVar, Protocol
from weakref import finalize

from topomend.kube.connection import transport
from topomend.kube.connection.credentials import Headers
from topomend.kube.connection.transport import Connection, Server

MAX_IDLE = 16
"""How many connections may wait for the next request."""

HANDSHAKE_SECONDS = 10.0
"""How long the server may be silent in a TLS handshake, as in client-go's ``transport/cache.go``. The system accepts a
connection for a server that is too busy to answer; only this wait tells a slow server from a dead one."""


class _AnswersHeaders(Protocol):
    def get(self, name: str, /) -> str | None: ...


class Answer(Protocol):
    """The answer to a request, whose body is read once. Every method raises the FAILURES of who sent the request."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> _AnswersHeaders:
        """The headers, by names in any case."""

    def read(self, amt: int | None = None, /) -> bytes:
        """So many bytes; fewer at the end of the body, and none after it. Without ``amt`` all that are left."""

    def read1(self, amt: int, /) -> bytes:
        """The bytes that have arrived, at most ``amt``. Waits for the first; none means the end of the body."""


class Connections(Protocol):
    """What sends the requests of a ``Client``: a ``Pool``, or the official client."""

    @property
    def FAILURES(self) -> tuple[type[Exception], ...]:  # noqa: N802 - a constant of each class
        """What a request raises where no answer arrived. The cause of those of libraries is one of the system's."""

    def sent(
        self, method: str, target: str, body: Mapping[str, Any] | None, headers: Headers, seconds: float
    ) -> AbstractContextManager[Callable[[], Answer]]:
        """Send a request for ``target``, a path with its query. Call it once for the answer, whose body is unread.

        Both raise FAILURES. ``seconds`` is how long the server may be silent. The request is sent once only. The
        connection is reused if the body was read to its end.
        """

    def close(self) -> None:
        """Close the connections that no request uses, and each of the others after its request."""


class Pool:
    """Requests to one server, several at once. May be used by several threads.

    A connection must be made within ``connect_seconds``; its TLS handshake has HANDSHAKE_SECONDS. Connections that no
    request uses are closed with the pool, also where nobody closes it.
    """

    FAILURES: ClassVar[tuple[type[Exception], ...]] = transport.FAILURES

    def __init__(self, server: Server, connect_seconds: float) -> None:
        self._server, self._connect_seconds = server, connect_seconds
        self._lock = Lock()
        self._idle: list[Connection] = []
        self._end = _closing(self, self._idle)

    @contextmanager
    def sent(
        self, method: str, target: str, body: Mapping[str, Any] | None, headers: Headers, seconds: float
    ) -> Iterator[Callable[[], Answer]]:
        """Send a request, as ``Connections`` has it. The server works on the answer before anybody waits for it."""
        text = None if body is None else json.dumps(body).encode()
        idle = self._idle
        connection = self._waiting_in(idle) or self._made()
        try:
            connection.set_timeout(seconds)
            connection.send_request(method, target, text, headers)
            answers = list[HTTPResponse]()

            def answer() -> Answer:
                answers.append(connection.getresponse())
                return answers[0]

            yield answer
            is_read = any(each.isclosed() and not each.will_close for each in answers)
        except BaseException:
            connection.close()
            raise
        self._give_back(connection, idle, is_read=is_read)

    def close(self) -> None:
        """Close the connections that no request uses, and each of the others after its request."""
        with self._lock:
            end, self._idle = self._end, []
            self._end = _closing(self, self._idle)
        end()

    def _waiting_in(self, idle: list[Connection]) -> Connection | None:
        """A connection of ``idle`` that the server has not ended, and whose certificate was not replaced."""
        while True:
            with self._lock:
                connection = idle.pop() if idle else None
            if connection is None or not (connection.is_outdated() or connection.is_ended()):
                return connection
            connection.close()

    def _made(self) -> Connection:
        connection = Connection(self._server, self._connect_seconds, HANDSHAKE_SECONDS)
        connection.connect()
        return connection

    def _give_back(self, connection: Connection, idle: list[Connection], *, is_read: bool) -> None:
        """Keep the connection if its answer was read to the end and the pool was not closed since it was taken."""
        with self._lock:
            is_kept = is_read and idle is self._idle and len(idle) < MAX_IDLE
            if is_kept:
                idle.append(connection)
        if not is_kept:
            connection.close()


def _closing(pool: Pool, idle: list[Connection]) -> "finalize[[list[Connection]], Pool]":
    """What closes the ``idle`` connections once: when it is called, or when the pool is gone."""
    end = finalize(pool, _close_all, idle)
    end.atexit = False  # the system closes them sooner
    return end


def _close_all(connections: Iterable[Connection]) -> None:
    for connection in connections:
        connection.close()
