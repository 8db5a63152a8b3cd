"""A small HTTP server in the place of an API server, with one node whose kubelet is replay and which can be away.

Its kubelet answers a pod when it is created, and its agent publishes at once, unless a test has them do otherwise.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from tests.builders import READY, node_topology_object
from tests.check.cluster import node_object

from topomend.model.condition import Condition
from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import admit
from topomend.wire.pods.pod import read_pod

Object = dict[str, Any]
Answer = tuple[int, Object]
"""An HTTP status, and a body."""

AWAY: Answer = 0, {}
"""In the place of an answer: the connection ends without one."""


def failure(status: int, reason: str, message: str = "") -> Answer:
    """A metav1.Status."""
    return status, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}


@dataclass
class ServedNode:
    """The node ``a``, its pods and the namespaces of a cluster.

    ``before`` may answer a request, given by method and path, in the place of the server; ``lost`` says of which
    requests the answer is lost though they took effect. ``agent_says`` is asked at each look for the condition Ready.
    """

    state: NodeState
    before: Callable[[str, str], Answer | None] = lambda _, __: None
    lost: Callable[[str, str], bool] = lambda _, __: False
    agent_says: Callable[["ServedNode"], Condition] = lambda _: READY
    publishes: Callable[["ServedNode"], NodeState] = lambda node: node.state
    """What the agent publishes of the state."""
    kubelet_answers: Callable[[str], bool] = lambda _: True
    """Whether the kubelet ever answers the pod of this name."""
    agents: list[Object] = field(default_factory=list)
    """The pods of agents, which are listed by their labels alone."""
    pods: dict[str, Object] = field(default_factory=dict)
    namespaces: dict[str, Object] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    _versions: Iterator[int] = field(default_factory=lambda: count(10))
    _empty: NodeState | None = None

    def answer(self, method: str, path: str, query: str, body: Object) -> Answer:
        """What is answered to a request, after its effect."""
        self.requests.append((method, path))
        if given := self.before(method, path):
            return given
        if "labelSelector=" in query and path.endswith("/pods"):
            return 200, {"metadata": {"resourceVersion": "1"}, "items": self.agents}
        kind, _, name = path.rstrip("/").rpartition("/")
        answered = getattr(self, f"_{method.lower()}")(kind, name, body)
        return AWAY if self.lost(method, path) else answered

    def _get(self, kind: str, name: str, _: Object) -> Answer:
        if kind.endswith("/nodes"):
            return 200, node_object(self.state)
        if kind.endswith("/nodetopologies"):
            version, ready = str(next(self._versions)), self.agent_says(self)
            return 200, node_topology_object(self.publishes(self), version=version, ready=ready)
        if name in ("pods", "namespaces"):
            items = self.pods if name == "pods" else self.namespaces
            unended = [each for each in items.values() if each.get("status", {}).get("phase") != "Failed"]
            return 200, {"metadata": {"resourceVersion": "1"}, "items": unended}
        if name == "version":
            return 200, {"gitVersion": "v1.37.2"}
        kept = self.pods if kind.endswith("/pods") else self.namespaces
        return (200, kept[name]) if name in kept else failure(404, "NotFound", f"{name} not found")

    def _post(self, _: str, plural: str, body: Object) -> Answer:
        metadata = body["metadata"]
        metadata["uid"] = f"uid-{next(self._versions)}"
        if plural == "namespaces":
            metadata["name"] = metadata["generateName"] + "x"
            self.namespaces[metadata["name"]] = body
            return 201, body
        if metadata["name"] in self.pods:
            return failure(409, "AlreadyExists", f"{metadata['name']} already exists")
        self.pods[metadata["name"]] = body
        if self.kubelet_answers(metadata["name"]):
            self._admit(body)
        return 201, body

    def _admit(self, content: Object) -> None:
        self._empty = self.state
        verdict, self.state = admit(self.state, read_pod(content))
        state = {"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        refused = {"phase": "Failed", "reason": verdict.reason, "message": verdict.message}
        content["status"] = {"phase": "Running", "containerStatuses": [state]} if verdict.admitted else refused

    def _delete(self, kind: str, name: str, _: Object) -> Answer:
        kept = self.pods if kind.endswith("/pods") else self.namespaces
        if name not in kept:
            return failure(404, "NotFound", f"{name} not found")
        if kept is self.pods and self._empty:
            self.state, self._empty = self._empty, None
        return 200, kept.pop(name)


class Served(Protocol):
    """Answers in the place of an API server."""

    def answer(self, method: str, path: str, query: str, body: Object) -> Answer:
        """What is answered to a request, after its effect."""


class _Handler(BaseHTTPRequestHandler):
    node: Served

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        target = urlsplit(self.path)
        status, content = self.node.answer(self.command, target.path, target.query, body)
        if not status:
            self.close_connection = True
            return
        encoded = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def kubeconfig_of(node: Served, folder: Path) -> Iterator[Path]:
    """Serve this node or cluster, and the kubeconfig of its administrator."""
    handler = type("Handler", (_Handler,), {"node": node})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        file = folder / "config"
        file.write_text(json.dumps(config))
        try:
            yield file
        finally:
            server.shutdown()
            thread.join()
