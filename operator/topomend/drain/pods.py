"""Pods: our gates, finalizers, annotations and labels taken off, one request a pod."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from topomend.drain.journal import Journal
from topomend.drain.relaunches import Relaunches
from topomend.kube.client import PODS, Client
from topomend.kube.errors import APIError, Conflict, NotFound
from topomend.wire.leftovers import Leftovers, leftovers

AT_ONCE = 8
"""Requests side by side: most pods of a large cluster may carry the stamp of who created them."""

TRIES = 10
"""A pod that starts is written by its kubelet several times a second."""


class Pods:
    """Cleans them."""

    def __init__(self, client: Client, relaunches: Relaunches, journal: Journal) -> None:
        self._client, self._relaunches, self._journal = client, relaunches, journal

    def clean_all(self) -> None:
        """Clean every pod of the cluster. Raises APIError where they cannot be listed."""
        pods = self._client.read(PODS, _ours).items
        with ThreadPoolExecutor(AT_ONCE) as executor:
            list(executor.map(self._clean, pods))

    def _clean(self, pod: Leftovers) -> None:
        what = f"pod {pod.namespace}/{pod.name}"
        if self._journal.dry:
            self._journal.did("pods cleaned", f"{what}: {_words(pod)}")
            return
        if pod.uid in self._relaunches.unended or pod.replaces in self._relaunches.unended:
            return  # told of with its relaunch
        try:
            if pod.replaces and not self._relaunches.end_waiting(pod):
                return
            self._take_off(what, pod)
        except APIError as error:
            self._journal.leave(what, str(error))

    def _take_off(self, what: str, pod: Leftovers) -> None:
        """Raises APIError."""
        for _ in range(TRIES):
            if self._is_clean(what, pod):
                self._journal.settle(what)
                return
            pod = replace(pod, version="")
        self._journal.leave(what, "it changes faster than it can be cleaned")

    def _is_clean(self, what: str, pod: Leftovers) -> bool:
        """One attempt, with the pod read again where it is no longer as it was listed. Raises APIError."""
        try:
            if pod.replaces or not pod.version:
                pod = leftovers(self._client.get(PODS, pod.name, pod.namespace))
            if pod.any:
                self._client.merge(PODS, pod.name, pod.patch(), pod.namespace)
                self._journal.did("pods cleaned", f"{what}: {_words(pod)}")
        except NotFound:
            return True
        except Conflict:
            return False
        return True


def _ours(content: dict[str, Any]) -> Iterable[Leftovers]:
    pod = leftovers(content)
    return [pod] if pod.any else []


def _words(pod: Leftovers) -> str:
    parts = {"gates": pod.gates, "finalizers": pod.finalizers, "annotations": pod.annotations, "labels": pod.labels}
    return "taken off: " + "; ".join(f"{kind} {', '.join(names)}" for kind, names in parts.items() if names)
