"""What a stream hands on, and where it goes on after each way in which a watch can end. The server is a real one.

The streams of a cluster are in test_recovery, and their faults in tests/faults.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.waiting import eventually

from topomend.controller import watch_streams
from topomend.controller.ingest import WatchEvent, watch_event
from topomend.controller.watch_streams import LATE_SECONDS, WATCH_SECONDS, WatchStreams
from topomend.kube import client as client_module
from topomend.kube.client import connect
from topomend.kube.resources import PODS
from topomend.runtime.backoff import Exponential

END, CUT = b"0\r\n\r\n", b""
"""The last chunk of a watch that the server ends, and of one whose connection is cut."""


class Scripted:
    """An API server of pods, and the streams that watch them.

    Every list has the next of the versions 100, 200 and so on. ``watches`` are the answers to watches, one after the
    other: a status, or chunks. What comes to its end without END or CUT stays open, as do further watches.
    ``after`` are answers to every watch from a version, however many.
    """

    def __init__(self, tmp_path: Path, *watches: int | list[bytes]) -> None:
        self.watches, self.asked, self.lists = list(watches), list[dict[str, str]](), 0
        self.after: dict[str, list[bytes]] = {}
        self.events, self.missed, self.now = list[WatchEvent](), list[int](), 0.0
        self.ending = threading.Event()
        self.listener = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self.listener.daemon_threads = True
        threading.Thread(target=self.listener.serve_forever, args=(0.02,), daemon=True).start()
        (tmp_path / "kubeconfig").write_text(json.dumps(_kubeconfig(self.listener.server_port)))
        self.client = connect(str(tmp_path / "kubeconfig"))
        self.streams = WatchStreams(self.client, self.events.append, self._note_missed, lambda: self.now)

    def _note_missed(self) -> None:
        self.missed.append(len(self.asked))

    def end(self) -> None:
        self.streams.stop()
        self.ending.set()
        self.listener.shutdown()
        self.listener.server_close()
        self.client.close()
        for thread in threading.enumerate():
            if thread.name == "watch-pods":  # else it would log in the next test
                thread.join()

    def watched(self, times: int) -> list[str]:
        """From which versions it was watched, once that has been so often."""
        eventually(f"{times} watches", lambda: len(self.asked) >= times)
        return [query["resourceVersion"] for query in self.asked]

    def names(self, number: int) -> list[str]:
        """The objects of the events, once there are so many."""
        eventually(f"{number} events", lambda: len(self.events) >= number)
        return [event.content["metadata"]["name"] for event in self.events]


def _kubeconfig(port: int) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {}}],
    }


def _handler_of(server: Scripted) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = dict(parse_qsl(urlsplit(self.path).query))
            if "watch" in query:
                server.asked.append(query)
                of_version = server.after.get(query["resourceVersion"], [])
                self._watch(server.watches.pop(0) if server.watches else of_version)
                return
            server.lists += 1
            self._answer(200, {"kind": "List", "items": [], "metadata": {"resourceVersion": f"{server.lists}00"}})

        def _watch(self, script: int | list[bytes]) -> None:
            if isinstance(script, int):
                self._answer(script, {"kind": "Status", "code": script, "message": "no"})
                return
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in script:
                if chunk in (END, CUT):
                    self.wfile.write(chunk)
                    self.close_connection = chunk is CUT
                    return
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            server.ending.wait()
            self.close_connection = True

        def _answer(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  its name there
            del format, arguments

    return Handler


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Start the streams before a server of these watches."""
    monkeypatch.setattr(watch_streams, "KINDS", {PODS: "status.phase!=Running"})
    monkeypatch.setattr(watch_streams, "PAUSES", Exponential(0.01, 0.1))
    made: list[Scripted] = []

    def start(*watches: int | list[bytes], after: dict[str, list[bytes]] | None = None) -> Scripted:
        made.append(Scripted(tmp_path, *watches))
        made[-1].after = after or {}
        made[-1].streams.start()
        return made[-1]

    yield start
    for server in made:
        server.end()


def line(kind: str, name: str, version: int, **fields: Any) -> bytes:
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(version)} | fields
    return json.dumps({"type": kind, "object": {"kind": "Pod", "metadata": metadata}}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}).encode() + b"\n"


def error(code: int) -> bytes:
    return json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "no"}}).encode() + b"\n"


def test_a_watch_begins_at_the_newest_version_and_everything_before_it_was_missed(scripted: Any) -> None:
    server = scripted()
    assert server.watched(1) == ["100"]
    assert server.missed == [0], "the relist that repairs it begins after the version"
    assert server.asked[0] == {
        "watch": "true",
        "resourceVersion": "100",
        "timeoutSeconds": str(WATCH_SECONDS),
        "allowWatchBookmarks": "true",
        "fieldSelector": "status.phase!=Running",
    }


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_events_are_handed_on_in_order_however_they_arrive(scripted: Any, size: int) -> None:
    text = line("ADDED", "p", 101) + line("MODIFIED", "p", 102) + line("DELETED", "q", 103)
    server = scripted([text[start : start + size] for start in range(0, len(text), size)])
    assert server.names(3) == ["p", "p", "q"]
    assert [(event.gone, event.entered, event.line + b"\n") for event in server.events] == [
        (False, True, line("ADDED", "p", 101)),
        (False, False, line("MODIFIED", "p", 102)),
        (True, False, line("DELETED", "q", 103)),
    ]


