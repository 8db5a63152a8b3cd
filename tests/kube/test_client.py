"""What the operator's client sends, and what it makes of pages, streams and lost answers. The server is a real one."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.clusters import Cluster
from tests.waiting import eventually

from topomend.kube.client import FIRST_PAGE, MAX_PAGE, PAGE_BYTES, Client, WatchEvent, connect
from topomend.kube.connection import access
from topomend.kube.connection.kubeconfig import NotConfigured
from topomend.kube.errors import Conflict, Gone, NotPermitted, Unanswered
from topomend.kube.resources import CLAIMS, EVENTS, NODE_TOPOLOGIES, NODES, PODS, Resource
from topomend.wire.shapes import BoundPod


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    content_type: str
    body: Any


@dataclass
class APIServer:
    """Gives ``answers`` one after the other, each a status and a body; None ends the connection without any."""

    port: int = 0
    answers: list[tuple[int, bytes] | None] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)

    def answer(self, *contents: dict[str, Any], status: int = 200) -> None:
        self.answers += [(status, json.dumps(content).encode()) for content in contents]


def handler_of(server: APIServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            target = urlsplit(self.path)
            content_type = self.headers.get("Content-Type", "")
            server.asked.append(Request(self.command, target.path, dict(parse_qsl(target.query)), content_type, body))
            answer = server.answers.pop(0)
            if answer is None:
                self.close_connection = True
                return
            status, content = answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_DELETE = _do  # noqa: N815 - the names that the standard library calls

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name there
            del format, arguments

    return Handler


@pytest.fixture
def server() -> Iterator[APIServer]:
    api = APIServer()
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(api))
    api.port = listener.server_port
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield api
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


@pytest.fixture
def kubeconfig(server: APIServer, tmp_path: Path) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "mine"}},
            {"name": "there", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(content))
    return tmp_path / "kubeconfig"


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[Client]:
    client = connect(str(kubeconfig))
    yield client
    client.close()


def page(*names: str, more: str = "", version: str = "7") -> dict[str, Any]:
    items = [{"metadata": {"name": name}} for name in names]
    return {"items": items, "metadata": {"resourceVersion": version, "continue": more}}


def names(contents: Iterator[dict[str, Any]] | tuple[dict[str, Any], ...]) -> list[str]:
    return [content["metadata"]["name"] for content in contents]


# Paths


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("ns", "p", "status"), "/api/v1/namespaces/ns/pods/p/status"),
        (NODES.path("ns", "n"), "/api/v1/nodes/n"),
        (NODE_TOPOLOGIES.path(name="n"), "/apis/topomend.io/v1alpha1/nodetopologies/n"),
        (PODS.path("../kube-system", "a/b?c"), "/api/v1/namespaces/..%2Fkube-system/pods/a%2Fb%3Fc"),
    ],
)
def test_a_path_names_group_namespace_and_object_and_no_name_leaves_its_place(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize("answer", [(404, b"404 page not found"), (200, b"")], ids=["not found", "nothing"])
def test_a_group_that_is_not_served_has_no_schemas(
    client: Client, server: APIServer, answer: tuple[int, bytes]
) -> None:
    """The API server answers with nothing for a moment after the group's last kind was deleted."""
    server.answers.append(answer)
    assert client.schemas("topomend.io/v1alpha1") == {}


# Lists


def test_a_list_is_read_page_by_page_and_has_the_version_of_its_last_page(client: Client, server: APIServer) -> None:
    server.answer(page("a", "b", more="token", version=""), page("c"))
    listing = client.list(PODS, namespace="ns", fields="spec.nodeName=n", labels="app=x", cached=True)
    assert (names(listing.items), listing.version) == (["a", "b", "c"], "7")
    selectors = {"fieldSelector": "spec.nodeName=n", "labelSelector": "app=x"}
    assert [request.query for request in server.asked] == [
        selectors | {"resourceVersion": "0", "limit": str(FIRST_PAGE)},
        selectors | {"continue": "token", "limit": str(MAX_PAGE)},  # a continued list takes no version
    ]


def test_a_list_from_the_cache_may_be_asked_to_be_no_older_than_a_version(client: Client, server: APIServer) -> None:
    """Without a limit: with one, the API server would not take it from its cache."""
    server.answer(page("a", "b"))
    assert client.read(PODS, lambda content: [content], cached=True, not_older_than="41").version == "7"
    assert [request.query for request in server.asked] == [
        {"resourceVersion": "41", "resourceVersionMatch": "NotOlderThan"}
    ]


