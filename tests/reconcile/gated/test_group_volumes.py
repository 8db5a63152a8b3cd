"""Groups of pods with claims, where an API server takes long to say where their volumes are."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import gated_pod
from tests.clock import Clock
from tests.reconcile.parts import EMPTY_B, Parts

from topomend.kube.client import Reading
from topomend.kube.resources import CLAIMS, Resource
from topomend.model.pods.scheduling import Placement, PodGroup
from topomend.reconcile.gated.gated_pods import GatedPods
from topomend.reconcile.placement.volumes import (
    ANSWER_SECONDS,
    GROUP_SECONDS,
    RETRY_SECONDS,
    TURNS_SECONDS,
    Volumes,
)
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import DONE, Result
from topomend.runtime.backoff import Backoff
from topomend.wire.volume import BOUND_ANNOTATION


class SlowAPI:
    """It has every claim, with a volume that every node has; each answer takes ``seconds`` of a made clock.

    ``asked`` are the claims that were asked for, and ``meanwhile`` is called with each of them.
    """

    def __init__(self) -> None:
        self.clock, self.seconds, self.asked = Clock(), 0.0, list[str]()
        self.meanwhile: Callable[[str], None] = lambda _: None

    def get(self, resource: Resource, name: str, namespace: str = "", **_: Any) -> dict[str, Any]:
        self.clock.now += self.seconds
        if resource == CLAIMS:
            self.asked.append(name)
            self.meanwhile(name)
            metadata = {"name": name, "annotations": {BOUND_ANNOTATION: "yes"}}
            return {"metadata": metadata, "spec": {"volumeName": f"{namespace}_{name}"}}
        of, claim = name.split("_")
        return {"metadata": {"name": name}, "spec": {"claimRef": {"namespace": of, "name": claim}}}

    def read(self, *_: Any, **__: Any) -> Reading[Any]:
        return Reading((), "9")


class Groups(Parts):
    """Groups that do not fit as a whole, so that all their pods wait."""

    def __init__(self) -> None:
        self.api = SlowAPI()
        self.client = self.api
        super().__init__(self, EMPTY_B)  # type: ignore[arg-type]  # all that it has of a cluster is the client
        self.api.clock = self.clock
        self.gated_pods = GatedPods(self.collaborators, Backoff(self.clock), lambda pod: pod, self.reported.append)

    def wait(self, namespace: str, pods: int, *, claims: int = 1) -> None:
        group = PodGroup("kueue.x-k8s.io", "train", pods)
        for number in range(pods):
            names = tuple(f"{namespace}-{number}-{claim}" for claim in range(claims))
            pod = gated_pod(f"p-{number:03d}", 4, group=group, claims=names, uid=f"{namespace}-{number}")
            placement = Placement(volumes=None if claims else ())
            pod = replace(pod, namespace=namespace, pod=replace(pod.pod, namespace=namespace), placement=placement)
            self.watch(pod)

    def reconcile(self, namespace: str) -> Result:
        """Reconcile the first pod of the namespace's group."""
        return self.gated_pods.reconcile(PodID(namespace, "p-000", f"{namespace}-0"))

    def known(self, namespace: str) -> int:
        """The pods of the namespace of which it is known where their volumes are."""
        pods = self.store.snapshot.gated.values()
        return sum(pod.namespace == namespace and pod.placement.volumes is not None for pod in pods)


@pytest.fixture
def groups() -> Groups:
    return Groups()


def test_while_volumes_are_looked_up_for_two_groups_nodes_are_chosen_for_a_third(groups: Groups) -> None:
    for namespace in ("one", "two"):
        groups.wait(namespace, 3)
    groups.wait("three", 3, claims=0)
    results: dict[str, Result] = {}

    def meanwhile(claim: str) -> None:
        if claim == "one-1-0":
            results["two"] = groups.reconcile("two")
        if claim == "two-1-0":
            results["three"] = groups.reconcile("three")

    groups.api.meanwhile = meanwhile
    results["one"] = groups.reconcile("one")
    assert {name for name, result in results.items() if result.on_capacity} == {"one", "two", "three"}


