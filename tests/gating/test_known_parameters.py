"""What is known of the parameter objects, of those who tell of them and of those who ask."""

from typing import Any

import pytest

from topomend.gating.definitions import BRAKE, CREATOR, STEER
from topomend.gating.known_parameters import KnownParameters
from topomend.gating.review import Parameter
from topomend.kube.resources import BRAKES, STEERINGS


class Scene:
    def __init__(self) -> None:
        self.now, self.first_listed = 0.0, 0
        self.known = KnownParameters(self._note_first, lambda: self.now)

    def _note_first(self) -> None:
        self.first_listed += 1

    @property
    def owners(self) -> frozenset[str]:
        return self.known.parameter(BRAKE).owners

    def told(self, version: int, *owners: str, is_deleted: bool = False) -> None:
        self.now += 1
        self.known.told(BRAKES, brake(version, *owners), is_deleted)

    def found(self, version: int, *owners: str, asked: float | None = None) -> None:
        self.now += 1
        self.known.found(BRAKES, brake(version, *owners), self.now if asked is None else asked)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def brake(version: int, *owners: str) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version)}, "owners": dict.fromkeys(owners, "ns/ReplicaSet/a")}


def test_nothing_exists_before_it_is_known(scene: Scene) -> None:
    assert [scene.known.parameter(definition) for definition in (BRAKE, STEER, CREATOR)] == [Parameter()] * 3


def test_each_object_is_known_as_the_watch_has_told_last(scene: Scene) -> None:
    scene.told(1, "a")
    scene.told(2, "a", "b")
    scene.known.told(
        STEERINGS, {"metadata": {"resourceVersion": "3"}, "validUntil": "2026-01-01T00:00:00Z"}, is_deleted=False
    )
    assert scene.owners == {"a", "b"}
    assert scene.known.parameter(STEER) == Parameter(exists=True, valid_until="2026-01-01T00:00:00Z")


def test_an_object_that_was_deleted_does_not_exist(scene: Scene) -> None:
    scene.told(1, "a")
    scene.told(2, "a", is_deleted=True)
    assert scene.known.parameter(BRAKE) == Parameter()


def test_what_is_found_counts_until_the_watch_tells(scene: Scene) -> None:
    scene.found(1, "a")
    assert scene.owners == {"a"}
    scene.told(2, "b")
    assert scene.owners == {"b"}


def test_an_answer_that_the_watch_has_overtaken_counts_for_nothing(scene: Scene) -> None:
    asked = scene.now
    scene.told(2, "b")
    scene.found(1, "a", asked=asked)
    assert scene.owners == {"b"}
    assert scene.known.untold_for() == 0


def test_what_is_found_counts_even_if_the_versions_of_a_restored_cluster_begin_anew(scene: Scene) -> None:
    scene.told(1_000, "a")
    scene.found(5, "b")
    assert scene.owners == {"b"}


def test_the_first_controller_is_announced_by_whoever_learns_of_it(scene: Scene) -> None:
    scene.told(1)
    scene.told(2, "a")
    scene.told(3, "a", "b")
    assert scene.first_listed == 1
    scene.told(4)
    scene.found(5, "c")
    assert scene.first_listed == 2


def test_a_change_that_the_watch_does_not_tell_is_owed_from_the_question_on(scene: Scene) -> None:
    scene.told(1)
    scene.found(1)
    assert scene.known.untold_for() == 0
    scene.found(2)
    scene.now += 10
    scene.found(3)
    assert scene.known.untold_for() == 11
    scene.told(2)
    assert scene.known.untold_for() == 0
