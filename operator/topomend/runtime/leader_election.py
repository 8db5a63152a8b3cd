"""Leader election by a Lease (coordination.k8s.io/v1): at most one of several operators writes at a time.

A holder renews; the others watch for a record that stays the same for its whole duration, by a clock of their own that
only goes forward: times in the Lease are for people, and machines whose clocks differ still agree. A holder that could
not renew stops writing five seconds before another may take over. That is no fence: a request sent in time can take
effect late, and what must not happen twice is guarded by the relaunch protocol itself.
Source of the rules: k8s.io/client-go/tools/leaderelection.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from topomend.kube.client import LEASES, Client
from topomend.kube.errors import APIError, Conflict, NotFound

NAME = "topomend-operator"

DURATION_SECONDS = 15.0
"""How long a record stands without being renewed."""

RENEW_DEADLINE_SECONDS = 10.0
"""How long after the last renewal its holder still writes."""

RENEW_SECONDS = 2.0
LOOK_SECONDS = 1.0
"""How often a holder renews, and how often the others look: a Lease that was given up is taken within two seconds."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Sight:
    """A Lease as it was read, and when it was first seen so."""

    version: str
    holder: str
    duration: float
    since: float


class LeaderElection:
    """One candidate. ``on_change`` is told, from the candidate's own thread, when it begins and when it ceases to lead.

    ``client`` must be one that may always write. ``seizes`` is whether it takes the Lease from whoever holds it, to
    keep all others from writing: who held it may write on for ``RENEW_DEADLINE_SECONDS``.
    """

    def __init__(  # noqa: PLR0913  what a candidate differs by
        self,
        client: Client,
        namespace: str,
        identity: str,
        on_change: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        seizes: bool = False,
    ) -> None:
        self._client, self._namespace, self._identity, self._seizes = client, namespace, identity, seizes
        self._on_change, self._clock = on_change, clock
        self._sight: _Sight | None = None
        self._until = float("-inf")
        self._told = False
        self._complaint = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._campaign, name="election", daemon=True)

    def leads(self) -> bool:
        """Whether this candidate may write now."""
        return self._clock() < self._until

    def start(self) -> None:
        """Begin to stand for election."""
        self._thread.start()

    def stop(self, keep_seconds: int = 0) -> None:
        """Stand no more, and give the Lease up so that another need not wait for its end; or leave it as it is for
        ``keep_seconds``, whoever waits for it."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(RENEW_SECONDS)
        if self.leads():
            self._leave(
                {"holderIdentity": self._identity if keep_seconds else "", "leaseDurationSeconds": keep_seconds or 1}
            )

    def stand(self) -> None:
        """One look, and one attempt to take or renew the Lease where that is due."""
        begun = self._clock()
        try:
            self._until = begun + RENEW_DEADLINE_SECONDS if self._take_or_renew() else float("-inf")
            self._complaint = ""
        except Conflict:
            _log.debug("another candidate was faster")
            self._sight = None
        except APIError as error:
            self._complain(str(error))
        self._tell()

    def _campaign(self) -> None:
        while not self._stopped.is_set():
            self.stand()
            self._stopped.wait(RENEW_SECONDS if self.leads() else LOOK_SECONDS)

    def _complain(self, problem: str) -> None:
        if problem != self._complaint:
            self._complaint = problem
            _log.warning("Lease %s/%s: %s; tried again", self._namespace, NAME, problem)

    def _tell(self) -> None:
        leads = self.leads()
        if leads != self._told:
            self._told = leads
            self._on_change(leads)

    def _take_or_renew(self) -> bool:
        """Whether the Lease is ours. Raises APIError."""
        if self._sight is None or self._sight.holder != self._identity or not self.leads():
            found = self._look()
            is_taken = found and found.holder not in ("", self._identity) and not self._seizes
            if found and is_taken and self._clock() < found.since + found.duration:
                return False
        return self._write(self._spec())

    def _look(self) -> _Sight | None:
        try:
            content = self._client.get(LEASES, NAME, self._namespace)
        except NotFound:
            self._sight = None
            return None
        seen = _read(content, self._clock())
        if self._sight is None or self._sight.version != seen.version:
            self._sight = seen
        return self._sight

    def _spec(self) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        renewed = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(DURATION_SECONDS),
            "renewTime": now,
        }
        return renewed if self._sight and self._sight.holder == self._identity else renewed | {"acquireTime": now}

    def _write(self, spec: dict[str, Any]) -> bool:
        if self._sight is None:
            content = {
                "apiVersion": LEASES.api_version,
                "kind": "Lease",
                "metadata": {"name": NAME, "namespace": self._namespace},
                "spec": spec,
            }
            answer = self._client.create(LEASES, content, self._namespace)
        else:
            patch = {"metadata": {"resourceVersion": self._sight.version}, "spec": spec}
            answer = self._client.merge(LEASES, NAME, patch, self._namespace)
        self._sight = _read(answer, self._clock())
        return True

    def _leave(self, spec: dict[str, Any]) -> None:
        self._until = float("-inf")
        try:
            self._write(spec)
        except APIError as error:
            _log.warning("Lease %s/%s could not be given up and stands until its end: %s", self._namespace, NAME, error)


def read_holder(client: Client, namespace: str) -> str | None:
    """Who holds the Lease, empty where nobody does; None where there is no Lease. Raises APIError."""
    try:
        content = client.get(LEASES, NAME, namespace)
    except NotFound:
        return None
    return (content.get("spec") or {}).get("holderIdentity") or ""


def _read(content: dict[str, Any], now: float) -> _Sight:
    spec = content.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    return _Sight(
        version=content["metadata"]["resourceVersion"],
        holder=spec.get("holderIdentity") or "",
        duration=float(duration) if isinstance(duration, int) else DURATION_SECONDS,
        since=now,
    )
