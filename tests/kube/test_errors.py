"""The error or result that each answer of the API server becomes."""

import json
from typing import Any

import pytest

from topomend.kube import errors


def answer(reason: str, **details: object) -> str:
    return json.dumps({"kind": "Status", "reason": reason, "message": "words", "details": details})


def test_a_namespace_that_is_being_deleted_is_distinguished_from_missing_rights() -> None:
    cause = {
        "reason": "NamespaceTerminating",
        "message": "namespace x is being terminated",
        "field": "metadata.namespace",
    }
    error = errors.refused(403, answer("Forbidden", kind="pods", causes=[cause]))
    assert type(error) is errors.NamespaceTerminating
    assert isinstance(error, errors.Forbidden)
    assert type(errors.refused(403, answer("Forbidden", kind="pods"))) is errors.Forbidden


@pytest.mark.parametrize(
    "details", [{"causes": None}, {"causes": ["NamespaceTerminating"]}, {"causes": [{}]}, {"causes": 7}]
)
def test_details_of_any_kind_are_survived(details: dict[str, object]) -> None:
    assert type(errors.refused(403, answer("Forbidden", **details))) is errors.Forbidden


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (401, "Unauthorized", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Gone),
        (418, "Teapot", errors.Refused),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (503, "ServiceUnavailable", errors.ServerFailed),
    ],
)
def test_each_status_is_an_error_of_its_own(status: int, reason: str, kind: type[errors.Refused]) -> None:
    error = errors.refused(status, answer(reason), retry_after="3")
    assert type(error) is kind
    assert (error.status, error.reason, error.message, error.retry_after) == (status, reason, "words", 3.0)


@pytest.mark.parametrize(
    ("status", "is_of_the_object"),
    [
        ({"details": {"causes": [{"reason": "DisruptionBudget", "message": "web needs 3 healthy pods"}]}}, True),
        ({"message": 'pods "p" is forbidden: admission webhook "quota.example" denied the request: later'}, True),
        ({"message": "Too many requests, please try again later."}, False),
        ({"message": "storage is (re)initializing", "details": {"retryAfterSeconds": 1}}, False),
    ],
    ids=["a budget", "a webhook", "priority and fairness", "the storage"],
)
def test_of_too_many_requests_those_about_the_object_are_told_from_those_of_the_client(
    status: dict[str, Any], is_of_the_object: bool
) -> None:
    error = errors.refused(429, json.dumps(status), "3")
    assert isinstance(error, errors.TooManyRequests)
    assert isinstance(error, errors.DeniedForNow) is is_of_the_object
    assert error.retry_after == 3.0


@pytest.mark.parametrize(
    "body", [b"", b"Bad\nGateway", b"[]", b"\xff", '{"reason": 5}', b"[" * 100_000 + b"]" * 100_000]
)
def test_an_answer_that_is_no_status_is_reported_in_one_line(body: bytes | str) -> None:
    assert "\n" not in str(errors.refused(502, body))


@pytest.mark.parametrize(("asked", "seconds"), [("7", 7.0), ("9999", errors.MAX_RETRY_AFTER_SECONDS), (None, 0.0)])
def test_the_server_is_left_alone_as_it_asks_up_to_a_minute(asked: str | None, seconds: float) -> None:
    assert errors.retry_after(errors.refused(429, b"", asked)) == seconds


def test_a_lost_answer_and_any_other_error_ask_for_no_time() -> None:
    assert [errors.retry_after(error) for error in (errors.Unanswered("no"), OSError())] == [0.0, 0.0]


@pytest.mark.parametrize("status", [200, 201])
def test_a_success_is_its_object(status: int) -> None:
    assert errors.answered(status, b'{"kind": "Pod"}', "GET /") == {"kind": "Pod"}


def test_a_success_may_be_nested_deeply() -> None:
    """As a ResourceClaim is whose user wrote such parameters."""
    body = b'{"deep": ' + b"[" * 5_000 + b"]" * 5_000 + b', "kind": "ResourceClaim"}'
    assert errors.answered(200, body, "GET /")["kind"] == "ResourceClaim"


@pytest.mark.parametrize("status", [301, 404, 500])
def test_what_is_no_success_is_refused_whatever_its_body(status: int) -> None:
    with pytest.raises(errors.Refused):
        errors.answered(status, b'{"kind": "Pod"}', "GET /")


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_a_success_without_an_object_is_no_answer(body: bytes) -> None:
    with pytest.raises(errors.Unanswered, match=r"^GET /: the answer is no"):
        errors.answered(200, body, "GET /")
