"""What the API server is asked about a right."""

from topomend.check.facts import Right
from topomend.cli.numa.check.rights import review_of


def test_a_right_on_a_subresource_by_name_in_a_namespace_is_asked_for_as_such() -> None:
    right = Right("ns/agent", "create", "", "serviceaccounts/token", "reader", "ns")
    spec = review_of(right)["spec"]
    assert spec["user"] == "system:serviceaccount:ns:agent"
    assert "system:serviceaccounts:ns" in spec["groups"]
    assert spec["resourceAttributes"] == {
        "verb": "create",
        "resource": "serviceaccounts",
        "subresource": "token",
        "name": "reader",
        "namespace": "ns",
    }
    assert str(right) == "create serviceaccounts/token reader in ns"
