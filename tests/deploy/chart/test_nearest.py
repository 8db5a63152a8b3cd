"""The rule of a name finds what is near it, and no other name."""

import re

import pytest
from deploy.helm.nearest import rules


def near(names: list[str], wrong: str) -> set[str]:
    """The names that are told to somebody who wrote ``wrong``."""
    told = set()
    for rule in rules(names, "", {})["allOf"]:
        named, beyond = rule["if"]["propertyNames"]["anyOf"]
        if wrong != named["const"] and re.search(beyond["not"]["pattern"], wrong):
            told.add(rule["else"]["const"])
    return told


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("toleration", "tolerations"),
        ("Tolerations", "tolerations"),
        ("tolreations", "tolerations"),
        ("tolerationSeconds", "tolerations"),
        ("priorityClass", "priorityClassName"),
        ("rpelicas", "replicas"),
        ("replicaCount", "replicas"),
        ("extraVolumesMounts", "extraVolumeMounts"),
        ("extraVolume", "extraVolumes"),
        ("tga", "tag"),
        ("tagg", "tag"),
    ],
)
def test_the_right_name_is_told(wrong: str, right: str) -> None:
    names = ["tolerations", "priorityClassName", "replicas", "extraVolumes", "extraVolumeMounts", "extraEnv", "tag"]
    assert near(names, wrong) == {f"did you mean {right}?"}


def test_nothing_is_told_of_what_is_near_no_name() -> None:
    assert near(["tolerations", "tag"], "service") == set()


@pytest.mark.parametrize(
    "names",
    [["tag", "tags"], ["a", "ab", "b"], ["extraVolumes", "extraVolumeMounts"], ["from", "form"], ["uid", "gid", "pid"]],
    ids=str,
)
def test_no_name_is_taken_for_another_one(names: list[str]) -> None:
    assert not [name for name in names if near(names, name)]


def test_an_object_without_names_has_no_rules() -> None:
    assert rules([], "", {}) == {}


def test_a_name_that_is_elsewhere_is_answered_with_its_paths() -> None:
    (rule,) = rules([], "", {"resources": ["operator.resources", "agent.resources"]})["allOf"]
    assert rule["if"] == {"propertyNames": {"not": {"const": "resources"}}}
    assert rule["else"] == {"const": "did you mean operator.resources or agent.resources?"}
