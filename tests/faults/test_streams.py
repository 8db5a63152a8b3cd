"""Faults between the real operator and a real API server: no pod lost, none doubled, and the operator lives on.

K1 to K7 are the ways in which a client may lose events of a watch, or give it up; those of kopf's watch are in
tests/controller/test_own_objects.py:

| what goes wrong                                      | tested by                                           |
|------------------------------------------------------|-----------------------------------------------------|
| K1 deleted in a gap that ends in a 410               | ..._gap_that_ended_in_a_410_holds_no_place          |
| K2 a list that breaks off, or is streamed            | ..._list_that_breaks_off_hides_nothing              |
| K3 a list that is answered with 410                  | ..._answered_with_410_is_asked_for_anew             |
| K4 an ERROR event other than 410                     | ..._error_event_of_any_kind_is_survived             |
| K5 lists and watches fail for longer than 54 s       | ..._lasts_for_minutes_...[lists-fail]               |
| K6 half a line                                       | ..._half_a_line_and_then_the_end_is_survived        |
| K7 a handler that raises                             | ..._cannot_be_handled_hides_no_other_...            |
| a cut; a stall of 70 s; a server that is away        | ..._cut_is_up_again_...; [stall]; [away] [retried]  |
| 429 with Retry-After; 500, 503, 504, 403 for a while | ..._asks_for_patience_...; ..._fail_for_a_while_... |
| answers cut short; stale answers; a clock that jumps | ..._cut_short_...; ..._stale_...; ..._jumps_...     |

The slow ones wait until a silent watch counts as dead (70 s) and for the liveness endpoint's patience (120 s); they run
beside each other and beside the others.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import Cluster, pod
from tests.faults.conftest import Scene, uid_of
from tests.faults.proxy import Answer, HangUp, Request, failure, status_of
from tests.waiting import awake, consistently, eventually, stretched

from topomend.kube.resources import LEASES, NODE_TOPOLOGIES, NODES
from topomend.model.nodes.node_state import NodeState
from topomend.sandbox import NodeSpec

pytestmark = [pytest.mark.cluster]

SOON = 5.0
"""Within how many seconds of a cut a pod that is refused then is to run."""


@pytest.fixture(scope="module")
def slow(lopsided: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, "Future[None]"]]:
    """The slow faults, all of them side by side."""
    scenes = {name: Scene(lopsided, tmp_path_factory.mktemp("slow") / name, name) for name in SLOW}
    with ThreadPoolExecutor(len(SLOW)) as pool:
        yield {name: pool.submit(SLOW[name], scene) for name, scene in scenes.items()}
    for scene in scenes.values():
        scene.end()


# Cuts


def test_a_stream_that_is_cut_is_up_again_within_seconds(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("cut")
    scene.start()
    for number in range(3):
        eventually("the streams to be up", lambda: len(scene.proxy.streams()) >= 4)
        assert scene.proxy.cut() >= 4
        refused = scene.refuse(f"train-{number}")
        assert scene.runs_anew(refused, 20) < stretched(SOON)
    scene.is_well()


def test_what_was_deleted_during_a_gap_that_ended_in_a_410_holds_no_place(
    scene_of: Callable[[str], Scene], lopsided: Cluster
) -> None:
    """K1: no event tells of what was deleted before the version from which it is watched again."""
    scene = scene_of("k1")
    spec = NodeSpec.of_shape("numa-c", "cores:40 memory:4Gi", topology_manager_policy="single-numa-node")
    lopsided.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "numa-c"}})
    try:
        lopsided.publish(NodeState(spec.name, spec.machine, spec.kubelet, ()))
        scene.start()
        eventually("numa-c to be known", lambda: _largest_hole(scene) == 39)
        lopsided.create(pod("ghost", 30, node="numa-c"), scene.namespace)
        eventually("its place to be taken", lambda: _largest_hole(scene) < 39)
        assert scene.proxy.stall("pods") == 1
        scene.remove("ghost")
        assert scene.proxy.end("pods", _line(_error(410, "Expired"))) == 1
        eventually("its place to be free", lambda: _largest_hole(scene) == 39, 20)
    finally:
        for resource in (NODES, NODE_TOPOLOGIES):
            content = lopsided.client.get(resource, "numa-c")
            lopsided.client.delete(resource, "numa-c", uid=uid_of(content))
        lopsided.states.pop("numa-c", None)
    refused = scene.refuse("train")
    scene.runs_anew(refused, 20)
    scene.is_well()


def test_no_stream_begins_without_a_list_and_a_list_that_breaks_off_hides_nothing(
    scene_of: Callable[[str], Scene],
) -> None:
    """K2: objects that were not yet streamed when a stream broke off would be skipped."""
    scene = scene_of("k2")
    scene.start()
    answered: list[bytes] = []

    def break_off(request: Request) -> Answer | None:
        if not _begins_a_watch(request) or len(answered) == 2:
            return None
        answered.append(_listed(scene)[:-40])
        return Answer(body=answered[-1], complete=len(answered) == 2)

    scene.proxy.rules.append(break_off)
    assert scene.proxy.end("pods", _line(_error(410, "Expired"))) == 1
    refused = scene.refuse("train")
    scene.runs_anew(refused, 20)
    eventually("both lists to be broken off, and another to be asked for", lambda: _begun(scene) > 3)
    again = scene.refuse("after")
    scene.runs_anew(again, 20)
    assert not [request for request in scene.proxy.asked if "sendInitialEvents" in request.query]
    scene.is_well()


@pytest.mark.parametrize("page", ["of the stream's", "of the relist's"])
def test_a_list_that_is_answered_with_410_is_asked_for_anew(page: str, scene_of: Callable[[str], Scene]) -> None:
    """K3"""
    scene = scene_of("k3" if "stream" in page else "k3-relist")
    scene.start("--relist-seconds=2")
    refusals: list[Request] = []

    def expire(request: Request) -> Answer | None:
        if request.lists("pods") and _begins_a_watch(request) == ("stream" in page) and len(refusals) < 2:
            refusals.append(request)
            return failure(410, "Expired")
        return None

    scene.proxy.rules.append(expire)
    scene.proxy.end("pods", _line(_error(410, "Expired")))
    refused = scene.refuse("train")
    scene.runs_anew(refused, 20)
    eventually("the fault to have happened", lambda: len(refusals) == 2)
    again = scene.refuse("after")
    scene.runs_anew(again, 20)
    scene.is_well()


def test_an_error_event_of_any_kind_is_survived(scene_of: Callable[[str], Scene]) -> None:
    """K4"""
    scene = scene_of("k4")
    scene.start()
    for code, reason in ((500, "InternalError"), (504, "Timeout"), (429, "TooManyRequests")):
        eventually("one stream of pods", lambda: len(scene.proxy.streams("pods")) == 1)
        assert scene.proxy.end("pods", _line(_error(code, reason))) == 1
        refused = scene.refuse(f"train-{code}")
        scene.runs_anew(refused, 20)
    assert scene.operator.text().count("pods are not watched") == 3
    scene.is_well()


def test_half_a_line_and_then_the_end_is_survived(scene_of: Callable[[str], Scene]) -> None:
    """K6"""
    scene = scene_of("k6")
    scene.start()
    assert scene.proxy.end("pods", _line(_error(410, "Expired"))[:30]) == 1
    refused = scene.refuse("train")
    scene.runs_anew(refused, 20)
    eventually("the streams to be up", lambda: len(scene.proxy.streams()) >= 4)
    assert scene.operator.text().count("pods are not watched") == 1
    scene.is_well()


def test_an_event_that_cannot_be_handled_hides_no_other_and_is_made_up_for(scene_of: Callable[[str], Scene]) -> None:
    """K7"""
    scene = scene_of("k7")
    garbled: list[str] = []

    def garble(request: Request, event: dict[str, Any]) -> dict[str, Any]:
        content = event["object"]
        if request.plural != "pods" or content["metadata"].get("name") != "garbled":
            return event
        garbled.append(event["type"])
        return event | {"object": content | {"spec": "nonsense", "status": 7}}

    scene.proxy.rewrite = garble
    scene.start("--relist-seconds=8")
    hidden = scene.refuse("garbled")
    seen = scene.refuse("train")
    assert scene.runs_anew(seen, 20) < stretched(SOON)
    scene.runs_anew(hidden, 20)
    assert garbled
    scene.is_well()


# Refusals, stale and broken answers


def test_a_server_that_asks_for_patience_is_left_alone_for_as_long(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("patience")
    scene.start()
    refusals: list[tuple[float, str]] = []
    lock = threading.Lock()

    def busy(request: Request) -> Answer | None:
        with lock:
            if len(refusals) < 3 and (request.path.endswith("/pods/train") or request.lists("pods")):
                refusals.append((time.monotonic(), request.path))
                return failure(429, "TooManyRequests", **{"Retry-After": "3"})
        return None

    scene.proxy.rules.append(busy)
    refused = scene.refuse("train")
    scene.runs_anew(refused, 20)
    for path in {path for _, path in refusals}:
        times = [when for when, requested in refusals if requested == path]
        assert all(later - earliest > 2.9 for earliest, later in pairwise(times)), refusals
    assert len(refusals) == 3
    scene.is_well()


@pytest.mark.parametrize("status", [500, 503, 504, 403])
def test_requests_that_fail_for_a_while_are_made_again(status: int, scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of(f"failing-{status}")
    scene.start()
    until = time.monotonic() + 4

    def fail(request: Request) -> Answer | None:
        return failure(status, "Fault") if time.monotonic() < until and not request.watches else None

    scene.proxy.rules.append(fail)
    refused = scene.refuse("train")
    scene.runs_anew(refused, 20)
    scene.is_well()


def test_answers_that_are_cut_short_are_no_answers(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("short")
    scene.start("--relist-seconds=2")
    spoilt: list[str] = []

    def spoil(request: Request) -> Answer | None:
        if request.method != "GET" or request.watches or len(spoilt) > 12:
            return None
        spoilt.append(request.path)
        return Answer(body=b'{"kind": "Pod", "metada' if len(spoilt) % 2 else b"[]")

    scene.proxy.rules.append(spoil)
    refused = scene.refuse("train")
    scene.runs_anew(refused, 20)
    eventually("the fault to be over", lambda: len(spoilt) > 12)
    again = scene.refuse("after")
    scene.runs_anew(again, 20)
    scene.is_well()


def test_stale_answers_lead_to_nothing_wrong(scene_of: Callable[[str], Scene]) -> None:
    """Whatever was answered once is answered again for seconds, as by an API server that lags behind."""
    scene = scene_of("stale")
    scene.start("--relist-seconds=1")
    served: list[str] = []
    is_over = threading.Event()

    def lag(request: Request) -> Answer | None:
        known = scene.proxy.answers.get(request.url)
        if request.method != "GET" or request.watches or known is None or is_over.is_set():
            return None
        served.append(request.url)
        return Answer(body=known)

    scene.proxy.rules.append(lag)
    refused = scene.refuse("train")
    eventually(
        "answers about the pod", lambda: [url for url in served if "/pods/train" in url or "/relaunches/" in url]
    )
    scene.listed_again()
    is_over.set()
    scene.runs_anew(refused, 20)
    scene.is_well()


def test_a_clock_that_jumps_changes_nothing(
    scene_of: Callable[[str], Scene], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = tmp_path / "offset"
    offset.write_text("0")
    monkeypatch.setenv("CLOCK_OFFSET_FILE", str(offset))
    scene = scene_of("clock")
    elects = ("--leader-elect", f"--namespace={scene.namespace}")
    scene.start("--relist-seconds=1", *elects, module="tests.faults.jumping_clock")
    for number, seconds in enumerate((-40 * 86400, 23 * 3600, -3600, 0)):
        offset.write_text(str(seconds))
        refused = scene.refuse(f"train-{number}")
        scene.runs_anew(refused, 20)
        lease = scene.cluster.client.get(LEASES, "topomend-operator", scene.namespace)
        print(f"off by {seconds} s: the Lease says {lease['spec']['renewTime']}")
    assert scene.operator.text().count("this operator leads") == 1
    assert "no longer leads" not in scene.operator.text()
    scene.is_well()


# The slow ones


def _stall(scene: Scene) -> None:
    scene.start()
    time.sleep(3)  # the relist that follows the streams' first lists is over
    assert scene.proxy.stall() >= 4
    stalled = awake()
    refused = scene.refuse("train")
    scene.runs_anew(refused, 90)
    took = awake() - stalled
    print(f"stalled to run, s: {took:.1f}")
    assert 40 < took < stretched(75), "70 s after the last that a watch has brought, which came before the stall"
    scene.is_well()


def _lists_fail(scene: Scene) -> None:
    """K5"""
    scene.start("--relist-seconds=5")
    begun = time.monotonic()
    refusals: list[int] = []

    def fail(request: Request) -> Answer | None:
        after = time.monotonic() - begun
        if after > 64 or not (request.lists("pods") or request.watches):
            return None
        refusals.append(503 if after < 32 else 403)
        return failure(refusals[-1], "Fault")

    scene.proxy.rules.append(fail)
    scene.proxy.end("pods", _line(_error(410, "Expired")))
    scene.proxy.cut()
    refused = scene.refuse("train")
    scene.runs_anew(refused, 64 + 15)
    assert time.monotonic() - begun > 64
    assert {503, 403} <= set(refusals)
    eventually("the streams to be up", lambda: len(scene.proxy.streams()) >= 4)
    scene.is_well()


def _unwatched(scene: Scene) -> None:
    """Lists are answered and watches are not: the streams do not work, and the endpoint says so."""
    scene.start("--relist-seconds=5")
    failing = [True]
    scene.proxy.rules.append(lambda request: failure(503, "Fault") if request.watches and failing[0] else None)
    scene.proxy.cut()
    cut = time.monotonic()
    refused = scene.refuse("train")
    scene.runs_anew(refused, 30)  # by the relist
    time.sleep(max(0.0, cut + 100 - time.monotonic()))
    assert scene.healthz()[0] == 200
    problem = eventually("the endpoint to say so", lambda: _problem(scene), 60)
    assert problem.endswith("can be listed but are not watched")
    failing[0] = False
    scene.is_well()


def _problem(scene: Scene) -> str:
    """What the liveness endpoint says is wrong; empty where nothing is."""
    status, text = scene.healthz()
    return text if status == 500 else ""


def _away(scene: Scene) -> None:
    """The API server is away: no fault of this process, and a restart would not help."""
    scene.start("--relist-seconds=1")
    away = [True]

    def hang_up(_: Request) -> Answer | None:
        if away[0]:
            raise HangUp("away")
        return None

    scene.proxy.rules.append(hang_up)
    scene.proxy.cut()
    cut = time.monotonic()
    refused = scene.refuse("train")
    time.sleep(max(0.0, cut + 110 - time.monotonic()))
    consistently("no restart is due", lambda: scene.healthz()[0] == 200, 60)
    away[0] = False
    scene.runs_anew(refused, 30)
    eventually("the streams to be up", lambda: len(scene.proxy.streams()) >= 4)
    scene.is_well()


def _retried(scene: Scene) -> None:
    """Watches go on while no request is answered; once one is, no pod waits for a delay that has grown meanwhile."""
    scene.start()
    time.sleep(3)  # a relist that is still due would retry it as well
    away = [True]

    def hang_up(request: Request) -> Answer | None:
        if away[0] and not request.watches:
            raise HangUp("away")
        return None

    scene.proxy.rules.append(hang_up)
    refused = scene.refuse("train")
    time.sleep(24.0)  # by its own delays it would be retried after 20 s and after 41 s
    away[0] = False
    took = scene.runs_anew(refused, 12)
    print(f"answered to run, s: {took:.1f}")
    scene.is_well()


SLOW = {"stall": _stall, "lists-fail": _lists_fail, "unwatched": _unwatched, "away": _away, "retried": _retried}


@pytest.mark.night
@pytest.mark.parametrize("name", SLOW)
def test_what_lasts_for_minutes_is_survived_and_told_by_the_liveness_endpoint(
    name: str, slow: dict[str, "Future[None]"]
) -> None:
    slow[name].result()


# Helpers


def _error(code: int, reason: str) -> dict[str, Any]:
    return {"type": "ERROR", "object": status_of(code, reason)}


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode() + b"\n"


def _largest_hole(scene: Scene) -> float:
    """0 where no node is known."""
    try:
        return scene.metric('topomend_operator_pool_largest_admissible{pool="none",resource="cpu"}')
    except StopIteration:
        return 0.0


def _begins_a_watch(request: Request) -> bool:
    """Whether a stream of pods asks for the version from which it watches."""
    return request.lists("pods") and request.query.get("limit") == "1"


def _begun(scene: Scene) -> int:
    return len([request for request in scene.proxy.asked if _begins_a_watch(request)])


def _listed(scene: Scene) -> bytes:
    """A list of pods as a stream got it."""
    return next(body for url, body in scene.proxy.answers.items() if "/pods?" in url and "limit=1&" in f"{url}&")
