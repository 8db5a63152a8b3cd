"""What can come between two steps of a relaunch, each with the real operator: the rows of the protocol's own table.

| what comes between                             | tested by                                              |
|------------------------------------------------|--------------------------------------------------------|
| the delete is refused: P changed               | ..._changes_before_it_is_deleted_is_read_again         |
| the delete is refused: somebody deleted P      | ..._delete_before_the_relaunch_is_committed_wins       |
| a crash anywhere                               | tests/controller/test_crashes.py, verify/soak           |
| P has our finalizer, and there is no W         | ..._claimed_pod_without_a_record_is_recorded_or_let_be |
| N is there: ours                               | ..._answer_of_a_relaunch_may_be_lost                   |
| N is there: another's                          | ..._takes_the_name_keeps_it                            |
| N is there: terminating                        | ..._being_deleted_is_waited_for                        |
| N is denied: quota, Pod Security, 422          | ..._denied_is_kept_and_created_once_it_is_allowed      |
| N is denied, and a user deletes P              | ..._of_another_name_is_denied_is_gone_for_good         |
| W or N is denied: the namespace is terminating | ..._namespace_that_ends_is_not_held_up                 |
| an answer is lost                              | ..._answer_of_a_relaunch_may_be_lost                   |
| a user deletes N while it is gated             | ..._deletes_before_it_is_ungated_stays_deleted         |
| an old leader repeats its CREATE               | ..._creates_long_after_it_was_overtaken_never_runs     |
| two believe that they lead                     | ..._both_act_..., tests/controller/test_election.py    |

P is the refused pod, W its record, N its replacement. What befalls the streams is test_streams.py; every interleaving
of these, on a model of the API server, is tests/relaunch/test_protocol.py.
"""

import json
import signal
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests import audit_log
from tests.clusters import pod
from tests.faults.conftest import Scene, uid_of
from tests.faults.proxy import Answer, HangUp, Moment, Proxy, Request, Write, failure
from tests.faults.steps import (
    CLAIM,
    COMMIT,
    CREATE,
    CREATED,
    DELETE,
    LAUNCH,
    LAUNCHED,
    MAIN_LINE,
    RECORD,
    UNCLAIM,
    UNPROTECT,
    step_of,
)
from tests.waiting import eventually

from topomend.kube.errors import Forbidden
from topomend.kube.resources import NAMESPACES, PODS, Resource
from topomend.wire.group import RELAUNCH_ANNOTATION, RELAUNCH_FINALIZER, RELAUNCH_GATE

pytestmark = [pytest.mark.cluster]

QUOTAS = Resource("v1", "resourcequotas")
BEFORE, BETWEEN = Moment.BEFORE, Moment.BETWEEN

MOST_OF_BOTH = 16
"""Of so many pods each of two operators relaunches one. There is room for twenty."""


def at(scene: Scene, step: str, moment: Moment, act: Callable[[], object]) -> threading.Event:
    """Do this once, the first time that the operator comes to a step; tells when it was done.

    What it takes long to do the operator may not wait for: a request that it makes again is held up as well.
    """
    lock, done = threading.Lock(), threading.Event()

    def fault(write: Write, now: Moment) -> None:
        if now is not moment or step_of(write) != step or done.is_set():
            return
        with lock:
            if not done.is_set():
                try:
                    act()
                finally:
                    done.set()

    scene.proxy.fault = fault
    return done


def delete_as_user(scene: Scene, name: str) -> None:
    scene.cluster.client.delete(PODS, name, scene.namespace, uid=scene.uid(name))


