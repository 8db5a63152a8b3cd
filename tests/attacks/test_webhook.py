"""Strangers who reach the webhook's port can neither exhaust the operator's memory nor keep the API server out."""

import http.client
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from tests.builders import pod_manifest
from tests.waiting import eventually

from topomend.gating.certificates import renewed
from topomend.runtime.http.webhook_server import MAX_BODY, MAX_CONNECTIONS, SMALL_BODY

MOST_MIB = 256
"""What a webhook beside nothing else may grow by: half of the operator's limit."""

REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "request": {"uid": "1", "namespace": "ns", "object": pod_manifest("p", {"name": "c"})},
}


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[tuple[int, ssl.SSLContext, psutil.Process]]:
    """The port of a webhook in a process of its own, a context that trusts it, and the process."""
    pairs = renewed(None, ["127.0.0.1"], datetime.now(UTC))
    assert pairs is not None
    for name, content in (("ca.crt", pairs.authority), ("tls.key", pairs.key), ("tls.crt", pairs.certificate)):
        (tmp_path / name).write_bytes(content)
    command = [sys.executable, "-m", "tests.attacks.operator_webhook", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield port, ssl.create_default_context(cadata=pairs.authority.decode()), psutil.Process(process.pid)
        process.kill()


def reviewed_after(port: int, context: ssl.SSLContext) -> float:
    """How long an honest review takes, in seconds.

    One that is turned away, because the thread of the connection in its place is slow to end, is asked for again.
    """
    asked = time.monotonic()
    eventually("an answer", lambda: post(port, context, json.dumps(REVIEW).encode()) == 200)
    return time.monotonic() - asked


def post(port: int, context: ssl.SSLContext, body: bytes) -> int:
    client = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
    try:
        client.request("POST", "/steer", body)
        return client.getresponse().status
    except OSError:
        return 0  # another connection took its place
    finally:
        client.close()


@pytest.mark.parametrize("size", [SMALL_BODY, 1 << 20, MAX_BODY])
@pytest.mark.parametrize("unit", [b'{"a":[{}]},'])
def test_reviews_that_grow_when_they_are_decoded_take_bounded_memory(
    webhook: tuple[int, ssl.SSLContext, psutil.Process], unit: bytes, size: int
) -> None:
    port, context, process = webhook
    hostile = (b"[" + unit * (size // len(unit) - 2) + b"{}]")[:size]
    quiet = reviewed_after(port, context)
    before, peak = process.memory_info().rss, 0

    def one_is_decoded() -> bool:
        nonlocal peak
        statuses: list[int] = []
        strangers = [
            threading.Thread(target=lambda: statuses.append(post(port, context, hostile)), daemon=True)
            for _ in range(60)
        ]
        for stranger in strangers:
            stranger.start()
        while any(stranger.is_alive() for stranger in strangers):
            peak = max(peak, process.memory_info().rss)
            strangers[0].join(0.01)
            strangers = [stranger for stranger in strangers if stranger.is_alive()] or strangers
        assert set(statuses) <= {0, 400, 503}, statuses
        return 400 in statuses or size == MAX_BODY  # the longest do not all arrive in time

    eventually("one of them to arrive whole and to be decoded", one_is_decoded)
    assert (peak - before) / 2**20 < MOST_MIB
    print(
        f"\nafter 60 reviews of {size} bytes: at most {peak >> 20} MiB, a review takes "
        f"{reviewed_after(port, context):.3f} s; before them {before >> 20} MiB, {quiet:.3f} s"
    )


def test_headers_without_end_take_bounded_memory(webhook: tuple[int, ssl.SSLContext, psutil.Process]) -> None:
    port, context, process = webhook
    lines = b"POST /steer HTTP/1.1\r\n" + (b"X: " + b"y" * 60_000 + b"\r\n") * 99
    quiet, before = reviewed_after(port, context), process.memory_info().rss
    with ExitStack() as opened:
        for _ in range(MAX_CONNECTIONS):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            with suppress(OSError):  # it is closed before all is sent
                opened.enter_context(context.wrap_socket(client, server_hostname="127.0.0.1")).sendall(lines)
        now = process.memory_info().rss
        assert (now - before) / 2**20 < MOST_MIB
        print(
            f"\nbeside {MAX_CONNECTIONS} headers without end: {now >> 20} MiB, a review takes "
            f"{reviewed_after(port, context):.3f} s; before them {before >> 20} MiB, {quiet:.3f} s"
        )
