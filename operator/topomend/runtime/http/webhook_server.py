"""Answers to POST requests over TLS, for the API server, which keeps its connections.

Owns how long a body may be and take. Leaves the answers to their owners, serving to ``server``.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import ClassVar

from topomend.runtime.http.server import PLAIN, Handler, Listener, Page

MAX_CONNECTIONS = 128
"""Connections kept at once. An API server keeps 25 (k8s.io/client-go transport/cache.go:idleConnsPerHost)."""

MAX_BODY = 4 << 20
"""The longest body that is read, in bytes: a review of an update has an object of the API server's twice."""

SMALL_BODY = 64 << 10
"""Longer bodies take turns, for a decoded one has ten times its length."""

BODY_SECONDS = 1.0
"""How long a body that is not small may take to have its turn, and again to arrive."""

IDLE_SECONDS = 120.0
"""How long a kept connection may stay silent: longer than an API server keeps one (net/http Transport.IdleConnTimeout,
90 s), which so never sends a request to an end."""


class Answers(Listener):
    """Makes each path's answer from the request's body.

    The context's certificate may be replaced meanwhile. ``took`` gets the seconds of each answer, from the body's
    arrival until it is sent. Raises as Listener does.
    """

    def __init__(
        self,
        address: str,
        answers: Mapping[str, Callable[[bytes], Page]],
        tls: ssl.SSLContext,
        took: Callable[[float], None],
    ) -> None:
        tls.options |= ssl.OP_IGNORE_UNEXPECTED_EOF  # a connection that ends is no alert; a body says its own length
        own = {"answers": answers, "turn": threading.BoundedSemaphore(), "took": staticmethod(took)}
        super().__init__(address, type("Answerer", (_Answerer,), own), MAX_CONNECTIONS, tls)


class _Answerer(Handler):
    """Answers POST requests; ``answers``, ``turn`` and ``took`` belong to the server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS
    answers: ClassVar[Mapping[str, Callable[[bytes], Page]]]
    turn: ClassVar[threading.BoundedSemaphore]
    took: ClassVar["staticmethod[[float], None]"]

    def do_POST(self) -> None:  # noqa: N802 - the standard library's name
        length = self._length()
        if length is None:
            self._decline(Page(413, PLAIN, b"a body has a length, of four MiB at most\n"))
        elif length <= SMALL_BODY:
            self._answer(length)
        elif self.turn.acquire(timeout=BODY_SECONDS):
            ending = threading.Timer(BODY_SECONDS, self._end)
            ending.start()
            try:
                self._answer(length)
            finally:
                ending.cancel()
                self.turn.release()
        else:
            self._decline(Page(503, PLAIN, b"busy\n"))

    def _length(self) -> int | None:
        text = self.headers.get("Content-Length", "")
        is_number = text.isascii() and text.isdecimal() and len(text) < 10
        return int(text) if is_number and int(text) <= MAX_BODY else None

    def _answer(self, length: int) -> None:
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        began = time.perf_counter()
        make = self.answers.get(self.path.partition("?")[0])
        self.send_page(make(body) if make else Page(404, PLAIN, b"unknown\n"))
        self.took(time.perf_counter() - began)

    def _decline(self, page: Page) -> None:
        self.close_connection = True
        self.send_page(page)

    def _end(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
