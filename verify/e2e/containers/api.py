"""A client of the cluster's API server, as its administrator, through the unix socket of a ``kubectl proxy``.

The socket is a file, so it can be reached from outside the cluster's network namespace, and by root alone.
"""

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Object = Mapping[str, Any]

ANSWER_SECONDS = 300.0
"""How long an answer may take: longer than a busy machine ever stands still, for nothing is judged by it."""


class Refused(Exception):
    """The API server refused a request; ``code`` is HTTP's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class API:
    """One API server behind a unix socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, path: str) -> Object:
        """Read one object, or a list. Raises Refused."""
        return self._ask("GET", path)

    def find(self, path: str) -> Object | None:
        """Read one object; None if it does not exist."""
        try:
            return self.get(path)
        except Refused as refusal:
            if refusal.code == http.client.NOT_FOUND:
                return None
            raise

    def items(self, path: str) -> list[Object]:
        """The objects of a list."""
        return list(self.get(path)["items"])

    def create(self, path: str, body: Object) -> Object:
        """Create an object. Raises Refused."""
        return self._ask("POST", path, body)

    def delete(self, path: str) -> Object:
        """Delete an object with its own grace period. Raises Refused."""
        return self._ask("DELETE", path)

    def watch(self, path: str, version: str) -> Iterator[tuple[str, Object]]:
        """Watch a list from ``version`` on: ADDED, MODIFIED, DELETED or BOOKMARK, each with the object.

        A bookmark has nothing but the version from which to watch on. Ends with the stream; raises OSError if the
        connection breaks.
        """
        connection = self._connect(None)
        query = f"watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        try:
            connection.request("GET", f"{path}?{query}", headers={"Host": "localhost"})
            response = connection.getresponse()
            while line := response.readline():
                event = json.loads(line)
                yield event["type"], event["object"]
        finally:
            connection.close()

    def _ask(self, method: str, path: str, body: Object | None = None) -> Object:
        connection = self._connect(ANSWER_SECONDS)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Host": "localhost", "Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read().decode()
        finally:
            connection.close()
        if response.status >= 300:  # for an unknown path the answer is plain text
            raise Refused(response.status, answer.strip())
        content: Object = json.loads(answer)
        return content

    def _connect(self, timeout: float | None) -> http.client.HTTPConnection:
        channel = socket.socket(socket.AF_UNIX)
        channel.settimeout(timeout)
        try:
            channel.connect(str(self._path))
        except OSError:
            channel.close()
            raise
        connection = http.client.HTTPConnection("localhost")
        connection.sock = channel
        return connection
