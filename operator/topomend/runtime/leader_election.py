"""Leader election by a Lease (coordination.k8s.io/v1): at most one of several operators writes at a time.

The holder renews; the others take over when the Lease has not changed for its whole duration, each by its own clock
that only goes forward: the times in the Lease are for people, so clocks may differ. A holder that could not renew stops
writing five seconds before another may take over. This is not a fence, for a request sent in time can take effect late;
the relaunch protocol itself prevents duplicates.
Source of the rules: k8s.io/client-go/tools/leaderelection.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from topomend.kube.client import Client
from topomend.kube.errors import APIError, Conflict, NamespaceTerminating, NotFound
from topomend.kube.resources import LEASES
from topomend.runtime.timestamp import micro_timestamp

NAME = "topomend-operator"

DURATION_SECONDS = 15.0
"""How long the Lease is valid without a renewal."""

RENEW_DEADLINE_SECONDS = 10.0
"""How long after its last renewal the holder still writes."""

RENEW_SECONDS = 2.0
RETRY_SECONDS = 1.0
"""How often the holder renews, and the others read: a Lease that was released is taken within two seconds."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Observed:
    """A Lease as it was read, and when it was first read so."""

    version: str
    holder: str
    duration: float
    since: float


class LeaderElection:
    """One candidate. ``on_change`` is called, in the candidate's thread, when it starts and when it ceases to lead.

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
        self._observed: _Observed | None = None
        self._until = float("-inf")
        self._announced = False
        self._complaint = ""
        self._can_be_created = True
        self._stopped = threading.Event()
        self._thread = self._new_thread()

    def leads(self) -> bool:
        """Whether this candidate may write now."""
        return self._clock() < self._until

    @property
    def complaint(self) -> str:
        """Why the Lease could not be read or written at the last attempt; empty if it could."""
        return self._complaint

    @property
    def is_open(self) -> bool:
        """Whether anybody can take the Lease: not once it is gone and its namespace is being deleted or gone too."""
        return self._can_be_created

    def start(self) -> None:
        """Start to compete for the Lease."""
        self._thread.start()

    def stop(self, keep_seconds: int = 0) -> None:
        """Stop, and release the Lease so that another need not wait for its end.

        With ``keep_seconds`` the Lease stays as it is for so long, whoever waits for it.
        """
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(RENEW_SECONDS)
        if self.leads():
            self._release(
                {"holderIdentity": self._identity if keep_seconds else "", "leaseDurationSeconds": keep_seconds or 1}
            )

    @contextmanager
    def renewing(self) -> Iterator[None]:
        """Compete for the Lease meanwhile, and leave it as it is afterwards. For a candidate that is not started.

        ``stop`` by another thread ends it early.
        """
        self._stopped.clear()
        self._thread = self._new_thread()
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join()

    def try_acquire_or_renew(self) -> None:
        """Read the Lease, and acquire or renew it where that is due (client-go: tryAcquireOrRenew)."""
        begun = self._clock()
        try:
            self._until = begun + RENEW_DEADLINE_SECONDS if self._take_or_renew() else float("-inf")
            self._complaint = ""
        except Conflict:
            _log.debug("another candidate was faster")
            self._observed = None
        except APIError as error:
            self._complain(str(error))
        self._announce()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._campaign, name="election", daemon=True)

    def _campaign(self) -> None:
        while not self._stopped.is_set():
            self.try_acquire_or_renew()
            self._stopped.wait(RENEW_SECONDS if self.leads() else RETRY_SECONDS)

    def _complain(self, problem: str) -> None:
        if problem != self._complaint:
            self._complaint = problem
            _log.warning("Lease %s/%s: %s; retried", self._namespace, NAME, problem)

    def _announce(self) -> None:
        leads = self.leads()
        if leads != self._announced:
            self._announced = leads
            self._on_change(leads)

    def _take_or_renew(self) -> bool:
        """Whether the Lease is ours. Raises APIError."""
        if self._observed is None or self._observed.holder != self._identity or not self.leads():
            observed = self._observe()
            is_taken = observed and observed.holder not in ("", self._identity) and not self._seizes
            if observed and is_taken and self._clock() < observed.since + observed.duration:
                return False
        return self._write(self._spec())

    def _observe(self) -> _Observed | None:
        try:
            content = self._client.get(LEASES, NAME, self._namespace)
        except NotFound:
            self._observed = None
            return None
        self._can_be_created = True
        seen = _read(content, self._clock())
        if self._observed is None or self._observed.version != seen.version:
            self._observed = seen
        return self._observed

    def _spec(self) -> dict[str, Any]:
        now = micro_timestamp()
        renewed = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(DURATION_SECONDS),
            "renewTime": now,
        }
        return renewed if self._observed and self._observed.holder == self._identity else renewed | {"acquireTime": now}

    def _write(self, spec: dict[str, Any]) -> bool:
        if self._observed is None:
            content = {
                "apiVersion": LEASES.api_version,
                "kind": "Lease",
                "metadata": {"name": NAME, "namespace": self._namespace},
                "spec": spec,
            }
            answer = self._create(content)
        else:
            patch = {"metadata": {"resourceVersion": self._observed.version}, "spec": spec}
            answer = self._client.merge(LEASES, NAME, patch, self._namespace)
        self._observed = _read(answer, self._clock())
        return True

    def _create(self, content: dict[str, Any]) -> dict[str, Any]:
        try:
            made = self._client.create(LEASES, content, self._namespace)
        except (NamespaceTerminating, NotFound):
            self._can_be_created = False
            raise
        self._can_be_created = True
        return made

    def _release(self, spec: dict[str, Any]) -> None:
        self._until = float("-inf")
        try:
            self._write(spec)
        except APIError as error:
            _log.warning(
                "Lease %s/%s could not be released and is valid until its end: %s", self._namespace, NAME, error
            )


def read_holder(client: Client, namespace: str) -> str | None:
    """The holder of the Lease; empty if it was released, None if there is no Lease. Raises APIError."""
    try:
        content = client.get(LEASES, NAME, namespace)
    except NotFound:
        return None
    return (content.get("spec") or {}).get("holderIdentity") or ""


def _read(content: dict[str, Any], now: float) -> _Observed:
    spec = content.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    return _Observed(
        version=content["metadata"]["resourceVersion"],
        holder=spec.get("holderIdentity") or "",
        duration=float(duration) if isinstance(duration, int) else DURATION_SECONDS,
        since=now,
    )
