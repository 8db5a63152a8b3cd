"""Which refused pods are relaunched, cleared away or left alone, and why."""

from typing import Any

import pytest
from tests.builders import refused_pod, watched_pod

from topomend.decide.eligibility import (
    Limits,
    Treatment,
    eligibility,
    is_recreated_when_deleted,
    is_relaunched_when_unbound,
    why_opted_out,
    wrong_relaunch_value,
)
from topomend.model.pods.scheduling import Owner

LIMITS = Limits()


@pytest.mark.parametrize(
    ("fields", "treatment", "reason"),
    [
        ({}, Treatment.RELAUNCH, "p has no controller that recreates it"),
        ({"reason": "OutOfcpu"}, Treatment.LEAVE, "p was not refused for its topology"),
        ({"message": "Resources"}, Treatment.LEAVE, "p was not refused for its topology"),
        ({"relaunch": "false"}, Treatment.LEAVE, 'topomend.io/relaunch is "false"'),
        ({"mirror": True}, Treatment.LEAVE, "p is a static pod, which only its kubelet creates"),
        ({"deleting": True}, Treatment.LEAVE, "p is being deleted"),
        ({"finalizers": ("x.io/y",)}, Treatment.LEAVE, "finalizer x.io/y on p belongs to another controller"),
        ({"finalizers": ("topomend.io/relaunch",)}, Treatment.RELAUNCH, "p has no controller that recreates it"),
        ({"owner": Owner("ReplicaSet", "rs", "2", "apps/v1")}, Treatment.CLEAR, "ReplicaSet rs recreates its pods"),
        (
            {"critical": True},
            Treatment.LEAVE,
            "p has a priority class of the cluster's own, so only its user recreates it",
        ),
        (
            {"critical": True, "owner": Owner("ReplicaSet", "rs", "2", "apps/v1")},
            Treatment.CLEAR,
            "ReplicaSet rs recreates its pods",
        ),
        (
            {"owner": Owner("ReplicationController", "rc", "2", "v1")},
            Treatment.CLEAR,
            "ReplicationController rc recreates its pods",
        ),
        (
            {"owner": Owner("Job", "j", "2", "batch/v1")},
            Treatment.LEAVE,
            "Job j counts its failed pods and creates the next one",
        ),
        (
            {"owner": Owner("DaemonSet", "d", "2", "apps/v1")},
            Treatment.LEAVE,
            "DaemonSet d deletes its failed pods and creates the next one",
        ),
        (
            {"owner": Owner("StatefulSet", "s", "2", "apps/v1")},
            Treatment.LEAVE,
            "StatefulSet s deletes its failed pods and creates the next one",
        ),
        (
            {"owner": Owner("Workflow", "w", "2", "argoproj.io/v1alpha1")},
            Treatment.LEAVE,
            "Workflow w decides what becomes of its failed pods",
        ),
        (
            {"owner": Owner("ReplicaSet", "rs", "2", "apps.example.org/v1")},
            Treatment.LEAVE,
            "ReplicaSet rs decides what becomes of its failed pods",
        ),
        (
            {"ran": True},
            Treatment.LEAVE,
            (
                "a container of p has run, and restartPolicy Never promises that it runs once; "
                'annotate it with topomend.io/relaunch-started: "true" to have it run again'
            ),
        ),
        ({"ran": True, "relaunch_started": "true"}, Treatment.RELAUNCH, "p has no controller that recreates it"),
        (
            {"pinned": True},
            Treatment.LEAVE,
            (
                "p was created with nodeName a, which no other node can replace; "
                'annotate it with topomend.io/relaunch-pinned: "true" to have it relaunched elsewhere'
            ),
        ),
        ({"pinned": True, "relaunch_pinned": "true"}, Treatment.RELAUNCH, "p has no controller that recreates it"),
        ({"attempt": 4}, Treatment.RELAUNCH, "p has no controller that recreates it"),
        (
            {"attempt": 5},
            Treatment.LEAVE,
            "p was relaunched 5 times of 5; topomend.io/max-attempts sets the limit",
        ),
        ({"attempt": 5, "max_attempts": 6}, Treatment.RELAUNCH, "p has no controller that recreates it"),
    ],
)
def test_who_recreates_a_refused_pod_decides_its_treatment(
    fields: dict[str, Any], treatment: Treatment, reason: str
) -> None:
    answer = eligibility(refused_pod(**fields), LIMITS)
    assert (answer.treatment, answer.reason) == (treatment, reason)


