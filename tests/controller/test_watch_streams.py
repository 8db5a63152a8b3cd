"""What our session takes out of a watch, and what it leaves kopf. The streams of a cluster are in test_recovery."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

import aiohttp
import pytest

from topomend.controller.ingest import WatchEvent
from topomend.controller.watch_streams import _Events


class Body:
    """The body of a response, in these chunks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def line(kind: str, name: str, version: int, **fields: Any) -> bytes:
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(version)} | fields
    return json.dumps({"type": kind, "object": {"kind": "Pod", "metadata": metadata}}).encode() + b"\n"


def read(*chunks: bytes, plural: str = "pods") -> tuple[list[WatchEvent], list[Any]]:
    """The events that are handed on, and the lines that are left, decoded where they can be."""
    events = list[WatchEvent]()

    async def left() -> bytes:
        body = _Events(cast("aiohttp.StreamReader", Body(chunks)), plural, events.append)
        return b"".join([chunk async for chunk in body.iter_chunked(1000)])

    def decoded(text: bytes) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            return text

    return events, [decoded(text) for text in asyncio.run(left()).split(b"\n") if text]


def bookmark(version: int) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_events_are_handed_on_in_order_however_they_arrive_and_kopf_learns_how_far_it_has_watched(size: int) -> None:
    text = line("ADDED", "p", 5) + line("MODIFIED", "p", 6) + line("DELETED", "q", 7)
    events, left = read(*(text[start : start + size] for start in range(0, len(text), size)))
    assert [(event.content["metadata"]["resourceVersion"], event.gone) for event in events] == [
        ("5", False),
        ("6", False),
        ("7", True),
    ]
    assert left[-1] == bookmark(7)
    assert all(entry["type"] == "BOOKMARK" for entry in left)


def test_what_is_about_no_object_is_left_and_where_it_was() -> None:
    error = {"type": "ERROR", "object": {"code": 410}}
    text = line("ADDED", "p", 5) + json.dumps(bookmark(9)).encode() + b"\n" + line("ADDED", "q", 11)
    assert read(text + json.dumps(error).encode() + b"\n")[1] == [bookmark(5), bookmark(9), bookmark(11), error]


@pytest.mark.parametrize(
    "broken",
    [
        b"{",
        b"[]",
        b'"text"',
        b'{"type": "ADDED"}',
        b'{"type": "ADDED", "object": {"metadata": {"name": "p"}}}',
        b"\xff",
    ],
)
def test_a_line_that_cannot_be_read_is_kopfs_and_what_came_before_it_is_not_lost(broken: bytes) -> None:
    events, left = read(line("ADDED", "p", 5) + broken + b"\n")
    assert [event.content["metadata"]["name"] for event in events] == ["p"]
    assert left[0] == bookmark(5)
    assert len(left) == 2


def test_a_line_that_is_cut_short_is_kopfs() -> None:
    events, left = read(line("ADDED", "p", 5) + line("ADDED", "q", 6)[:40])
    assert [event.content["metadata"]["name"] for event in events] == ["p"]
    assert left == [bookmark(5), line("ADDED", "q", 6)[:40]]


@pytest.mark.parametrize(("plural", "kept"), [("pods", True), ("relaunches", False)])
def test_of_no_object_but_a_pod_the_list_of_its_managers_is_kept(plural: str, *, kept: bool) -> None:
    [event], _ = read(line("ADDED", "p", 5, managedFields=[{"manager": "kubectl"}]), plural=plural)
    assert ("managedFields" in event.content["metadata"]) == kept