def test_an_empty_list_has_no_items(client: Client, server: APIServer) -> None:
    server.answer({"items": None, "metadata": {"resourceVersion": "3"}})
    assert client.list(PODS).items == ()


def test_a_list_that_became_too_old_between_its_pages_is_no_shorter_list(client: Client, server: APIServer) -> None:
    server.answer(page("a", more="token"))
    server.answer({"kind": "Status", "reason": "Expired", "message": "too old"}, status=410)
    with pytest.raises(Gone):
        client.list(PODS)


def test_a_reader_may_leave_objects_out(client: Client, server: APIServer) -> None:
    server.answer(page("a", "b", more="token"), page("c"))
    reading = client.read(PODS, lambda content: [name] if (name := content["metadata"]["name"]) != "b" else [])
    assert (reading.items, reading.version) == (("a", "c"), "7")


def test_objects_that_are_decoded_by_their_shape_may_have_a_reader_of_their_own(
    client: Client, server: APIServer
) -> None:
    """The first page is whole, and so is the last object of any."""
    for listed in (page("a", "b", more="token"), page("c", "d", "e")):  # as the API server writes them
        server.answers.append((200, json.dumps(listed, separators=(",", ":")).encode()))
    reading = client.read(
        PODS,
        lambda content: [content["metadata"]["name"]],
        shape=BoundPod,
        shaped_reader=lambda content: [f"shaped {content['metadata']['name']}"],
    )
    assert reading.items == ("a", "b", "shaped c", "shaped d", "e")


