"""When a token is asked for, and for what. That the server grants it: tests/deploy/programs/test_kubelet_configz."""

from collections.abc import Mapping
from typing import Any

import pytest

from topomend.kube.connection.reader_token import LIFE_SECONDS, RENEW_SECONDS, ReaderToken
from topomend.kube.errors import APIError, Forbidden, Refused, Unanswered


class APIServer:
    """Grants tokens, and a clock."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Mapping[str, Any]]] = []
        self.error: APIError | None = None
        self.status: Any = None
        self.now = 0.0

    def request_token(self, namespace: str, account: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((namespace, account, spec))
        if self.error:
            raise self.error
        return {"status": self.status if self.status is not None else {"token": f"t{len(self.asked)}"}}

    def monotonic(self) -> float:
        return self.now

    def token(self) -> ReaderToken:
        return ReaderToken(self, "ns/reader", "n1", self.monotonic)


def test_a_token_is_bound_to_the_node_and_lives_ten_minutes() -> None:
    api = APIServer()
    assert api.token().read("uid") == "t1"
    bound = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid"}
    assert api.asked == [("ns", "reader", {"expirationSeconds": 600, "boundObjectRef": bound})]


def test_a_node_that_was_recreated_has_another() -> None:
    token = APIServer().token()
    assert [token.read("uid"), token.read("uid"), token.read("new")] == ["t1", "t1", "t2"]


def test_a_token_is_used_until_shortly_before_its_end_and_then_renewed() -> None:
    api = APIServer()
    token = api.token()
    assert (token.read("uid"), token.read("uid")) == ("t1", "t1")
    api.now = LIFE_SECONDS - RENEW_SECONDS - 1
    assert token.read("uid") == "t1"
    api.now += 1
    assert token.read("uid") == "t2"


def test_one_that_was_not_accepted_is_replaced_at_once() -> None:
    token = APIServer().token()
    token.read("uid")
    token.forget()
    assert token.read("uid") == "t2"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Forbidden(403, "Forbidden", "no"), r"may not request a token of ns/reader \(403 Forbidden: no\): apply the"),
        (Unanswered("gone"), "no token of ns/reader: gone"),
        (
            Refused(400, "BadRequest", "cannot bind token to a Node object"),
            "no token of ns/reader: 400 BadRequest: cannot bind token to a Node object: API servers before 1.31 bind",
        ),
    ],
)
def test_a_token_that_is_not_granted_is_reported_with_what_to_do(error: APIError, words: str) -> None:
    api = APIServer()
    api.error = error
    with pytest.raises(APIError, match=words) as failure:
        api.token().read("uid")
    assert type(failure.value) is APIError  # it is the API server that refuses, not the kubelet


@pytest.mark.parametrize("status", [{}, {"token": ""}, {"token": 7}, {"token": "a\r\nb"}])
def test_an_answer_without_a_token_is_none(status: object) -> None:
    api = APIServer()
    api.status = status
    with pytest.raises(APIError, match="has none"):
        api.token().read("uid")


@pytest.mark.parametrize("account", ["", "reader", "/reader", "ns/", "ns/a/b"])
def test_what_names_no_account_is_refused(account: str) -> None:
    with pytest.raises(ValueError, match="is not NAMESPACE/NAME"):
        ReaderToken(APIServer(), account, "n1")
