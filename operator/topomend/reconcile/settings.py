"""The operator's settings, as its flags and environment give them."""

from dataclasses import dataclass

from topomend.decide.eligibility import DEFAULT_MAX_ATTEMPTS

DAY = 86400.0


@dataclass(frozen=True)
class Settings:
    """``relaunch_rate`` and ``relaunch_burst`` bound the relaunches a second in the whole cluster.

    ``record_seconds`` is how long an ended record is kept; ``health_address`` and ``metrics_address`` are host:port,
    empty for no endpoint;
    ``namespace`` is the operator's own, where the brake's list and the Lease are kept. ``leader_elect`` is whether
    several operators may run, of which one acts, and ``identity`` the name under which this one holds the Lease: one
    that starts again under it goes on at once. Empty for a name that nobody had before. ``pod_name`` and ``pod_uid``
    are the pod's in that namespace that the operator runs in, empty where it runs in none.
    """

    workers: int = 4
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    relaunch_rate: float = 2.0
    relaunch_burst: int = 20
    sweep_seconds: float = 300.0
    record_seconds: float = DAY
    health_address: str = ""
    metrics_address: str = ""
    namespace: str = "topomend-system"
    leader_elect: bool = False
    identity: str = ""
    pod_name: str = ""
    pod_uid: str = ""
