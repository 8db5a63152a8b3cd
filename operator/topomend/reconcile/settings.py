"""The operator's settings: each declared once, with its default, bounds and help, from which ``cli`` makes a flag."""

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
    environment: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


OBSERVE, RELAUNCH = "observe", "relaunch"
"""The modes: explain refusals, and write nothing but Events; also gate, relaunch and so on."""

FLAG = "flag"
"""The key of a field's ``Flag`` in its metadata."""


def _setting(text: str, *, default: Any, **flag: Any) -> Any:
    return field(default=default, metadata={FLAG: Flag(text, **flag)})


@dataclass(frozen=True)
class Settings:
    """The operator's settings. Addresses are HOST:PORT, empty for none."""

    workers: int = _setting(
        "The number of pods that are reconciled at the same time.", default=4, minimum=1, maximum=64
    )
    mode: str = _setting(
        "observe explains refusals and writes nothing but Events. relaunch also gates pods, relaunches refused ones, "
        'brakes storms and so on, except for pods and namespaces with the annotation topomend.io/relaunch: "false".',
        default=RELAUNCH,
        choices=(OBSERVE, RELAUNCH),
    )
    max_attempts: int = _setting(
        "The most relaunches of one pod. The annotation topomend.io/max-attempts of a pod or namespace overrides it.",
        default=DEFAULT_MAX_ATTEMPTS,
        minimum=0,
        maximum=1000,
    )
    relaunch_rate: float = _setting(
        "The average number of relaunches a second in the whole cluster.",
        default=2.0,
        minimum=0,
        maximum=1000,
        min_open=True,
    )
    relaunch_burst: int = _setting(
        "The most relaunches at once; one namespace has half of them.", default=20, minimum=1, maximum=10_000
    )
    relist_seconds: float = _setting(
        "Seconds between two relists of all objects. A relist repairs gaps in the watches.",
        default=300.0,
        minimum=1,
        maximum=86_400,
    )
    record_hours: float = _setting(
        "Hours for which the record of an ended relaunch is kept.", default=24.0, minimum=24, maximum=10_000
    )
    health_address: str = _setting(
        "Serve /healthz and /readyz for probes at this address; in a pod, the pod's IP. Off by default.",
        default="",
        metavar="HOST:PORT",
    )
    metrics_address: str = _setting(
        "Serve /metrics for Prometheus at this address. Off by default.", default="", metavar="HOST:PORT"
    )
    namespace: str = _setting(
        "The operator's own namespace, with its Lease and the objects that the gating policies read.",
        default="topomend-system",
    )
    service_account: str = _setting(
        "The operator's own account, in --namespace. Pods that it creates get no stamp of their creator.",
        default="topomend-operator",
        metavar="NAME",
        environment=("POD_SERVICE_ACCOUNT",),
    )
    webhook_address: str = _setting(
        "Serve the admission webhook at this address. Required before Kubernetes 1.36; on newer clusters it covers "
        "restarts of the API server. Off by default.",
        default="",
        metavar="HOST:PORT",
    )
    webhook_url: str = _setting(
        "The URL at which the API server reaches the webhook. Default: that of the Service --gating-service.",
        default="",
        metavar="URL",
    )
    gating_service: str = _setting(
        "The webhook's Service and the Secret with its certificate, in --namespace. The policies and webhook "
        "configurations have the same prefix and suffix.",
        default="topomend-gating",
        metavar="NAME",
    )
    startup_taint: bool = _setting(
        "Take the taint topomend.io/topology-not-known off a node once its NodeTopology is Ready. Needs the rights of "
        "the component startup-taint.",
        default=False,
    )
    placeholders: bool = _setting(
        "Create placeholders in --namespace: pods that never run, for which cluster autoscalers add nodes in the place "
        "of pods that wait.",
        default=False,
    )
    claims: bool = _setting(
        "Prefer nodes on which free devices of a pod's claims (DRA) are where its CPUs would be. Needs the rights of "
        "the component claims.",
        default=False,
    )
    defragment: bool = _setting(
        "Move pods of steered namespaces, one after another, for less fragmentation of pools of nodes. Needs the "
        "rights of the component defragment.",
        default=False,
    )
    defragment_minutes: float = _setting(
        "Minutes from the end of one campaign of moves to the next search.",
        default=10.0,
        minimum=0,
        maximum=10_000,
        min_open=True,
    )
    defragment_moves: int = _setting("The most pods that one campaign moves.", default=5, minimum=1, maximum=100)
    defragment_rate: float = _setting(
        "The most pods that are moved in an hour in the whole cluster, at even distances.",
        default=6.0,
        minimum=0,
        maximum=1000,
        min_open=True,
    )
    defragment_threshold: float = _setting(
        "By so many percent of one node a move has the fragmentation of its pool fall, at least.",
        default=10.0,
        minimum=0,
        maximum=100,
        min_open=True,
    )
    defragment_priority: int = _setting(
        "The highest priority of pods that are moved; pods without a class have 0.",
        default=0,
        minimum=-(2**31),
        maximum=2**31 - 1,
    )
    kueue: bool = _setting(
        "Answer Kueue's admission checks of the controller topomend.io/numa-fit: a workload is admitted once all its "
        "pods fit by replay. Needs the rights of the component kueue.",
        default=False,
    )
    leader_elect: bool = _setting(
        "Act only while holding the Lease topomend-operator in --namespace, so that several operators may run.",
        default=False,
    )
    identity: str = _setting(
        "The holder's name in the Lease. An operator that restarts under the same name continues at once. Operators "
        "that run at the same time must not share a name. Default: a new name at each start.",
        default="",
        metavar="NAME",
    )
    pod_name: str = _setting(
        "The operator's own pod, in --namespace. The objects that enable gating are deleted with the last such pod.",
        default="",
        metavar="NAME",
        environment=("POD_NAME",),
    )
    pod_uid: str = _setting(
        "The uid of that pod. Without --pod-name and --pod-uid, gating ends only with kubectl numa drain.",
        default="",
        metavar="UID",
        environment=("POD_UID",),
    )

    @property
    def record_seconds(self) -> float:
        """Seconds for which the record of an ended relaunch is kept."""
        return self.record_hours * 3600
