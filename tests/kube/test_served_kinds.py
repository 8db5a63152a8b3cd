"""The words for a kind are those that kubectl takes."""

import pytest

from topomend.kube.resources import DEPLOYMENTS, Resource
from topomend.kube.served_kinds import ServedKind, built_in_kind

ROLLOUT = ServedKind("Rollout", Resource("argoproj.io/v1alpha1", "rollouts"), ("rollout", "ro"))


@pytest.mark.parametrize(
    "word", ["deploy", "deployment", "Deployments", "deployment.apps", "deployments.apps", "deployments.v1.apps"]
)
def test_a_built_in_kind_has_many_names(word: str) -> None:
    found = built_in_kind(word)
    assert found
    assert (found.resource, found.shown) == (DEPLOYMENTS, "deployment")


@pytest.mark.parametrize("word", ["", "web", "deployment.batch", "deployment.v2.apps", "service"])
def test_other_words_are_no_kind_of_workload(word: str) -> None:
    assert built_in_kind(word) is None


@pytest.mark.parametrize("word", ["rollout", "rollouts", "ro", "rollout.argoproj.io", "ro.argoproj.io"])
def test_a_kind_of_the_cluster_is_named_with_its_group_or_without(word: str) -> None:
    assert ROLLOUT.is_named(word)
    assert (ROLLOUT.shown, ROLLOUT.group) == ("rollout.argoproj.io", "argoproj.io")
    assert not ROLLOUT.is_named("rollout.example.com")
