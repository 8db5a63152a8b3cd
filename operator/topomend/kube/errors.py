"""The errors of a request to the API, one small tree for every client, and their translation from HTTP answers.

Owns which status is which error. Leaves to the callers which errors are worth a retry.

APIError                 any of them
├── NotPermitted         not sent: this process may not write at the moment
├── Unanswered           no answer arrived: whether the request took effect is not known
│   └── Untrusted            not sent: the server's certificate is not trusted
└── Refused              the API server answered, with a status
    ├── NotFound             404
    ├── Forbidden            401, 403
    │   └── NamespaceTerminating 403 to a create: the namespace is being deleted
    ├── MethodNotAllowed     405: objects of a kind that is being deleted cannot be created, for example
    ├── Conflict             409: a precondition or a version did not hold
    │   └── AlreadyExists        409 to a create: an object of that name is there
    ├── Gone                 410: a version or continue token is too old
    ├── Invalid              400, 422: the object itself was refused
    ├── TooManyRequests      429; ``retry_after`` in seconds where the server named it
    │   └── DeniedForNow         429 about this object: a PodDisruptionBudget or an admission webhook denies the request
    └── ServerFailed         5xx: whether the request took effect is not known
"""

from collections.abc import Mapping
from typing import Any

from topomend.kube.lists.deep_json import loads

MAX_MESSAGE = 300
"""Longer messages are cut: an API server may quote whole objects, which must not reach a log."""

MAX_RETRY_AFTER_SECONDS = 60.0
"""At most this long, whatever an API server asks for."""


class APIError(Exception):
    """A request to the Kubernetes API that did not succeed.

    ``retry_after`` is how many seconds the server asks the client to wait, None where it names none.
    """

    retry_after: float | None = None


def retry_after(error: Exception) -> float:
    """Seconds to leave the API server alone: as it asks, at most MAX_RETRY_AFTER_SECONDS; 0 where it asks nothing."""
    asked = error.retry_after if isinstance(error, APIError) else None
    return min(asked or 0.0, MAX_RETRY_AFTER_SECONDS)


class NotPermitted(APIError):
    """The request was not sent, because this process may not write now."""


class Unanswered(APIError):
    """No answer arrived; the request may or may not have taken effect.

    ``why`` says it for people, who know of no ``request``, the method and the path.
    """

    def __init__(self, why: str, request: str = "") -> None:
        super().__init__(f"{request}: {why}" if request else why)
        self.why = why


class Untrusted(Unanswered):
    """The server's certificate is not trusted, which does not heal by itself. Nothing was sent."""


class Refused(APIError):
    """The API server answered with a failure: the HTTP ``status`` and the API's CamelCase ``reason``, empty if none."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(
            f"{status} {reason}: {message[:MAX_MESSAGE]}" if reason else f"{status}: {message[:MAX_MESSAGE]}"
        )
        self.status = status
        self.reason = reason
        self.message = message[:MAX_MESSAGE]
        self.retry_after = retry_after


class NotFound(Refused):
    """There is no such object, or no such kind."""


class Forbidden(Refused):
    """The account lacks the right, or is not known, or an admission policy denies the request."""


class NamespaceTerminating(Forbidden):
    """The namespace is being deleted, so nothing can be created in it."""


class MethodNotAllowed(Refused):
    """The kind does not support this request, for example because the kind is being deleted."""


class Conflict(Refused):
    """A precondition (uid, resourceVersion, field ownership) did not hold."""


class AlreadyExists(Conflict):
    """An object of that name exists."""


class Gone(Refused):
    """The API server no longer has the requested version."""


class Invalid(Refused):
    """The API server refused the object because of its content."""


class TooManyRequests(Refused):
    """The API server is overloaded and asks the client to wait ``retry_after`` seconds."""


class DeniedForNow(TooManyRequests):
    """A PodDisruptionBudget keeps the pod, or an admission webhook answers 429: that concerns this object alone."""


class ServerFailed(Refused):
    """The API server or a proxy before it failed; the request may or may not have taken effect."""


_TERMINATING = "NamespaceTerminating"
"""The cause in the API server's answer (plugin/pkg/admission/namespace/lifecycle/admission.go:Admit)."""

_BUDGET = "DisruptionBudget"
"""The cause in the API server's answer (pkg/registry/core/pod/storage/eviction.go:checkAndDecrement)."""

_WEBHOOK = 'admission webhook "'
"""In the message of every denial by a webhook, whose status it chooses itself
(apiserver pkg/admission/plugin/webhook/errors/statuserror.go:ToStatusErr)."""

_BY_STATUS: Mapping[int, type[Refused]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def answered(status: int, body: bytes, request: str, retry_after: str | None = None) -> dict[str, Any]:
    """The object in the API server's answer to ``request``, which is the method and the path.

    ``retry_after`` is the header Retry-After. Raises Refused where the status is no success, and Unanswered where the
    body is cut short or is no object: something between server and client mangles answers.
    """
    if not 200 <= status < 300:
        raise refused(status, body, retry_after)
    try:
        answer = loads(body)
    except (ValueError, RecursionError) as error:
        raise Unanswered(f"{request}: the answer is not JSON: {error}") from error
    if not isinstance(answer, dict):
        raise Unanswered(f"{request}: the answer is not a JSON object")
    return answer


def refused(status: int, body: bytes | str, retry_after: str | None = None) -> Refused:
    """The error for an HTTP status that is no success, and its body (a metav1.Status or anything else).

    ``retry_after`` is the header Retry-After; only seconds are understood.
    """
    reason, message, causes = _status_words(body)
    kind = ServerFailed if status >= 500 else _BY_STATUS.get(status, Refused)
    if kind is Conflict and reason == "AlreadyExists":
        kind = AlreadyExists
    if kind is Forbidden and _TERMINATING in causes:
        kind = NamespaceTerminating
    if kind is TooManyRequests and (_BUDGET in causes or _WEBHOOK in message):
        kind = DeniedForNow
    seconds = float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None
    return kind(status, reason, message, seconds)


def _status_words(body: bytes | str) -> tuple[str, str, tuple[str, ...]]:
    """The reason, the message, and the reasons of all causes in the body of a failed request."""
    try:
        status = loads(body)
    except (ValueError, RecursionError):
        status = None
    if isinstance(status, dict):
        details = status.get("details")
        causes = details.get("causes") if isinstance(details, dict) else None
        listed = causes if isinstance(causes, list) else []
        reasons = tuple(str(cause.get("reason")) for cause in listed if isinstance(cause, dict))
        return str(status.get("reason") or ""), str(status.get("message") or ""), reasons
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    return "", " ".join(text.split()), ()
