"""Writes objects straight into a sandbox's etcd: the API server would take too long to create so many.

The API server reads JSON as well as its own encoding (k8s.io/apiserver pkg/server/storage:NewStorageCodec), and its
watchers receive objects that it did not write itself.
"""

import base64
import json
import socket
import threading
from collections.abc import Iterable
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

AT_ONCE = 32
"""Objects in one transaction: etcd accepts 2 MiB (``--max-request-bytes``), and no object here exceeds 32 KiB."""


class Etcd:
    """A client of etcd's JSON gateway; a context manager that closes the connection. Safe for several threads."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the sandbox's."""
        self._connection = _UnixConnection(folder / "etcd.sock:0")
        self._lock = threading.Lock()

    def put(self, objects: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Write objects under their keys, such as ``pods/default/web``."""
        remaining = iter(objects)
        while batch := list(islice(remaining, AT_ONCE)):
            puts = [
                {"requestPut": {"key": _coded(f"/registry/{key}"), "value": _coded(json.dumps(content))}}
                for key, content in batch
            ]
            with self._lock:
                self._connection.request("POST", "/v3/kv/txn", json.dumps({"success": puts}))
                answer = self._connection.getresponse()
                content = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"etcd answers {answer.status}: {content[:500]!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
