"""Each rule by which a pod stays where it is, and what lets it go."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.builders import pod, watched_pod

from topomend.decide.defragment.movable import SYSTEM_PRIORITY, WORDS, Surroundings, age_of, why_left_out
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Owner, Placement, PodGroup, WatchedPod
from topomend.model.pods.workload import Workload

OWNER = Owner("ReplicaSet", "half", "uid-of-half", "apps/v1")
ASKS = "cpu=2 memory=1Mi"
MOVABLE = watched_pod("half-1", phase="Running", owner=OWNER, node="a", pod=pod("half-1", ASKS))


def workload_of(template: Pod, **fields: int | bool) -> Workload:
    """Two replicas, both of them ready."""
    containers = {container.name: container.resources for container in template.containers}
    return replace(Workload(2, 2, 2, containers=containers), **fields)  # type: ignore[arg-type]


AROUND = Surroundings(
    steered=True,
    opted_out=False,
    forbidden="",
    local_storage="",
    age=3600.0,
    least_age=3600.0,
    workload=workload_of(pod("t", ASKS)),
    most_priority=5,
)


def test_a_pod_of_a_settled_controller_may_be_moved() -> None:
    assert why_left_out(MOVABLE, AROUND) == ""
    of_stateful_set = replace(MOVABLE, owner=replace(OWNER, kind="StatefulSet"))
    assert why_left_out(of_stateful_set, AROUND) == ""


@pytest.mark.parametrize(
    ("reason", "changed"),
    [
        ("Static", replace(MOVABLE, mirror=True)),
        ("Ending", replace(MOVABLE, deleting=True)),
        ("NotRunning", replace(MOVABLE, phase="Pending")),
        ("NoOwner", replace(MOVABLE, owner=None)),
        ("OtherOwner", replace(MOVABLE, owner=replace(OWNER, kind="Job", api_version="batch/v1"))),
        ("OtherOwner", replace(MOVABLE, owner=replace(OWNER, kind="DaemonSet"))),
        ("OtherOwner", replace(MOVABLE, owner=replace(OWNER, api_version="example.com/v1"))),
        ("OptedOut", replace(MOVABLE, relaunch="false")),
        ("Critical", replace(MOVABLE, critical=True)),
        ("Critical", replace(MOVABLE, priority=SYSTEM_PRIORITY)),
        ("Priority", replace(MOVABLE, priority=6)),
        ("", replace(MOVABLE, priority=5)),
        ("Group", replace(MOVABLE, group=PodGroup("scheduling.x-k8s.io", "g"))),
        ("SchedulerRules", replace(MOVABLE, pinned=True)),
        ("SchedulerRules", replace(MOVABLE, scheduler_rules=("topologySpreadConstraints",))),
        ("SchedulerRules", replace(MOVABLE, scheduler_rules=("topologySpreadConstraints",), claims=("data",))),
        ("SchedulerRules", replace(MOVABLE, scheduler_rules=("volumes",))),
        ("", replace(MOVABLE, scheduler_rules=("volumes",), claims=("data",))),
        ("Volumes", replace(MOVABLE, placement=Placement(volumes=None))),
    ],
)
def test_what_the_pod_itself_says_keeps_it(reason: str, changed: WatchedPod) -> None:
    around = replace(AROUND, most_priority=2 * SYSTEM_PRIORITY) if reason == "Critical" else AROUND
    assert why_left_out(changed, around) == reason
    assert not reason or WORDS[reason]


@pytest.mark.parametrize(
    ("reason", "around"),
    [
        ("NotSteered", replace(AROUND, steered=False)),
        ("OptedOut", replace(AROUND, opted_out=True)),
        ("Kept", replace(AROUND, forbidden="cluster-autoscaler.kubernetes.io/safe-to-evict")),
        ("Young", replace(AROUND, age=3599.0)),
        ("LocalStorage", replace(AROUND, local_storage="scratch")),
        ("OwnerUnknown", replace(AROUND, workload=None)),
        ("OwnerChanges", replace(AROUND, workload=workload_of(MOVABLE.pod, ending=True))),
        ("OwnerChanges", replace(AROUND, workload=workload_of(MOVABLE.pod, rolling=True))),
        ("OwnerChanges", replace(AROUND, workload=workload_of(MOVABLE.pod, existing=3, ready=3))),
        ("OwnerChanges", replace(AROUND, workload=workload_of(MOVABLE.pod, existing=1))),
        ("NotComplete", replace(AROUND, workload=workload_of(MOVABLE.pod, ready=1))),
        ("OnlyOne", replace(AROUND, workload=workload_of(MOVABLE.pod, replicas=1, existing=1, ready=1))),
        ("OtherTemplate", replace(AROUND, workload=workload_of(pod("t", "cpu=3 memory=1Mi")))),
        ("OtherTemplate", replace(AROUND, workload=workload_of(pod("t", f"{ASKS} request:cpu=1")))),
        ("OtherTemplate", replace(AROUND, workload=workload_of(pod("t", f"{ASKS} limit:hugepages-2Mi=2Mi")))),
        ("OtherTemplate", replace(AROUND, workload=workload_of(pod("t", ASKS, ASKS)))),
    ],
)
def test_what_is_around_the_pod_keeps_it(reason: str, around: Surroundings) -> None:
    assert why_left_out(MOVABLE, around) == reason


def test_a_pod_whose_next_one_would_have_a_further_limit_stays() -> None:
    [asked] = MOVABLE.pod.containers
    limited = replace(asked.resources, limits={**asked.resources.limits, "example.com/limited": 1})
    around = replace(AROUND, workload=Workload(2, 2, 2, containers={asked.name: limited}))
    assert why_left_out(MOVABLE, around) == "OtherTemplate"


def test_a_pod_may_opt_in_where_its_namespace_has_opted_out() -> None:
    assert why_left_out(replace(MOVABLE, relaunch="true"), replace(AROUND, opted_out=True)) == ""


def test_containers_and_amounts_that_came_at_the_creation_do_not_keep_a_pod() -> None:
    """They come to the next pod too."""
    grown = replace(MOVABLE, pod=pod("half-1", f"{ASKS} vendor.com/gpu=1", "cpu=1 memory=1Mi"))
    assert why_left_out(grown, AROUND) == ""


def test_a_pod_is_as_old_as_the_api_server_says_and_of_no_age_where_that_says_nothing() -> None:
    now = datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert age_of(replace(MOVABLE, creation_time="2026-01-01T00:00:00Z"), now) == 3600.0
    assert age_of(replace(MOVABLE, creation_time=""), now) == 0.0
    assert age_of(replace(MOVABLE, creation_time="2026-01-01T00:00:00"), now) == 0.0
