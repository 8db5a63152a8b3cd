"""Which pod a program stands for, and what its token says."""

import base64
import json
from typing import Any

from topomend.sandbox.installed.bearers import Bearer
from topomend.sandbox.installed.pod_tokens import RENEW_AFTER, Token, choose_pod

AGENT = Bearer("agent", "ns", "account", "node-1", "/kubeconfig")
OPERATOR = Bearer("operator", "ns", "account", "", "/kubeconfig")


def pod(uid: str, node: str = "node-1", created: str = "2026-01-01T00:00:00Z", **fields: Any) -> dict[str, Any]:
    spec = {"serviceAccountName": fields.pop("account", "account"), "nodeName": node}
    metadata = {"uid": uid, "creationTimestamp": created, **fields.pop("metadata", {})}
    return {"metadata": metadata, "spec": spec, "status": {"phase": fields.pop("phase", "Running")}}


def chosen(pods: list[dict[str, Any]], bearer: Bearer, current: str = "") -> str | None:
    chosen = choose_pod(pods, bearer, current)
    return None if chosen is None else chosen["metadata"]["uid"]


def test_an_agent_stands_for_the_pod_of_its_own_node() -> None:
    assert chosen([pod("a", node="node-2"), pod("b"), pod("c", account="other"), pod("d", node="")], AGENT) == "b"
    assert chosen([pod("a", node="node-2")], AGENT) is None


def test_the_operator_stays_with_its_pod_as_long_as_that_is_alive() -> None:
    older, newer = pod("a", created="2026-01-01T00:00:00Z"), pod("b", node="node-2", created="2026-01-02T00:00:00Z")
    assert chosen([newer, older], OPERATOR) == "a"
    assert chosen([newer, older], OPERATOR, current="b") == "b"
    ending = pod("b", node="node-2", metadata={"deletionTimestamp": "2026-01-03T00:00:00Z"})
    assert chosen([ending, older], OPERATOR, current="b") == "a"


def test_the_operator_follows_a_rollout_although_the_pod_before_is_alive() -> None:
    """The rollout waits for the new pods, which are ready once their program runs."""

    def of(template: str) -> dict[str, Any]:
        return {"labels": {"pod-template-hash": template}}

    first = pod("a", created="2026-01-01T00:00:00Z", metadata=of("x"))
    second = pod("b", created="2026-01-02T00:00:00Z", metadata=of("y"))
    third = pod("c", created="2026-01-03T00:00:00Z", metadata=of("y"))
    back = pod("d", created="2026-01-04T00:00:00Z", metadata=of("x"))
    assert chosen([first, second, third], OPERATOR, current="a") == "b"
    assert chosen([first, second, third], OPERATOR, current="c") == "c"
    assert chosen([first, second, third, back], OPERATOR, current="b") == "a"
    same_second = pod("e", created="2026-01-01T00:00:00Z", metadata=of("y"))
    assert chosen([first, same_second], OPERATOR, current="a") == "a"
    assert chosen([same_second, first], OPERATOR, current="a") == "a"


def test_a_pod_that_was_refused_or_has_ended_has_no_token() -> None:
    assert chosen([pod("a", phase="Failed"), pod("b", phase="Succeeded")], AGENT) is None


def test_a_token_says_which_pod_it_is_bound_to_and_when_it_is_to_be_renewed() -> None:
    claims = {"iat": 1000, "exp": 4600, "kubernetes.io": {"pod": {"name": "p", "uid": "u"}}}
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    assert Token.read(f"e30.{payload}.x") == Token("u", 1000 + 3600 * RENEW_AFTER)
