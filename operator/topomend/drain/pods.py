"""Remove our gates, finalizers, annotations and labels from every pod, one request a pod, and delete placeholders.

Leaves pods of an open relaunch to ``relaunches``.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from topomend.drain.journal import Journal
from topomend.drain.leftovers import Leftovers, leftovers
from topomend.drain.relaunches import Relaunches
from topomend.kube.client import Client
from topomend.kube.errors import APIError, Conflict, NotFound, NotPermitted
from topomend.kube.resources import PODS
from topomend.wire.group import PLACEHOLDER_GATE

AT_ONCE = 8
"""Concurrent requests: most pods of a large cluster may have the annotation that names their creator."""

TRIES = 10
"""Attempts for one pod: its kubelet updates a starting pod several times a second."""


class Pods:
    """The pods of the cluster that have gates, finalizers, annotations or labels of topomend.

    ``holding`` restricts that to gates and finalizers.
    """

    def __init__(self, client: Client, relaunches: Relaunches, journal: Journal, *, holding: bool = False) -> None:
        self._client, self._relaunches, self._journal, self._holding = client, relaunches, journal, holding

    def clean_all(self) -> None:
        """Clean every pod. Reports a pod that cannot be cleaned; raises APIError if pods cannot be listed."""
        self.clean(self._client.read(PODS, self._ours).items)

    def clean(self, pods: Iterable[Leftovers]) -> None:
        """Clean these pods. Reports a pod that cannot be cleaned; raises NotPermitted if nothing may be written."""
        with ThreadPoolExecutor(AT_ONCE) as executor:
            list(executor.map(self._clean, pods))

    def _clean(self, pod: Leftovers) -> None:
        name = f"pod {pod.namespace}/{pod.name}"
        if PLACEHOLDER_GATE in pod.gates:
            self._delete(name, pod)
            return
        if self._journal.dry:
            self._journal.did("pods cleaned", f"{name}: {_describe(pod)}")
            return
        if pod.uid in self._relaunches.unended or pod.replaces in self._relaunches.unended:
            return  # the journal has its relaunch
        try:
            if pod.replaces and not self._relaunches.end_waiting(pod):
                return
            self._strip(name, pod)
        except NotPermitted:
            raise
        except APIError as error:
            self._journal.report_remaining(name, str(error))

    def _delete(self, name: str, placeholder: Leftovers) -> None:
        """Delete a placeholder: without its gate it would run."""
        self._journal.did("placeholders deleted", name)
        if self._journal.dry:
            return
        try:
            with suppress(NotFound, Conflict):
                self._client.delete(PODS, placeholder.name, placeholder.namespace, uid=placeholder.uid)
        except NotPermitted:
            raise
        except APIError as error:
            self._journal.report_remaining(name, str(error))

    def _strip(self, name: str, pod: Leftovers) -> None:
        """Patch the pod until it has nothing of topomend, at most TRIES times. Raises APIError."""
        for _ in range(TRIES):
            if self._try_strip(name, pod):
                self._journal.resolve(name)
                return
            pod = replace(pod, version="")
        self._journal.report_remaining(name, "it changes too often to be cleaned; drain again")

    def _try_strip(self, name: str, pod: Leftovers) -> bool:
        """Make one attempt; read the pod again where it may have changed since it was listed. Raises APIError."""
        try:
            if pod.replaces or not pod.version:
                pod = self._read(self._client.get(PODS, pod.name, pod.namespace))
            if pod.any:
                self._client.merge(PODS, pod.name, pod.patch(), pod.namespace)
                self._journal.did("pods cleaned", f"{name}: {_describe(pod)}")
        except NotFound:
            return True
        except Conflict:
            return False
        return True

    def _ours(self, content: dict[str, Any]) -> Iterable[Leftovers]:
        """What is to be removed of this Pod object, if anything is."""
        pod = self._read(content)
        return [pod] if pod.any else []

    def _read(self, content: dict[str, Any]) -> Leftovers:
        pod = leftovers(content)
        return pod.holding if self._holding else pod


def _describe(pod: Leftovers) -> str:
    parts = {"gates": pod.gates, "finalizers": pod.finalizers, "annotations": pod.annotations, "labels": pod.labels}
    return "removed: " + "; ".join(f"{kind} {', '.join(names)}" for kind, names in parts.items() if names)
