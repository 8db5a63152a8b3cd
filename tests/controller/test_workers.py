"""When a pod is reconciled again that failed, with the queue's real delays and a clock that stands still."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from tests.clock import Clock
from tests.waiting import eventually

from topomend.controller.workers import MALFORMED_SECONDS, Workers
from topomend.kube.client import Client
from topomend.kube.errors import Unanswered
from topomend.reconcile.gated.unschedulable_pods import UnschedulablePods
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import DONE, Result
from topomend.reconcile.store import Store
from topomend.runtime.queues.work_queue import WorkQueue
from topomend.wire.document import MalformedObject

FIRST, OTHER = PodID("ns", "first", "1"), PodID("ns", "other", "2")


class Server:
    """An API server's version, as a client asks for it."""

    def __init__(self, *, answers: bool = True) -> None:
        self.answers, self.asked = answers, 0

    def version(self) -> str:
        answers = self.answers
        self.asked += 1
        if not answers:
            raise Unanswered("connection refused")
        return "v1.37.2"


class Turns:
    """Counts how often each pod is reconciled; the first time of FIRST raises ``error``."""

    def __init__(self, error: Exception) -> None:
        self._error, self.of = error, Counter[PodID]()

    def __call__(self, pod: PodID, _: Any) -> Result:
        self.of[pod] += 1
        if pod == FIRST and self.of[pod] == 1:
            raise self._error
        return DONE


Started = Callable[..., tuple[WorkQueue[PodID], Clock]]


@pytest.fixture
def start() -> Iterator[Started]:
    started: list[Workers] = []

    def start_with(turns: Turns, server: Server, *, leads: bool = True) -> tuple[WorkQueue[PodID], Clock]:
        clock, store = Clock(), Store()
        queue: WorkQueue[PodID] = WorkQueue(clock)
        waiting = UnschedulablePods(store, queue.add)
        client = cast("Client", server)
        workers = Workers(client, store, queue, waiting, reconcile=turns, leads=lambda: leads)
        workers.start(1)
        started.append(workers)
        return queue, clock

    yield start_with
    for workers in started:
        workers.stop()


def served(queue: WorkQueue[PodID], turns: Turns) -> None:
    """Have the one worker take OTHER, and with it all that was due before."""
    before = turns.of[OTHER]
    queue.add(OTHER)
    eventually("the other pod to be reconciled", lambda: turns.of[OTHER] > before)


def test_a_bug_that_one_pod_reveals_stops_no_other_and_the_pod_is_tried_again(start: Started) -> None:
    turns = Turns(RuntimeError("a bug"))
    queue, clock = start(turns, Server())
    queue.add(FIRST)
    served(queue, turns)
    assert turns.of[FIRST] == 1, "not before its delay"
    clock.advance(3600)
    served(queue, turns)
    eventually("the pod to be tried again", lambda: turns.of[FIRST] == 2)


def test_a_pod_that_cannot_be_read_is_left_alone_for_a_minute(start: Started) -> None:
    turns = Turns(MalformedObject("spec", "it is no map"))
    queue, clock = start(turns, Server())
    queue.add(FIRST)
    served(queue, turns)
    clock.advance(MALFORMED_SECONDS - 1)
    served(queue, turns)
    served(queue, turns)
    assert turns.of[FIRST] == 1
    clock.advance(1)
    served(queue, turns)
    eventually("the pod to be looked at again", lambda: turns.of[FIRST] == 2)


def test_what_failed_in_an_outage_is_tried_at_once_when_the_api_server_answers(start: Started) -> None:
    """The clock stands still: no delay ends by itself."""
    turns, server = Turns(Unanswered("connection refused")), Server(answers=False)
    queue, _ = start(turns, server)
    queue.add(FIRST)
    served(queue, turns)
    eventually("the API server to be asked", lambda: server.asked)
    assert turns.of[FIRST] == 1
    server.answers = True
    eventually("the pod to be tried again", lambda: turns.of[FIRST] == 2)


def test_one_request_without_an_answer_is_no_outage(start: Started) -> None:
    turns, server = Turns(Unanswered("broken pipe")), Server()
    queue, clock = start(turns, server)
    queue.add(FIRST)
    eventually("the API server to be asked", lambda: server.asked == 1)
    served(queue, turns)
    assert turns.of[FIRST] == 1, "its delay is kept"
    clock.advance(3600)
    served(queue, turns)
    eventually("the pod to be tried again", lambda: turns.of[FIRST] == 2)


def test_an_operator_that_does_not_lead_reconciles_nothing(start: Started) -> None:
    turns = Turns(RuntimeError("a bug"))
    queue, _ = start(turns, Server(), leads=False)
    queue.add(FIRST)
    eventually("the queue to be empty", lambda: not len(queue))
    assert not turns.of
