"""The parts with which pods are reconciled, whether they wait gated or were refused."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from topomend.kube.client import Client
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.autoscaling.scale_up import ScaleUp
from topomend.reconcile.explainer import Explainer
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.placement.claimed_devices import ClaimedDevices
from topomend.reconcile.placement.reservations import Reservations
from topomend.reconcile.placement.untried_pods import UntriedPods
from topomend.reconcile.placement.volumes import Volumes
from topomend.reconcile.store import Store


@dataclass(frozen=True)
class Collaborators:
    """One of each for the whole operator. Every one may be used by several threads. ``clock`` is in seconds."""

    client: Client
    store: Store
    reservations: Reservations
    explainer: Explainer
    announcer: Announcer
    metrics: Metrics
    scale_up: ScaleUp
    untried: UntriedPods
    volumes: Volumes
    devices: ClaimedDevices
    clock: Callable[[], float] = time.monotonic
