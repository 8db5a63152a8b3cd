"""What the manifests of this version say that must be there, under any names."""

import pytest
import yaml
from deploy.manifests import INSTALL, objects

from topomend.check.installed_objects import read_policies
from topomend.check.shipped import CLAIMS_FLAG, DEFRAGMENT_FLAG, KUEUE_FLAG, Names, Shipped, rights_of_component
from topomend.runtime.manifests import documents

SHIPPED = Shipped(documents(INSTALL.read_text()))
VALIDATING = read_policies(
    [item for item in objects() if item["kind"] == "ValidatingAdmissionPolicy"],
    [item for item in objects() if item["kind"] == "ValidatingAdmissionPolicyBinding"],
)


def test_each_policy_of_the_manifests_is_bound_and_knows_whom_it_limits() -> None:
    expected = SHIPPED.policies(Names(), observes=False)
    assert expected.keys() == VALIDATING.keys()
    assert expected["topomend-preemption"] == "topomend-preemption"
    assert expected["topomend-agent"] == "topomend-agent"
    assert all(policy.bound for policy in VALIDATING.values())


def test_an_installation_with_a_prefix_has_other_names() -> None:
    names = Names("acme-topomend-gating", "ns/acme-topomend-operator", "ns2/acme-topomend-agent", "acme-reader")
    assert SHIPPED.policies(names, observes=False)["acme-topomend-agent"] == "acme-topomend-agent"
    rights = SHIPPED.rights(names, observes=False)
    accounts = {right.account for right in rights}
    assert accounts == {"ns/acme-topomend-operator", "ns2/acme-topomend-agent"}
    named = {right.name for right in rights if right.resource == "mutatingwebhookconfigurations"}
    assert "acme-topomend-steer" in named
    assert {right.name for right in rights if right.resource == "serviceaccounts/token"} == {"acme-reader"}
    assert {right.namespace for right in rights if right.resource == "secrets"} == {"ns"}


@pytest.mark.parametrize("flag", [CLAIMS_FLAG, DEFRAGMENT_FLAG, KUEUE_FLAG])
def test_the_rights_of_a_component_are_those_of_its_role(flag: str) -> None:
    folder = INSTALL.parent / "components" / flag.removeprefix("--")
    role, _ = documents((folder / "role.yaml").read_text())
    given = {
        (verb, group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    rights = rights_of_component(flag, Names())
    assert {(right.verb, right.group, right.resource) for right in rights} == given
    assert {(right.role, right.account) for right in rights} == {
        (role["metadata"]["name"], "topomend-system/topomend-operator")
    }
    assert f"value: {flag}\n" in (folder / "kustomization.yaml").read_text()


def test_an_operator_that_observes_needs_what_its_component_leaves_it() -> None:
    component = yaml.safe_load((INSTALL.parent / "components" / "observe" / "kustomization.yaml").read_text())
    rules = next(
        yaml.safe_load(patch["patch"])[0]["value"]
        for patch in component["patches"]
        if patch.get("target", {}).get("kind") == "ClusterRole"
    )
    given = {
        (verb, group, resource)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    rights = SHIPPED.rights(Names(), observes=True)
    operators = [right for right in rights if right.account == Names().operator]
    assert {(right.verb, right.group, right.resource) for right in operators} == given
    deleted = {
        content["metadata"]["name"]
        for patch in component["patches"]
        if (content := yaml.safe_load(patch["patch"]))
        and isinstance(content, dict)
        and content["kind"] == "ValidatingAdmissionPolicy"
    }
    assert SHIPPED.policies(Names(), observes=True).keys() == VALIDATING.keys() - deleted