@pytest.mark.parametrize(
    ("generation", "released", "treatment"),
    [
        (0, False, Treatment.RELAUNCH),  # an API server that does not count
        (1, False, Treatment.RELAUNCH),
        (2, False, Treatment.LEAVE),
        (2, True, Treatment.RELAUNCH),  # one change is the operator's own
        (3, True, Treatment.LEAVE),
    ],
)
def test_a_bare_pod_that_somebody_else_changed_is_not_recreated(
    generation: int, released: bool, treatment: Treatment
) -> None:
    answer = eligibility(refused_pod(generation=generation, released=released), LIMITS)
    assert answer.treatment is treatment
    changed = f"p was changed after its creation (generation {generation}) and is not recreated"
    assert (changed in answer.reason) is (treatment is Treatment.LEAVE)


def test_a_namespace_opts_out_and_a_pod_in_it_opts_in_again() -> None:
    closed = Limits("its namespace opted out")
    left = eligibility(refused_pod(), closed)
    assert (left.treatment, left.reason) == (Treatment.LEAVE, closed.opted_out)
    owned = refused_pod(owner=Owner("ReplicaSet", "rs", "2", "apps/v1"))
    assert not eligibility(owned, closed).is_recreated
    assert eligibility(refused_pod(relaunch="true"), closed).treatment is Treatment.RELAUNCH


@pytest.mark.parametrize(
    ("owner", "is_recreated"),
    [
        (Owner("ReplicaSet", "rs", "2", "apps/v1"), True),
        (Owner("ReplicationController", "rc", "2", "v1"), True),
        (Owner("StatefulSet", "s", "2", "apps/v1"), True),
        (Owner("Job", "j", "2", "batch/v1"), True),
        (Owner("DaemonSet", "d", "2", "apps/v1"), False),
        (Owner("ReplicaSet", "rs", "2", "apps.example.org/v1"), False),
        (None, False),
    ],
)
def test_a_pod_that_has_not_run_may_be_deleted_if_its_controller_creates_another(
    owner: Owner | None, is_recreated: bool
) -> None:
    assert is_recreated_when_deleted(refused_pod(owner=owner), LIMITS) is is_recreated
    assert not is_recreated_when_deleted(refused_pod(owner=owner, relaunch="false"), LIMITS)
    assert not is_recreated_when_deleted(refused_pod(owner=owner), Limits("its namespace opted out"))


@pytest.mark.parametrize("value", ["yes", "True", "false ", "no", "\u202e\x1b"])
def test_a_value_that_is_neither_is_no_yes(value: str) -> None:
    pod, opted_in = refused_pod(relaunch=value), Limits()
    assert eligibility(pod, opted_in).treatment is Treatment.LEAVE
    wrong = wrong_relaunch_value(pod, opted_in)
    assert wrong == why_opted_out(pod, opted_in)
    assert all(words in wrong for words in ('"true"', '"false"', repr(value)))
    assert wrong.isprintable()


def test_a_namespaces_wrong_value_is_that_of_pods_without_one() -> None:
    limits = Limits("it is wrong", wrong_value="it is wrong")
    assert wrong_relaunch_value(refused_pod(), limits) == "it is wrong"
    assert wrong_relaunch_value(refused_pod(relaunch="true"), limits) == ""
    assert wrong_relaunch_value(refused_pod(relaunch="false"), Limits()) == ""


@pytest.mark.parametrize(
    ("fields", "is_relaunched"),
    [
        ({}, True),
        ({"attempt": 1_000}, True),
        ({"generation": 2, "released": True}, True),
        ({"generation": 3, "released": True}, False),
        ({"finalizers": ("topomend.io/relaunch",)}, True),
        ({"finalizers": ("x.io/y",)}, False),
        ({"gates": ("x.io/y",)}, False),
        ({"relaunch": "false"}, False),
        ({"mirror": True}, False),
        ({"critical": True}, False),
        ({"deleting": True}, False),
        ({"owner": Owner("Job", "j", "2", "batch/v1")}, False),
    ],
)
def test_an_unbound_pod_is_relaunched_where_a_refused_one_would_be_however_often(
    fields: dict[str, Any], is_relaunched: bool
) -> None:
    assert is_relaunched_when_unbound(watched_pod(**fields), LIMITS) is is_relaunched
    assert not is_relaunched_when_unbound(watched_pod(**fields), Limits("its namespace opted out"))
