"""A right that an administrator may take away by deleting its ClusterRoleBinding. What needs it rests meanwhile.

Owns the rest and what the log says of it, once. Leaves the work to its owner.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from topomend.kube.client import Client
from topomend.kube.errors import Forbidden, NotFound
from topomend.kube.resources import SELF_SUBJECT_ACCESS_REVIEWS

OFF_SECONDS = 300.0
"""After how long to try again without the right."""


class OptionalRight:
    """``attributes`` are those of the request that needs it; ``without`` says what is not done where it is missing.

    For one thread. Whether a request was denied for want of the right, or by an admission policy or a quota that
    concerns its object alone, is asked of the API server.
    """

    def __init__(
        self,
        client: Client,
        attributes: Mapping[str, str],
        *,
        log: logging.Logger,
        without: str,
        clock: Callable[[], float],
    ) -> None:
        self._client, self._attributes = client, attributes
        self._log, self._without, self._clock = log, without, clock
        self._off_until, self._has_warned = 0.0, False

    @property
    def is_missing(self) -> bool:
        """Whether the API server has refused it in the last OFF_SECONDS."""
        return self._clock() < self._off_until

    @contextmanager
    def used(self) -> Iterator[None]:
        """Ends the work in it where the right is missing; other errors pass through, denials by admission too."""
        try:
            yield
        except Forbidden as error:
            if not self.is_denied_by(error):
                raise

    def is_denied_by(self, error: Forbidden) -> bool:
        """Whether the right is missing, so that the work rests; else ``error`` is about its object alone."""
        if self.is_missing:
            return True
        if self._is_granted():
            return False
        self._off_until = self._clock() + OFF_SECONDS
        if not self._has_warned:
            self._has_warned = True
            self._log.warning("%s: %s", self._without, error)
        return True

    def _is_granted(self) -> bool:
        """Whether this account has the right. Where even that may not be asked, it counts as missing."""
        spec = {"resourceAttributes": dict(self._attributes)}
        review = {
            "apiVersion": SELF_SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": "SelfSubjectAccessReview",
            "spec": spec,
        }
        try:
            answer = self._client.create(SELF_SUBJECT_ACCESS_REVIEWS, review)
        except (Forbidden, NotFound):
            return False
        return answer.get("status", {}).get("allowed") is True