@pytest.mark.parametrize("last", [END, CUT], ids=["ended", "cut"])
def test_a_watch_that_ends_goes_on_after_the_last_event_or_bookmark(scripted: Any, last: bytes) -> None:
    server = scripted([line("ADDED", "p", 101), last], [bookmark(150), last], [line("ADDED", "q", 160)])
    assert server.names(2) == ["p", "q"]
    assert server.watched(3) == ["100", "101", "150"]
    assert (server.lists, len(server.missed)) == (1, 1)


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_refused_watch_is_asked_for_again_from_where_it_was(scripted: Any, status: int) -> None:
    server = scripted([line("ADDED", "p", 101), END], status, status)
    assert server.watched(4) == ["100", "101", "101", "101"]
    assert len(server.missed) == 1


@pytest.mark.parametrize(("status", "level"), [(429, "INFO"), (500, "WARNING")])
def test_a_server_that_asks_for_patience_is_no_cause_for_a_warning(
    scripted: Any, status: int, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As every API server does while it starts to serve a kind."""
    caplog.set_level("INFO")
    scripted(status).watched(2)
    assert [record.levelname for record in caplog.records if "are not watched" in record.message] == [level]


def test_a_watch_that_ends_with_the_operator_is_no_failure(scripted: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = scripted()
    server.watched(1)
    server.end()
    assert not [record.message for record in caplog.records if "are not watched" in record.message]


@pytest.mark.parametrize("refusal", [410, 400, [error(410)], [error(500)]], ids=str)
def test_where_a_watch_cannot_go_on_events_were_missed(scripted: Any, refusal: int | list[bytes]) -> None:
    server = scripted([line("ADDED", "p", 101), END], refusal)
    assert server.watched(3) == ["100", "101", "200"]
    assert len(server.missed) == 2


@pytest.mark.parametrize(
    "broken",
    [
        b"{",
        b"[]",
        b'"text"',
        b'{"type": "ADDED"}',
        b'{"type": "ADDED", "object": {"metadata": {"name": "p"}}}',
        b'{"type": "BOOKMARK", "object": 7}',
        b"\xff",
        b"[" * 100_000,
    ],
    ids=range(8),
)
def test_a_line_that_cannot_be_read_hides_neither_what_came_before_it_nor_what_comes_later(
    scripted: Any, broken: bytes
) -> None:
    server = scripted([line("ADDED", "p", 101) + broken + b"\n"], [line("ADDED", "q", 201)])
    assert server.names(2) == ["p", "q"]
    assert server.watched(2) == ["100", "200"]
    assert len(server.missed) == 2


def test_an_event_that_is_cut_short_is_no_event(scripted: Any) -> None:
    server = scripted([line("ADDED", "p", 101) + line("ADDED", "q", 102)[:40], END], [line("ADDED", "r", 201)])
    assert server.names(2) == ["p", "r"]
    assert len(server.missed) == 2


def test_an_event_longer_than_any_that_the_api_server_writes_is_not_waited_for(
    scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MAX_LINE_BYTES", 1000)
    server = scripted([b"x" * 400] * 4, [line("ADDED", "p", 201)])
    assert server.names(1) == ["p"]
    assert server.watched(2) == ["100", "200"], "it would come again"


def test_a_server_that_says_nothing_is_taken_for_dead(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_streams, "WATCH_SECONDS", 0)
    monkeypatch.setattr(client_module, "SILENT_SECONDS", 0.2)
    # Where the machine is busy, so may be one that has not said anything yet.
    server = scripted(after={"100": [line("ADDED", "p", 101)], "101": [line("ADDED", "q", 102)]})
    assert server.names(2) == ["p", "q"]
    assert list(dict.fromkeys(server.watched(2)))[:2] == ["100", "101"]
    assert len(server.missed) == 1


def test_watches_that_end_at_once_are_not_asked_for_without_pause(
    scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_streams, "PAUSES", Exponential(60.0, 60.0))
    server = scripted([END])
    server.watched(1)
    eventually("the watch to be over", lambda: not server.streams.are_up())
    assert len(server.asked) == 1


@pytest.mark.parametrize(("plural", "kept"), [("pods", True), ("relaunches", False)])
def test_of_no_object_but_a_pod_the_list_of_its_managers_is_kept(plural: str, *, kept: bool) -> None:
    event = watch_event(plural, line("ADDED", "p", 5, managedFields=[{"manager": "kubectl"}]))
    assert event is not None
    assert ("managedFields" in event.content["metadata"]) == kept


def test_a_kind_is_overdue_when_it_is_unwatched_for_long_and_not_while_its_watch_lasts(
    scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_streams, "PAUSES", Exponential(0.01, 0.01))
    server = scripted()
    eventually("pods to be watched", server.streams.are_up)
    server.now = WATCH_SECONDS + LATE_SECONDS
    assert server.streams.overdue() == ()
    server.now += 1
    assert server.streams.overdue() == (("pods", WATCH_SECONDS + LATE_SECONDS),)


def test_a_kind_whose_watches_are_refused_is_overdue_from_the_first_refusal_on(scripted: Any) -> None:
    server = scripted(*[503] * 10_000)
    server.watched(3)
    server.now = LATE_SECONDS + 1
    assert server.streams.overdue() == (("pods", LATE_SECONDS),)


def test_no_event_is_handed_on_after_the_end(scripted: Any) -> None:
    server = scripted([line("ADDED", "p", 101), END])
    server.names(1)
    server.streams.stop()
    server.watches = [[line("ADDED", "q", 102)]]
    threads = [thread for thread in threading.enumerate() if thread.name == "watch-pods"]
    server.ending.set()
    eventually("the streams to end", lambda: not any(thread.is_alive() for thread in threads))
    assert server.names(1) == ["p"]