def test_volumes_are_looked_up_for_two_groups_at_a_time_of_a_namespace_each(groups: Groups) -> None:
    for namespace in ("one", "two", "three"):
        groups.wait(namespace, 3)
    results: list[Result] = []

    def meanwhile(claim: str) -> None:
        if claim == "one-1-0":
            groups.reconcile("two")
        if claim == "two-1-0":
            results.append(groups.reconcile("one"))
            results.append(groups.reconcile("three"))

    groups.api.meanwhile = meanwhile
    assert groups.reconcile("one").on_capacity
    assert results == [Result(RETRY_SECONDS)] * 2
    groups.clock.now += TURNS_SECONDS
    assert groups.reconcile("three").on_capacity


def test_the_volumes_of_a_group_are_looked_up_a_few_seconds_in_a_row_and_none_of_them_twice(groups: Groups) -> None:
    groups.wait("one", 30)
    groups.api.seconds = 0.15
    began = groups.clock.now
    assert groups.reconcile("one") == Result(RETRY_SECONDS)
    assert GROUP_SECONDS <= groups.clock.now - began <= GROUP_SECONDS + ANSWER_SECONDS
    assert 0 < groups.known("one") < 30
    groups.clock.now += RETRY_SECONDS
    assert groups.reconcile("one").on_capacity
    assert groups.known("one") == 30
    assert len(groups.api.asked) == len(set(groups.api.asked)) == 30


def test_a_group_whose_volumes_take_too_long_to_look_up_goes_without_those_that_are_not_known(groups: Groups) -> None:
    groups.wait("one", 300)
    groups.api.seconds = 0.15
    began = groups.clock.now
    while not (result := groups.reconcile("one")).on_capacity:
        assert result == Result(RETRY_SECONDS)
        groups.clock.now += RETRY_SECONDS
    assert result.after is not None
    assert result.after > GROUP_SECONDS, "also those that were known a while ago are not due at once"
    assert groups.clock.now - began < TURNS_SECONDS + GROUP_SECONDS + ANSWER_SECONDS
    assert 0 < groups.known("one") < 300


def test_the_volumes_of_a_group_are_looked_up_again_no_sooner_than_after_as_long_as_that_took(groups: Groups) -> None:
    groups.wait("one", 10)
    groups.api.seconds = 0.2
    began = groups.clock.now
    result = groups.reconcile("one")
    took = groups.clock.now - began
    assert result.after == pytest.approx(took)
    asked = len(groups.api.asked)
    groups.clock.now += took - 0.01
    groups.reconcile("one")
    assert len(groups.api.asked) == asked


def test_a_group_of_which_no_claim_is_due_waits_for_nobody_who_looks_volumes_up(groups: Groups) -> None:
    for namespace in ("one", "two", "three"):
        groups.wait(namespace, 3)
    assert groups.reconcile("three").on_capacity
    results: list[Result] = []

    def meanwhile(claim: str) -> None:
        if claim == "one-1-0":
            groups.reconcile("two")
        if claim == "two-1-0":
            results.append(groups.reconcile("three"))

    groups.api.meanwhile = meanwhile
    groups.reconcile("one")
    assert [result.on_capacity for result in results] == [True]


class Ticking(Clock):
    """Time that goes on with each look at it, as real time does."""

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


def test_the_volumes_of_a_pod_are_looked_up_the_first_time_that_it_is_seen(groups: Groups) -> None:
    groups.wait("one", 3)
    volumes = Volumes(groups.client, groups.store, Ticking())  # type: ignore[arg-type]  # as for Parts
    first, *others = sorted(groups.store.snapshot.gated.values(), key=lambda pod: pod.name)
    assert volumes.look_up(first) == DONE
    assert groups.api.asked == ["one-0-0"]
    assert volumes.look_up_all(others) == DONE
    assert groups.api.asked == ["one-0-0", "one-1-0", "one-2-0"]
