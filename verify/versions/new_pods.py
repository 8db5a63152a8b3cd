"""Trials of new pods in a steered namespace: all gated, none refused, and how long a request and the webhook take."""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.waiting import eventually
from verify.background import Background
from verify.versions.cluster import wide_pod
from verify.versions.webhook_time import WebhookTime

from topomend.kube.client import Client
from topomend.kube.errors import APIError
from topomend.kube.resources import NAMESPACES, PODS
from topomend.sandbox import Sandbox
from topomend.wire.group import FIT_GATE

STEERED, PLAIN = "steered", "plain"
STEERED_PODS = 12
"""As many as fit on both nodes one after the other, each for a second."""

REQUESTS, REQUESTS_PER_SECOND = 500, 50

NEW_POD_SECONDS = 0.1
"""How often a new pod is tried."""


class NewPods(Background):
    """Creates pods in the steered namespace (as a dry run), and counts how many were gated."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self.created = self.gated = 0

    def run(self) -> None:
        """Create one after the other, also while the API server is being replaced."""
        while not self.ended.wait(NEW_POD_SECONDS):
            try:
                made = self._client.create(PODS, wide_pod("new"), STEERED, dry_run=True)
            except APIError:
                continue
            self.created += 1
            self.gated += is_gated(made)


def create_namespaces(client: Client) -> None:
    """A steered one and a plain one. Returns once new pods of the steered one are gated."""
    for name, labels in ((STEERED, {"topomend.io/steer": "enabled"}), (PLAIN, {})):
        metadata = {"name": name, "labels": labels}
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    eventually("new pods to be gated", lambda: is_gated(client.create(PODS, wide_pod("tried"), STEERED, dry_run=True)))


def try_steering(client: Client) -> str:
    """Of pods of the steered namespace, how many ran, and how many were refused before."""
    names = [f"steered-{number}" for number in range(STEERED_PODS)]
    for name in names:
        content = wide_pod(name)
        content["spec"] |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
        assert is_gated(client.create(PODS, content, STEERED)), name
    refused: set[str] = set()
    ran: set[str] = set()

    def all_ran() -> bool:
        for pod in client.list(PODS, namespace=STEERED).items:
            name, status = pod["metadata"]["name"], pod["status"]
            if status.get("reason") == "TopologyAffinityError":
                refused.add(pod["metadata"]["uid"])
            if status.get("phase") == "Running":
                ran.add(name)
                client.delete(PODS, name, STEERED, uid=pod["metadata"]["uid"])
        return ran == set(names)

    eventually("every steered pod to run", all_ran, 120)
    assert not refused, f"{len(refused)} steered pods were refused"
    return f"{len(ran)} ran, {len(refused)} refused"


def time_webhook(client: Client, sandbox: Sandbox) -> WebhookTime:
    """What the webhook takes of requests for new pods that are gated, where nothing else is asked for meanwhile."""
    before = WebhookTime.read(sandbox)
    _send(lambda number: _create(client, number, STEERED), REQUESTS, REQUESTS_PER_SECOND)
    return WebhookTime.read(sandbox).since(before)


def time_new_pods(client: Client) -> str:
    """The median and the 99th percentile of requests for new pods that are gated, and of as many that nothing gates."""
    seconds: dict[str, list[float]] = {PLAIN: [], STEERED: []}

    def create(number: int) -> None:
        namespace = (PLAIN, STEERED)[number % 2]
        seconds[namespace].append(_create(client, number, namespace))

    _send(create, 2 * REQUESTS, 2 * REQUESTS_PER_SECOND)
    texts = []
    for namespace in (STEERED, PLAIN):
        ordered = statistics.quantiles(seconds[namespace], n=100)
        texts.append(f"{1000 * ordered[49]:.0f}/{1000 * ordered[98]:.0f} ms")
    return f"{texts[0]}, not gated {texts[1]}"


def _send(create: Callable[[int], object], count: int, per_second: int) -> None:
    """Call ``create`` with the numbers up to ``count``, so often, however long each call takes."""
    with ThreadPoolExecutor(16) as pool:
        began, sent = time.monotonic(), []
        for number in range(count):
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            sent.append(pool.submit(create, number))
        for future in sent:
            future.result()


def _create(client: Client, number: int, namespace: str) -> float:
    """Request a new pod, as a dry run; how many seconds that took."""
    content = wide_pod(f"new-{number}")
    if namespace == PLAIN:
        del content["spec"]["containers"][0]["resources"]  # no kubelet would align it
    begin = time.monotonic()
    made = client.create(PODS, content, namespace, dry_run=True)
    seconds = time.monotonic() - begin
    assert is_gated(made) == (namespace == STEERED), made["metadata"]
    return seconds


def is_gated(pod: dict[str, Any]) -> bool:
    return any(gate["name"] == FIT_GATE for gate in pod["spec"].get("schedulingGates", ()))
