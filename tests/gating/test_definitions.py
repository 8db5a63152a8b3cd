"""The definitions: the names of an installation, and webhooks that have the rules and conditions of the policies."""

import pytest

from topomend.gating.definitions import NAMES, Installation, policy_and_binding, webhook

OURS = Installation("topomend-system", "topomend-operator")
THEIRS = Installation("numa", "acme-topomend-operator-x", "acme-topomend-gating-x")


@pytest.mark.parametrize("definition", NAMES)
@pytest.mark.parametrize("installation", [OURS, THEIRS])
def test_policy_binding_and_webhook_go_by_the_installations_names(installation: Installation, definition: str) -> None:
    policy, binding = policy_and_binding(installation, definition, "v1")
    assert policy["metadata"]["name"] == binding["metadata"]["name"] == installation.name(definition)
    assert binding["spec"]["policyName"] == installation.name(definition)
    assert binding["spec"].get("paramRef", {}).get("namespace") in (None, installation.namespace)
    assert THEIRS.name("steer") == "acme-topomend-steer-x"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_policy_has_the_version_that_is_asked_for(version: str) -> None:
    for content in policy_and_binding(OURS, "steer", version):
        assert content["apiVersion"] == f"admissionregistration.k8s.io/{version}"


@pytest.mark.parametrize("definition", NAMES)
def test_a_webhook_never_stands_in_a_pods_way(definition: str) -> None:
    made = webhook(OURS, definition, {"url": "https://here"})
    assert made["failurePolicy"] == "Ignore"
    assert made["timeoutSeconds"] <= 2
    assert made["sideEffects"] == "None"


@pytest.mark.parametrize("definition", NAMES)
def test_a_webhook_has_every_condition_of_its_policy_that_no_parameter_is_needed_for(definition: str) -> None:
    spec = policy_and_binding(OURS, definition, "v1")[0]["spec"]
    made = webhook(OURS, definition, {"url": "https://here"})
    expressions = {condition["name"]: condition["expression"] for condition in made["matchConditions"]}
    for condition in spec["matchConditions"]:
        assert ("params" in condition["expression"]) != (expressions.get(condition["name"]) == condition["expression"])
    assert made["rules"] == spec["matchConstraints"]["resourceRules"]
    assert made["namespaceSelector"] == spec["matchConstraints"].get("namespaceSelector", {})


def test_only_pods_that_a_kubelet_aligns_are_asked_about_at_their_creation() -> None:
    for definition in ("steer", "brake", "creator"):
        conditions = webhook(OURS, definition, {"url": "https://here"})["matchConditions"]
        assert "would-be-aligned" in {condition["name"] for condition in conditions}, definition


def test_a_service_from_whose_name_no_others_follow_is_refused() -> None:
    with pytest.raises(ValueError, match="does not contain 'topomend-gating'"):
        Installation("numa", "operator", "webhook")


@pytest.mark.parametrize("definition", NAMES)
def test_no_policy_merges_a_whole_pod_by_its_schema(definition: str) -> None:
    """For a large pod ApplyConfiguration costs an API server several times what a JSON patch does."""
    policy, _ = policy_and_binding(Installation("ns", "account"), definition, "v1")
    assert {mutation["patchType"] for mutation in policy["spec"]["mutations"]} == {"JSONPatch"}
