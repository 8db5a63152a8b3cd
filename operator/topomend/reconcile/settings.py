"""The operator's settings: each declared once, with its default, bounds and help, from which ``cli`` makes a flag.

The flag of ``relist_seconds`` is ``--sweep-seconds``, that of any other field its name.
"""

from dataclasses import dataclass, field
from typing import Any

from topomend.decide.eligibility import DEFAULT_MAX_ATTEMPTS


@dataclass(frozen=True, slots=True)
class Flag:
    """What a flag needs beside its name, type and default. Bounds are inclusive unless ``min_open``.

    ``environment`` are variables that are read besides ``TOPOMEND_<FLAG>``, such as those of the downward API.
    """

    help: str
    minimum: float | None = None
    maximum: float | None = None
    min_open: bool = False
    metavar: str | None = None
    name: str = ""
    environment: tuple[str, ...] = ()


FLAG = "flag"
"""The key of a field's ``Flag`` in its metadata."""


def _setting(text: str, *, default: Any, **flag: Any) -> Any:
    return field(default=default, metadata={FLAG: Flag(text, **flag)})


@dataclass(frozen=True)
class Settings:
    """The operator's settings. Addresses are HOST:PORT, empty for none."""

    workers: int = _setting("Pods that are reconciled at the same time.", default=4, minimum=1, maximum=64)
    max_attempts: int = _setting(
        "How often a pod is relaunched, unless the pod or its namespace says otherwise (topomend.io/max-attempts).",
        default=DEFAULT_MAX_ATTEMPTS,
        minimum=0,
        maximum=1000,
    )
    relaunch_rate: float = _setting(
        "Relaunches a second in the whole cluster, on average.", default=2.0, minimum=0, maximum=1000, min_open=True
    )
    relaunch_burst: int = _setting("Relaunches at once.", default=20, minimum=1, maximum=10_000)
    relist_seconds: float = _setting(
        "Seconds between two lists of all objects, which repair what a watch missed.",
        default=300.0,
        minimum=1,
        maximum=86_400,
        name="sweep-seconds",
    )
    record_hours: float = _setting(
        "How long the record of an ended relaunch is kept.", default=24.0, minimum=24, maximum=10_000
    )
    health_address: str = _setting(
        "Answer liveness probes at this address, path /healthz; in a pod, name the pod's IP. Off unless given.",
        default="",
        metavar="HOST:PORT",
    )
    metrics_address: str = _setting(
        "Answer Prometheus at this address, path /metrics. Off unless given.", default="", metavar="HOST:PORT"
    )
    namespace: str = _setting(
        "The operator's own namespace, where it keeps the list of owners whose new pods are gated (Brake).",
        default="topomend-system",
    )
    leader_elect: bool = _setting(
        "Act only while holding the Lease topomend-operator in that namespace, so that several may run.", default=False
    )
    identity: str = _setting(
        "Hold the Lease under this name: an operator that restarts under its name continues at once. No two that run "
        "at the same time may share a name. A new name at each start unless given.",
        default="",
        metavar="NAME",
    )
    pod_name: str = _setting(
        "The operator's own pod, in that namespace. The parameters that gate pods at birth are deleted with the last "
        "such pod.",
        default="",
        metavar="NAME",
        environment=("POD_NAME",),
    )
    pod_uid: str = _setting(
        "The uid of that pod. Without both, gating ends only with kubectl numa drain.",
        default="",
        metavar="UID",
        environment=("POD_UID",),
    )

    @property
    def record_seconds(self) -> float:
        """How long the record of an ended relaunch is kept."""
        return self.record_hours * 3600