def test_a_refused_pod_that_changes_before_it_is_deleted_is_read_again(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("changed")

    def change() -> None:
        seen = {"type": "example.com/Seen", "status": "True"}
        patch = {"status": {"conditions": [*scene.get("train")["status"].get("conditions", ()), seen]}}
        scene.cluster.client.merge(PODS, "train", patch, scene.namespace, subresource="status")

    changed = at(scene, DELETE, BEFORE, change)
    scene.start()
    scene.runs_anew(scene.refuse("train"), 60)
    assert changed.is_set()
    scene.is_well()


def test_a_users_delete_before_the_relaunch_is_committed_wins(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("users-delete")

    def delete() -> None:
        delete_as_user(scene, "train")
        raise HangUp("the mark does not arrive")

    deleted = at(scene, COMMIT, BEFORE, delete)
    scene.start()
    scene.refuse("train")
    eventually("it to be deleted", deleted.is_set)
    eventually("it to be gone", lambda: not scene.exists("train"))
    record = eventually("the record to end", lambda: scene.record_at("train", "Cancelled"))
    eventually("the event", lambda: scene.notes(record, "RelaunchSkipped"))
    scene.is_well()


@pytest.mark.parametrize("opted_out", [False, True], ids=["to be relaunched", "opted out since"])
def test_a_claimed_pod_without_a_record_is_recorded_or_let_be(
    opted_out: bool, scene_of: Callable[[str], Scene]
) -> None:
    scene = scene_of("opted-out" if opted_out else "claimed")
    refused = scene.refuse("train", annotations={RELAUNCH_ANNOTATION: "false"} if opted_out else {})
    claim = {"metadata": {"finalizers": [RELAUNCH_FINALIZER]}}
    scene.cluster.client.merge(PODS, "train", claim, scene.namespace)
    scene.start()
    if opted_out:
        eventually("the claim to be dropped", lambda: "finalizers" not in scene.get("train")["metadata"])
        assert scene.uid("train") == uid_of(refused)
    else:
        scene.runs_anew(refused, 60)
    scene.is_well()


def test_a_pod_that_takes_the_name_keeps_it(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("squatter")
    squatters: list[str] = []

    def squat() -> None:
        squatters.append(uid_of(scene.cluster.create(pod("train", 1), scene.namespace)))

    at(scene, CREATE, BEFORE, squat)
    scene.start()
    refused = scene.refuse("train")
    record = eventually("the record to end", lambda: scene.record_at("train", "Superseded"))
    eventually("the event", lambda: scene.notes(record, "RelaunchSkipped"))
    assert [scene.uid("train")] == squatters
    assert uid_of(refused) not in squatters
    eventually("the other pod to run", lambda: scene.phase("train") == "Running")
    scene.is_well()


def test_a_replacement_that_is_being_deleted_is_waited_for(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("terminating")

    def hold_and_delete() -> None:
        foreign_finalizer = {"metadata": {"finalizers": ["example.com/hold"]}}
        scene.cluster.client.merge(PODS, "train", foreign_finalizer, scene.namespace)
        delete_as_user(scene, "train")
        raise HangUp("the answer is lost")

    at(scene, CREATE, BETWEEN, hold_and_delete)
    scene.start("--relist-seconds=1")
    refused = scene.refuse("train")

    def is_ending() -> bool:
        metadata = scene.get("train")["metadata"]
        return metadata["uid"] != uid_of(refused) and "deletionTimestamp" in metadata

    eventually("the replacement to end", is_ending)
    scene.listed_again()  # with which the record is looked at
    assert scene.step("train") == "Committed"
    scene.cluster.client.merge(PODS, "train", {"metadata": {"finalizers": None}}, scene.namespace)
    scene.runs_anew(refused, 60)
    scene.is_well()


def _quota(scene: Scene) -> Callable[[], object]:
    """Allow no pod more; returned is what allows them again."""
    client = scene.cluster.client
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    made = client.create(QUOTAS, quota, scene.namespace)
    eventually("the quota to bind, once its controller has counted", lambda: _is_denied(scene, pod("probe", 1)))
    return lambda: client.delete(QUOTAS, "none", scene.namespace, uid=uid_of(made))


def _pod_security(scene: Scene) -> Callable[[], object]:
    """Allow only pods that ask for less than ours do; returned is what allows ours again."""
    client, label = scene.cluster.client, "pod-security.kubernetes.io/enforce"
    client.merge(NAMESPACES, scene.namespace, {"metadata": {"labels": {label: "restricted"}}})
    eventually("the label to bind", lambda: _is_denied(scene, pod("probe", 1)))
    return lambda: client.merge(NAMESPACES, scene.namespace, {"metadata": {"labels": {label: None}}})


def _invalid(scene: Scene) -> Callable[[], object]:
    """Have the API server find every pod invalid; returned is what ends it."""

    def refuse(request: Request) -> Answer | None:
        is_create = request.method == "POST" and request.plural == "pods"
        return failure(422, "Invalid") if is_create and "dryRun" not in request.query else None

    scene.proxy.rules.append(refuse)
    return lambda: scene.proxy.rules.remove(refuse)


@pytest.mark.parametrize("deny", [_quota, _pod_security, _invalid], ids=["quota", "pod security", "422"])
def test_a_replacement_that_is_denied_is_kept_and_created_once_it_is_allowed(
    deny: Callable[[Scene], Callable[[], object]], scene_of: Callable[[str], Scene]
) -> None:
    scene = scene_of(f"denied-{deny.__name__.strip('_').replace('_', '-')}")
    allow: list[Callable[[], object]] = []
    # Its own rule answers before the write is counted, so it is set one step before.
    step = DELETE if deny is _invalid else CREATE
    denied = at(scene, step, BEFORE, lambda: allow.append(deny(scene)))
    scene.start()
    refused = scene.refuse("train")
    eventually("the fault to begin", denied.is_set)
    record = eventually("the relaunch to be blocked", lambda: scene.record_at("train", "Blocked"))
    assert record["status"]["manifest"]["spec"]["containers"][0]["name"] == "main"
    assert not scene.exists("train")
    eventually("the event", lambda: scene.notes(record, "RelaunchDeferred"))
    scene.is_well()
    allow[0]()
    scene.operator.kill()  # rather than wait for a minute, which is when it is tried again
    scene.start()
    scene.runs_anew(refused, 60)
    scene.is_well()


def test_a_pod_that_its_user_deletes_while_its_replacement_of_another_name_is_denied_is_gone_for_good(
    scene_of: Callable[[str], Scene],
) -> None:
    scene = scene_of("given-up")
    allow: list[Callable[[], object]] = []
    denied = at(scene, CREATE, BEFORE, lambda: allow.append(_quota(scene)))
    scene.start()
    refused = scene.refuse("train", annotations={"topomend.io/name-policy": "Suffix"})
    eventually("the fault to begin", denied.is_set)
    eventually("the relaunch to be blocked", lambda: scene.record_at("train", "Blocked"))
    scene.cluster.client.delete(PODS, "train", scene.namespace, uid=uid_of(refused))
    eventually("the pod to be gone", lambda: not scene.exists("train"))
    eventually("the record to say so", lambda: scene.record_at("train", "Cancelled"))
    allow[0]()
    eventually("the quota's end", lambda: not _is_denied(scene, pod("probe", 1)))
    scene.operator.kill()  # rather than wait for a minute, which is when a blocked one is tried again
    scene.start("--relist-seconds=1")
    scene.listed_again()
    scene.runs_anew(scene.refuse("other"), 60)
    assert not scene.exists("train-r1"), "nothing comes back"
    scene.is_well()


@pytest.mark.parametrize("step", [RECORD, CREATE])
def test_a_namespace_that_ends_is_not_held_up(step: str, scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("ending-at-record" if step == RECORD else "ending-at-create")
    client = scene.cluster.client
    uid = uid_of(client.get(NAMESPACES, scene.namespace))

    def end_namespace() -> None:
        client.delete(NAMESPACES, scene.namespace, uid=uid)
        eventually("its end to be known", lambda: _is_denied(scene, pod("probe", 1)))

    ended = at(scene, step, BEFORE, end_namespace)
    scene.start("--relist-seconds=1")
    scene.refuse("train")
    eventually("the namespace to end", ended.is_set)

    def is_gone() -> bool:
        return all(namespace["metadata"]["name"] != scene.namespace for namespace in client.list(NAMESPACES).items)

    eventually("it to be gone", is_gone, 60)
    scene.listed_again()
    # One a look, and it is looked at again for changes of the pod and its record alone, or once a minute.
    assert len([write for write in scene.proxy.written if step_of(write) == step]) < 8
    assert f"WARNING {scene.namespace}/train" not in scene.operator.text()
    assert "could not be posted" not in scene.operator.text()
    scene.is_well()


def test_a_pod_whose_record_is_denied_is_left_as_it_was(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("unrecordable")

    def refuse(request: Request) -> Answer | None:
        is_create = request.method == "POST" and request.plural == "relaunches"
        return failure(403, "Forbidden") if is_create else None

    scene.proxy.rules.append(refuse)
    scene.start("--relist-seconds=1")
    refused = scene.refuse("train")
    eventually("the event", lambda: scene.notes(refused, "RelaunchDeferred"))
    scene.listed_again()
    assert scene.uid("train") == uid_of(refused)
    assert "finalizers" not in scene.get("train")["metadata"]
    assert not scene.proxy.written
    assert not scene.records()
    scene.is_well()


def test_every_write_names_what_it_was_decided_on(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("preconditions")
    scene.start()
    refused = scene.refuse("train")
    scene.runs_anew(refused, 60)
    eventually("the record to be given back", lambda: UNPROTECT in map(step_of, scene.proxy.written))
    bodies = {step_of(write): json.loads(write.body) for write in scene.proxy.written}
    # One that meets a pod that its kubelet has just changed is repeated.
    assert list(dict.fromkeys(step_of(write) for write in scene.proxy.written)) == list(MAIN_LINE)
    named = [bodies[step]["metadata"] for step in (CLAIM, UNCLAIM, LAUNCH)] + [bodies[DELETE]["preconditions"]]
    assert [precondition["uid"] for precondition in named] == [
        uid_of(refused),
        uid_of(refused),
        scene.uid("train"),
        uid_of(refused),
    ]
    marks = [bodies[step]["metadata"] for step in (COMMIT, CREATED, LAUNCHED)]
    versions = [metadata["resourceVersion"] for metadata in (*named, *marks)]
    assert len(set(versions)) == len(versions) == 7
    assert bodies[CREATE]["spec"]["schedulingGates"] == [{"name": RELAUNCH_GATE}]
    assert bodies[CREATED]["status"]["newPod"]["uid"] == scene.uid("train")


def test_every_answer_of_a_relaunch_may_be_lost(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("lost-answers")
    lost: list[str] = []

    def lose(write: Write, moment: Moment) -> None:
        if moment is BETWEEN and step_of(write) not in lost:
            lost.append(step_of(write))
            raise HangUp("the answer is lost")

    scene.proxy.fault = lose
    scene.start()
    scene.runs_anew(scene.refuse("train"), 60)
    eventually("the answer to each step to be lost", lambda: set(lost) >= set(MAIN_LINE))
    scene.is_well()


def test_a_replacement_that_a_user_deletes_before_it_is_ungated_stays_deleted(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("deleted-gated")
    deleted = at(scene, LAUNCH, BEFORE, lambda: delete_as_user(scene, "train"))
    scene.start()
    scene.refuse("train")
    eventually("it to be deleted", deleted.is_set)
    record = eventually("the record to end", lambda: scene.record_at("train", "Cancelled"))
    eventually("the event", lambda: scene.notes(record, "RelaunchSkipped"))
    assert not scene.exists("train")
    scene.is_well()


def test_a_pod_that_an_operator_creates_long_after_it_was_overtaken_never_runs(
    scene_of: Callable[[str], Scene], tmp_path: Path
) -> None:
    scene = scene_of("overtaken")
    go_on = threading.Event()
    is_held = at(scene, CREATE, BEFORE, lambda: go_on.wait(120))
    first = scene.start()
    refused = scene.refuse("train")
    eventually(
        "the first operator to be held", lambda: scene.step("train") == "Committed" and not scene.exists("train")
    )
    first.process.send_signal(signal.SIGSTOP)
    other = Proxy(
        scene.cluster.sandbox.kubeconfig, tmp_path, ("events", "brakes", "steerings"), namespace=scene.namespace
    )
    try:
        second = scene.start("--relist-seconds=2", kubeconfig=other.kubeconfig)
        eventually("the second to have relaunched it", lambda: scene.step("train") == "Launched")
        launched = eventually("it to run", lambda: scene.phase("train") == "Running" and scene.uid("train"))
        scene.remove("train")
        eventually("it to be gone", lambda: not scene.exists("train"))
        go_on.set()
        first.process.send_signal(signal.SIGCONT)
        eventually("the first operator to have created another", is_held.is_set)
        created = [write for write in scene.proxy.written if step_of(write) == CREATE]
        eventually(
            "the late pod to be removed", lambda: len(_history(scene).created) == 3 and not scene.exists("train")
        )
        assert len(created) == 1
        assert _history(scene).bound == [launched]
        assert uid_of(refused) != launched
        assert second.process.poll() is None
        assert "Traceback" not in second.text()
    finally:
        go_on.set()
        second.kill()
        other.close()


def test_two_that_both_act_relaunch_every_pod_once(scene_of: Callable[[str], Scene], tmp_path: Path) -> None:
    """As when each of two believes that it leads."""
    scene = scene_of("both-act")
    other = Proxy(
        scene.cluster.sandbox.kubeconfig, tmp_path, ("events", "brakes", "steerings"), namespace=scene.namespace
    )
    try:
        scene.start()
        second = scene.start(kubeconfig=other.kubeconfig)
        eventually("the second to watch", lambda: len(other.streams()) >= 4)
        numbers = count()
        refused = [scene.refuse(f"train-{next(numbers)}") for _ in range(6)]
        for content in refused:
            scene.runs_anew(content, 60)
        while not (scene.proxy.written and other.written):  # one of them may have been slower each time
            number = next(numbers)
            assert number < MOST_OF_BOTH
            scene.runs_anew(scene.refuse(f"train-{number}"), 60)
        assert second.process.poll() is None
        assert "Traceback" not in second.text() + scene.operators[0].text()
    finally:
        second.kill()
        other.close()


def _is_denied(scene: Scene, content: dict[str, Any]) -> bool:
    try:
        scene.cluster.client.create(PODS, content, scene.namespace, dry_run=True)
    except Forbidden:
        return True
    return False


def _history(scene: Scene) -> audit_log.History:
    assert scene.cluster.sandbox.audit_log
    return audit_log.histories(scene.cluster.sandbox.audit_log)[(scene.namespace, "train")]
