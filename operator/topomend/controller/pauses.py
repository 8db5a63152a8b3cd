"""How long the operator's threads wait: between two looks, and after an error before the next request."""

from topomend.kube.errors import Forbidden, Invalid, MethodNotAllowed, retry_after

TICK_SECONDS = 0.5

FORBIDDEN_SECONDS = 1.0
"""Before a request is repeated that the API server has forbidden: permissions do not change within milliseconds."""


def pause_after(error: Exception) -> float:
    """How many seconds to leave the API server alone after this error."""
    if isinstance(error, Forbidden | Invalid | MethodNotAllowed):
        return FORBIDDEN_SECONDS
    return retry_after(error)
