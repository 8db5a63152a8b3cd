"""The client with gRPC's own server, and with answers that no gRPC server sends."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import grpc
import pytest
from tests.waiting import stretched

from topomend.discover.pod_resources.grpc_unix import CallFailed, call_all

MOST = 1 << 20


@contextmanager
def serving(
    path: Path, service: str = "v1.Service", **methods: Callable[[grpc.ServicerContext], bytes]
) -> Iterator[Path]:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    handlers = {name: _handler(answer) for name, answer in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield path
    finally:
        server.stop(grace=None).wait()


def _handler(answer: Callable[[grpc.ServicerContext], bytes]) -> "grpc.RpcMethodHandler[bytes, bytes]":
    return grpc.unary_unary_rpc_method_handler(lambda _request, context: answer(context))


def call(path: Path, *methods: str, seconds: float = 60.0) -> list[bytes]:
    return call_all(path, "v1.Service", methods, seconds, MOST)


def test_answers_come_in_the_order_of_the_methods_however_long_they_take(tmp_path: Path) -> None:
    def late(_: grpc.ServicerContext) -> bytes:
        threading.Event().wait(0.3)
        return b"late"

    with serving(tmp_path / "s", Late=late, Soon=lambda _: b"soon", None_=lambda _: b"") as path:
        assert call(path, "Late", "Soon", "None_") == [b"late", b"soon", b""]


@pytest.mark.parametrize("size", [65_535, 65_536, 300_000, MOST])
def test_answers_larger_than_a_window_of_http2_arrive_whole(tmp_path: Path, size: int) -> None:
    content = Random(size).randbytes(size)
    with serving(tmp_path / "s", Big=lambda _: content, Other=lambda _: content[::-1]) as path:
        assert call(path, "Big", "Other") == [content, content[::-1]]


def test_an_answer_that_is_too_long_is_refused_and_named(tmp_path: Path) -> None:
    with serving(tmp_path / "s", Small=lambda _: b"", Big=lambda _: bytes(MOST + 1)) as path:
        with pytest.raises(CallFailed, match=f"RESOURCE_EXHAUSTED: the answer is longer than {MOST} bytes") as caught:
            call(path, "Small", "Big")
        assert caught.value.method == "Big"


def test_an_error_of_the_server_is_reported_with_its_name_and_in_one_line(tmp_path: Path) -> None:
    def fails(context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests:\nwait — a little")

    with serving(tmp_path / "s", Fails=fails) as path:
        with pytest.raises(CallFailed) as caught:
            call(path, "Fails")
        assert str(caught.value) == "RESOURCE_EXHAUSTED: too many requests: wait — a little"
        with pytest.raises(CallFailed, match="UNIMPLEMENTED"):
            call(path, "Unknown")


def test_a_server_that_takes_too_long_is_left(tmp_path: Path) -> None:
    done = threading.Event()

    def never(_: grpc.ServicerContext) -> bytes:
        done.wait()
        return b""

    with serving(tmp_path / "s", Soon=lambda _: b"", Never=never) as path:
        try:
            with pytest.raises(CallFailed, match="DEADLINE_EXCEEDED") as caught:
                call(path, "Soon", "Never", seconds=stretched(1.0))
        finally:
            done.set()
        assert caught.value.method == "Never"


@contextmanager
def sending(path: Path, content: bytes) -> Iterator[Path]:
    """A socket that sends ``content`` to whoever connects, and closes."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            with suppress(
                OSError
            ):  # nobody has connected, or it is gone: its time was over on a machine that stands still
                connection, _ = server.accept()
                with connection:
                    connection.sendall(content)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("seed", range(30))
def test_whatever_comes_instead_of_http2_is_an_error_in_one_line(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    # An empty settings frame makes the connection begin well.
    content = random.choice([b"", bytes(3) + b"\x04" + bytes(5)]) + random.randbytes(random.choice([0, 9, 40, 3000]))
    with sending(tmp_path / "s", content) as path, pytest.raises(CallFailed) as caught:
        call(path, "Method", seconds=1.0)
    assert "\n" not in str(caught.value)
    assert caught.value.method == "Method"


def recorded(path: Path, whole: Path) -> bytes:
    """What a real server sends for one call, recorded between it and the caller."""
    taken = bytearray()
    with socket.socket(socket.AF_UNIX) as between, serving(whole, Method=lambda _: bytes(range(200))):
        between.bind(str(path))
        between.listen()

        def pass_on() -> None:
            near, _ = between.accept()
            with near, socket.socket(socket.AF_UNIX) as far:
                far.connect(str(whole))
                there = threading.Thread(target=_copy, args=(near, far, bytearray()))
                there.start()
                _copy(far, near, taken)
                there.join()

        thread = threading.Thread(target=pass_on)
        thread.start()
        assert call(path, "Method") == [bytes(range(200))]
        thread.join()
    return bytes(taken)


def _copy(source: socket.socket, target: socket.socket, taken: bytearray) -> None:
    try:
        while content := source.recv(4096):
            taken += content
            target.sendall(content)
        target.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def test_a_true_answer_that_is_cut_or_changed_anywhere_is_whole_or_an_error(tmp_path: Path) -> None:
    answer = recorded(tmp_path / "between", tmp_path / "whole")
    seed = 20
    print(f"seed {seed}")
    random = Random(seed)
    outcomes, texts = set(), []
    for number in range(150):
        changed = bytearray(answer[: random.randrange(len(answer))] if number % 2 else answer)
        if changed and not number % 2:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
        with sending(tmp_path / f"s{number}", bytes(changed)) as path:
            try:
                (content,) = call(path, "Method", seconds=1.0)
                # One bit may have fallen into the message itself.
                outcomes.add("answered")
                assert len(content) == 200
            except CallFailed as error:
                outcomes.add("failed")
                texts.append(str(error))
    assert not any("\n" in text for text in texts)
    assert outcomes == {"answered", "failed"}