def test_a_page_has_as_many_objects_as_the_size_of_those_before_allows(client: Client, server: APIServer) -> None:
    large = page("a", "b", more="token")
    large["items"][0]["spec"] = "x" * (PAGE_BYTES // 2)
    server.answer(large, large, page("c"))
    client.list(PODS)
    assert [request.query["limit"] for request in server.asked] == [str(FIRST_PAGE), "3", "3"]


def built_in(*names: str, more: str = "") -> dict[str, Any]:
    """A page as the API server writes those of built-in kinds: the metadata come first."""
    content = page(*names, more=more)
    return {"metadata": content["metadata"], "items": content["items"]}


def test_a_page_may_be_asked_for_before_the_one_before_it_is_read(client: Client, server: APIServer) -> None:
    server.answer(built_in("a", more="1"), built_in("b", "c", more="2"), built_in("d"))

    def reader(content: dict[str, Any]) -> list[str]:
        name = content["metadata"]["name"]
        if name == "c":
            eventually("the page after it to be asked for", lambda: len(server.asked) == 3)
        return [name]

    assert client.read(PODS, reader, ahead=True).items == ("a", "b", "c", "d")
    assert [request.query.get("continue") for request in server.asked] == [None, "1", "2"]
    assert server.asked[2].query["limit"] == server.asked[1].query["limit"] == str(MAX_PAGE)


def test_a_page_whose_metadata_come_last_is_read_before_the_next_is_asked_for(
    client: Client, server: APIServer
) -> None:
    server.answer(page("a", more="1"), page("b", "c", more="2"), page("d"))
    reading = client.read(PODS, lambda content: [(content["metadata"]["name"], len(server.asked))], ahead=True)
    assert reading.items == (("a", 1), ("b", 2), ("c", 2), ("d", 3))


def test_a_page_that_was_asked_for_ahead_and_is_gone_is_no_shorter_list(client: Client, server: APIServer) -> None:
    server.answer(built_in("a", more="1"), built_in("b", more="2"))
    server.answer({"kind": "Status", "reason": "Expired", "message": "too old"}, status=410)
    with pytest.raises(Gone):
        client.read(PODS, lambda content: [content], ahead=True)


def test_a_reader_that_fails_leaves_no_answer_to_the_next_request(client: Client, server: APIServer) -> None:
    server.answer(built_in("a", more="1"), built_in("b", "c", more="2"), built_in("d"), {"metadata": {"name": "e"}})

    def reader(content: dict[str, Any]) -> list[str]:
        if content["metadata"]["name"] == "c":
            eventually("the page after it to be answered", lambda: len(server.answers) == 1)
            raise LookupError
        return []

    with pytest.raises(LookupError):
        client.read(PODS, reader, ahead=True)
    assert client.get(PODS, "e", "ns") == {"metadata": {"name": "e"}}


def test_a_list_that_breaks_off_between_its_objects_is_unanswered(client: Client, server: APIServer) -> None:
    server.answers.append((200, json.dumps(page("a", "b")).encode()[:70]))
    with pytest.raises(Unanswered):
        client.list(PODS)


def test_a_list_in_another_language_is_unanswered(client: Client, server: APIServer) -> None:
    server.answers.append((200, b"<html>a proxy's page</html>"))
    with pytest.raises(Unanswered):
        client.list(PODS)


def test_a_server_that_never_answers_is_given_up_after_as_long_as_its_reader_says(kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        content = json.loads(kubeconfig.read_text())
        content["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        kubeconfig.write_text(json.dumps(content))
        client = connect(str(kubeconfig))
        with pytest.raises(Unanswered, match="timed out"):
            client.get(CLAIMS, "data", "ns", seconds=0.1)
        client.close()


# Watches


def stream(*events: dict[str, Any]) -> tuple[int, bytes]:
    return 200, b"".join(json.dumps(event).encode() + b"\n" for event in events)


def test_a_watch_tells_changes_from_deletions(client: Client, server: APIServer) -> None:
    server.answers.append(stream(*({"type": kind, "object": {"kind": kind}} for kind in ("ADDED", "DELETED"))))
    assert list(client.watch(PODS, "5", namespace="ns")) == [
        WatchEvent({"kind": "ADDED"}, deleted=False),
        WatchEvent({"kind": "DELETED"}, deleted=True),
    ]
    [request] = server.asked
    assert request.path == "/api/v1/namespaces/ns/pods"
    assert (request.query["watch"], request.query["resourceVersion"]) == ("true", "5")


def test_a_watch_from_a_version_that_is_too_old_is_gone_whichever_way_the_server_says_it(
    client: Client, server: APIServer
) -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    server.answers.append(stream({"type": "ERROR", "object": status}))
    server.answer(status, status=410)
    for _ in range(2):
        with pytest.raises(Gone):
            list(client.watch(PODS, "5"))


def test_a_watch_that_breaks_off_within_an_event_is_unanswered(client: Client, server: APIServer) -> None:
    server.answers.append((200, b'{"type": "ADDED", "obj'))
    with pytest.raises(Unanswered):
        list(client.watch(PODS, "5"))


# Writes


def test_a_deletion_names_the_object_that_is_meant(client: Client, server: APIServer) -> None:
    server.answer({}, {})
    client.delete(PODS, "p", "ns", uid="u")
    client.delete(PODS, "p", "ns", uid="u", version="9")
    assert [request.body["preconditions"] for request in server.asked] == [
        {"uid": "u"},
        {"uid": "u", "resourceVersion": "9"},
    ]


def test_a_patch_is_a_merge_patch_of_the_subresource(client: Client, server: APIServer) -> None:
    server.answer({"metadata": {}})
    client.merge(PODS, "p", {"status": {"phase": "Failed"}}, "ns", subresource="status")
    assert server.asked == [
        Request(
            "PATCH",
            "/api/v1/namespaces/ns/pods/p/status",
            {},
            "application/merge-patch+json",
            {"status": {"phase": "Failed"}},
        )
    ]


@pytest.mark.parametrize(("dry_run", "query"), [(False, {}), (True, {"dryRun": "All"})])
def test_only_a_dry_run_creates_nothing(
    dry_run: bool, query: dict[str, str], client: Client, server: APIServer
) -> None:
    server.answer({}, status=201)
    client.create(PODS, {"metadata": {"name": "p"}}, "ns", dry_run=dry_run)
    assert server.asked[0].query == query


WRITES: list[Callable[[Client], object]] = [
    lambda client: client.create(PODS, {}, "ns"),
    lambda client: client.merge(PODS, "p", {}, "ns"),
    lambda client: client.delete(PODS, "p", "ns", uid="u"),
]


@pytest.mark.parametrize("write", WRITES, ids=["create", "merge", "delete"])
def test_who_does_not_lead_sends_no_write_and_may_read(
    write: Callable[[Client], object], client: Client, server: APIServer
) -> None:
    leads = False
    limited = client.writing_while(lambda: leads)
    with pytest.raises(NotPermitted, match="another operator leads"):
        write(limited)
    assert server.asked == []
    server.answer({}, {}, {})
    limited.get(PODS, "p", "ns")
    write(client)  # the client that it was made of writes on
    leads = True
    write(limited)
    assert len(server.asked) == 3


NOT_EVENTS: list[Callable[[Client], object]] = [
    *WRITES,
    lambda client: client.apply(EVENTS, "e", {}, "ns"),
    lambda client: client.merge(EVENTS, "e", {}, "ns"),
    lambda client: client.delete(EVENTS, "e", "ns", uid="u"),
    lambda client: client.create(EVENTS, {}),
    lambda client: client.create(Resource("v1", "events"), {}, "ns"),
    lambda client: client.patch_status(PODS, "p", {}, "ns"),
    lambda client: client.evict("p", "ns", uid="u"),
    lambda client: client.evict("events", "ns", uid="u", dry_run=True),
]


@pytest.mark.parametrize("write", NOT_EVENTS, ids=lambda write: str(write.__code__.co_firstlineno))
def test_who_only_observes_sends_no_write_but_events(
    write: Callable[[Client], object], client: Client, server: APIServer
) -> None:
    observing = client.creating_alone(EVENTS)
    with pytest.raises(NotPermitted, match="this client only creates events"):
        write(observing.writing_while(lambda: True))
    assert server.asked == []
    server.answer({}, {})
    observing.get(PODS, "p", "ns")
    observing.create(EVENTS, {}, "ns")
    assert len(server.asked) == 2


@pytest.mark.parametrize("write", WRITES, ids=["create", "merge", "delete"])
def test_a_request_whose_answer_is_lost_is_not_repeated(
    write: Callable[[Client], object], client: Client, server: APIServer
) -> None:
    """Only the caller knows whether it may have taken effect twice."""
    server.answers += [None, (200, b"{}")]
    with pytest.raises(Unanswered):
        write(client)
    assert len(server.asked) == 1


def test_a_refusal_is_the_error_of_its_status(client: Client, server: APIServer) -> None:
    server.answer({"kind": "Status", "reason": "Conflict", "message": "the version differs"}, status=409)
    with pytest.raises(Conflict, match="the version differs"):
        client.merge(PODS, "p", {}, "ns")


# What the API server serves


def test_a_kind_is_served_where_its_version_lists_it(client: Client, server: APIServer) -> None:
    server.answer({"resources": [{"name": "nodetopologies"}, {"name": "relaunches/status"}]})
    assert client.serves(NODE_TOPOLOGIES)
    assert server.asked[0].path == "/apis/topomend.io/v1alpha1"
    server.answer({"resources": [{"name": "relaunches/status"}]})
    assert not client.serves(Resource("topomend.io/v1alpha1", "relaunches"))
    server.answer({"kind": "Status", "reason": "NotFound", "message": "no such group"}, status=404)
    assert not client.serves(NODE_TOPOLOGIES)


@pytest.mark.cluster  # only a real API server knows how to leave parts of objects out
def test_an_api_server_lists_nodes_objects_without_what_they_say(two_nodes: Cluster) -> None:
    for state in two_nodes.states.values():
        two_nodes.publish(state)
    listed = two_nodes.client.read(NODE_TOPOLOGIES, lambda item: [item], metadata_only=True)
    whole = two_nodes.client.list(NODE_TOPOLOGIES)
    assert listed.version
    for item, content in zip(listed.items, whole.items, strict=True):
        assert "status" not in item
        assert item["metadata"]["name"] == content["metadata"]["name"]
        assert item["metadata"]["resourceVersion"] == content["metadata"]["resourceVersion"]


# Which cluster


def test_the_namespace_and_the_names_of_contexts_are_those_of_the_kubeconfig(kubeconfig: Path) -> None:
    assert access.find_access(str(kubeconfig)).namespace == "mine"
    assert access.find_access(str(kubeconfig), "there").namespace == "default"
    assert access.context_names(str(kubeconfig)) == ["here", "there"]


def test_a_kubeconfig_that_cannot_be_read_has_no_contexts_and_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    assert access.context_names(missing) == []
    with pytest.raises(NotConfigured, match=f"^{missing}: no such file"):
        connect(missing)


def test_the_environment_comes_before_the_account_of_a_pod(
    client: Client, server: APIServer, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del client
    (tmp_path / "token").write_text("t")
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    server.answer({"gitVersion": "v1.36.3"})
    connected = connect()
    assert connected.version() == "v1.36.3"
    connected.close()
