"""Stop the Deployment's operators, and keep any other operator that takes part in leader election from writing.

The drain takes the Lease over and holds it until it is done. The previous holder may still write for at most
``RENEW_DEADLINE_SECONDS``. An operator that runs without leader election cannot be stopped this way.
"""

import time
import uuid
from collections.abc import Sequence

from topomend.drain.journal import Journal
from topomend.kube.client import Client
from topomend.kube.errors import NotFound
from topomend.kube.resources import DEPLOYMENTS, LEASES, PODS
from topomend.runtime.leader_election import (
    NAME,
    RENEW_DEADLINE_SECONDS,
    RENEW_SECONDS,
    RETRY_SECONDS,
    LeaderElection,
    read_holder,
)

LABELS = "app.kubernetes.io/name=topomend,app.kubernetes.io/component=operator"

ENDED = ("Failed", "Succeeded")

KEPT_SECONDS = 3600
"""How long after the drain an operator that still runs cannot take the Lease."""

POLL_SECONDS = 0.5


class Operators:
    """The operators. ``namespace`` is theirs. ``seconds`` bounds the wait for their pods, and for the Lease."""

    def __init__(self, client: Client, namespace: str, journal: Journal, seconds: float) -> None:
        self._client, self._namespace, self._journal, self._seconds = client, namespace, journal, seconds
        self._election: LeaderElection | None = None
        self._foreign_holder = ""

    def stand_down(self) -> None:
        """Scale the Deployment to 0, wait for its pods, and take the Lease. Raises APIError."""
        operator_pods = self._operator_pods()
        self._scale_down()
        if not self._journal.dry:
            self._wait_for_pods()
        self._report_foreign_operators()
        self._take_lease(operator_pods)

    def stand_by(self) -> None:
        """Release the Lease; where an operator outside the Deployment still competes for it, only after an hour."""
        if self._election is None:
            return
        self._election.stop(keep_seconds=KEPT_SECONDS if self._foreign_holder else 0)
        if self._foreign_holder:
            self._journal.report_remaining(f"operator {self._foreign_holder}", self._why_foreign(self._election))

    def _why_foreign(self, election: LeaderElection) -> str:
        words = "it runs outside the Deployment and would gate and claim pods again"
        if not election.is_open:
            return f"{words} once namespace {self._namespace}, which is being deleted, is there again; stop it"
        return (
            f"{words}; its Lease is taken for an hour; stop it, then run: kubectl -n {self._namespace} delete lease "
            f"{NAME}"
        )

    def _scale_down(self) -> None:
        for deployment in self._client.list(DEPLOYMENTS, namespace=self._namespace, labels=LABELS).items:
            if deployment["spec"].get("replicas") == 0:
                continue
            name = deployment["metadata"]["name"]
            try:
                if not self._journal.dry:
                    scale = {"spec": {"replicas": 0}}
                    self._client.merge(DEPLOYMENTS, name, scale, self._namespace, subresource="scale")
            except NotFound:
                continue
            self._journal.did("operators stopped", f"Deployment {self._namespace}/{name}: scaled to 0")

    def _wait_for_pods(self) -> None:
        deadline = time.monotonic() + self._seconds
        while names := self._operator_pods():
            if time.monotonic() > deadline:
                for name in names:
                    self._journal.report_remaining(
                        f"pod {self._namespace}/{name}",
                        f"this operator did not end within {self._seconds:.0f} s; check its node, then drain again",
                    )
                return
            time.sleep(POLL_SECONDS)

    def _operator_pods(self) -> list[str]:
        pods = self._client.list(PODS, namespace=self._namespace, labels=LABELS).items
        return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") not in ENDED]

    def staying(self, names: Sequence[str]) -> list[str]:
        """Which of these pods run on: no controller and no user has them end. Raises APIError."""
        return [name for name in names if self._stays(name)]

    def _stays(self, name: str) -> bool:
        try:
            pod = self._client.get(PODS, name, self._namespace)
        except NotFound:
            return False
        return "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in ENDED

    def _report_foreign_operators(self) -> None:
        """Report operators of other installations: only their owner knows how to stop them."""
        for pod in self._client.list(PODS, labels=LABELS, fields="status.phase=Running").items:
            metadata = pod["metadata"]
            if metadata["namespace"] != self._namespace:
                self._journal.report_remaining(
                    f"pod {metadata['namespace']}/{metadata['name']}",
                    "this operator belongs to another installation; drain that one too, with --operator-namespace",
                )

    def _take_lease(self, operator_pods: list[str]) -> None:
        holder = read_holder(self._client, self._namespace)
        if holder is None or self._journal.dry:
            return
        is_stranger = bool(holder) and not any(holder.startswith(f"{name}_") for name in operator_pods)
        if is_stranger and self._renews(holder):
            self._foreign_holder = holder
        self._election = LeaderElection(
            self._client, self._namespace, f"kubectl-numa-drain_{uuid.uuid4()}", lambda _: None, seizes=True
        )
        self._election.start()
        if not self._wait_for_lease(self._election):
            self._journal.report_remaining(f"Lease {self._namespace}/{NAME}", "it could not be taken; drain again")
            return
        if self._foreign_holder or (is_stranger and not self._election.is_open):
            self._journal.note(f"operator {holder} may no longer write: its Lease was taken or is gone for good")
            time.sleep(RENEW_DEADLINE_SECONDS)

    def _wait_for_lease(self, election: LeaderElection) -> bool:
        """Whether no operator can hold the Lease: the drain does, or its namespace is going with everything in it."""
        deadline = time.monotonic() + self._seconds
        while not (is_out := election.leads() or not election.is_open) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return is_out

    def _renews(self, holder: str) -> bool:
        """Whether the holder is alive, that is, renews its Lease. Compares versions, as the clocks may differ."""
        deadline = time.monotonic() + 2 * RENEW_SECONDS + RETRY_SECONDS
        try:
            version_before = self._client.get(LEASES, NAME, self._namespace)["metadata"]["resourceVersion"]
            while time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
                lease = self._client.get(LEASES, NAME, self._namespace)
                if lease["metadata"]["resourceVersion"] != version_before:
                    return (lease.get("spec") or {}).get("holderIdentity") == holder
        except NotFound:
            pass
        return False
