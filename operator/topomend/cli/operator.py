"""``topomend operator``: the flags of the operator, its log, and its signals."""

import logging
import signal
import sys
import threading
from collections.abc import Callable

import click

from topomend.cli.failures import BadInput, CannotAsk
from topomend.decide.eligibility import DEFAULT_MAX_ATTEMPTS
from topomend.model.address import host_and_port

_ENDS = (signal.SIGTERM, signal.SIGINT)
_LEVELS = ("debug", "info", "warning", "error")
_FOREIGN_LOGGERS = ("kopf", "kubernetes", "urllib3", "aiohttp", "asyncio")


@click.command("operator", context_settings={"auto_envvar_prefix": "TOPOMEND", "show_default": True})
@click.option(
    "--workers", type=click.IntRange(1, 64), default=4, show_envvar=True, help="Pods that are dealt with at once."
)
@click.option(
    "--max-attempts",
    type=click.IntRange(0, 1000),
    default=DEFAULT_MAX_ATTEMPTS,
    show_envvar=True,
    help="How often a pod is relaunched, where neither it nor its namespace says (topomend.io/max-attempts).",
)
@click.option(
    "--relaunch-rate",
    type=click.FloatRange(0, 1000, min_open=True),
    default=2.0,
    show_envvar=True,
    help="Relaunches a second in the whole cluster, on average.",
)
@click.option(
    "--relaunch-burst", type=click.IntRange(1, 10000), default=20, show_envvar=True, help="Relaunches at once."
)
@click.option(
    "--sweep-seconds",
    type=click.FloatRange(1, 86400),
    default=300.0,
    show_envvar=True,
    help="Seconds between two lists of everything, which find what an event did not tell.",
)
@click.option(
    "--record-hours",
    type=click.FloatRange(24, 10000),
    default=24.0,
    show_envvar=True,
    help="How long the record of an ended relaunch is kept.",
)
@click.option(
    "--health-address",
    metavar="HOST:PORT",
    default="",
    show_envvar=True,
    help="Answer liveness probes there, at /healthz; a pod names its own IP. Off unless given.",
)
@click.option(
    "--metrics-address",
    metavar="HOST:PORT",
    default="",
    show_envvar=True,
    help="Answer Prometheus there, at /metrics. Off unless given.",
)
@click.option(
    "--namespace",
    default="topomend-system",
    show_envvar=True,
    help="The operator's own namespace, where it keeps the list of owners whose new pods are gated (Brake).",
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=False,
    show_envvar=True,
    help="Act only while holding the Lease topomend-operator in that namespace, so that several may run.",
)
@click.option(
    "--identity",
    metavar="NAME",
    default="",
    show_envvar=True,
    help="Hold the Lease under this name: one that starts again under it goes on at once. No two that run at the same "
    "time may share it. A name of its own unless given.",
)
@click.option(
    "--pod-name",
    metavar="NAME",
    default="",
    envvar=["TOPOMEND_POD_NAME", "POD_NAME"],
    show_envvar=True,
    help="The operator's own pod, in that namespace: what gates pods at birth goes when the last such pod does.",
)
@click.option(
    "--pod-uid",
    metavar="UID",
    default="",
    envvar=["TOPOMEND_POD_UID", "POD_UID"],
    show_envvar=True,
    help="That pod's uid. Without both, gating ends only with kubectl numa drain.",
)
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", show_envvar=True, help="What is logged.")
def operator(  # noqa: PLR0913  one argument a flag
    *,
    workers: int,
    max_attempts: int,
    relaunch_rate: float,
    relaunch_burst: int,
    sweep_seconds: float,
    record_hours: float,
    health_address: str,
    metrics_address: str,
    namespace: str,
    leader_elect: bool,
    identity: str,
    pod_name: str,
    pod_uid: str,
    log_level: str,
) -> None:
    """Explain pods that a kubelet refused for their topology, and relaunch bare ones where replay says they fit.

    Asks the cluster of KUBECONFIG, or the one it runs in. Runs until SIGTERM or SIGINT.
    """
    _check_address("--health-address", health_address)
    _check_address("--metrics-address", metrics_address)
    if bool(pod_name) != bool(pod_uid):
        raise BadInput("--pod-name and --pod-uid name one pod: give both or neither")
    _log_to_stderr(log_level)
    # Imported here: the client takes a while, and --help and bad input need none of it.
    from topomend.controller.operator import Operator  # noqa: PLC0415
    from topomend.kube.client import NoCluster, connect  # noqa: PLC0415
    from topomend.reconcile.settings import Settings  # noqa: PLC0415

    settings = Settings(
        workers=workers,
        max_attempts=max_attempts,
        relaunch_rate=relaunch_rate,
        relaunch_burst=relaunch_burst,
        sweep_seconds=sweep_seconds,
        record_seconds=record_hours * 3600,
        health_address=health_address,
        metrics_address=metrics_address,
        namespace=namespace,
        leader_elect=leader_elect,
        identity=identity,
        pod_name=pod_name,
        pod_uid=pod_uid,
    )
    try:
        client = connect()
    except NoCluster as error:
        raise CannotAsk(str(error)) from error
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)  # before the first thread, so that none takes one
    running = Operator(client, settings)
    threading.Thread(target=_stop_when_told, args=(running.stop,), name="signals", daemon=True).start()
    try:
        running.run()
    except OSError as error:
        addresses = " or ".join(filter(None, (health_address, metrics_address)))
        raise BadInput(f"cannot listen at {addresses}: {error.strerror or error}") from error


def _stop_when_told(stop: Callable[[], None]) -> None:
    """A handler would run in the main thread, which waits for its event: a signal between the end of its last
    instruction and the wait would be seen with the next one only."""
    signal.sigwait(_ENDS)
    stop()


def _check_address(flag: str, address: str) -> None:
    if address:
        try:
            host_and_port(address)
        except ValueError as error:
            raise BadInput(f"{flag} {error}") from error


def _log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in _FOREIGN_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    # It warns that signals are not its own: they are this module's.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)


class _OneLine(logging.Formatter):
    """A record is one line: an exception's words instead of its traceback, which is for ``--log-level debug``."""

    def format(self, record: logging.LogRecord) -> str:
        if logging.getLogger().level <= logging.DEBUG:
            return super().format(record)
        message = record.getMessage()
        if record.exc_info and record.exc_info[1]:
            message += f" ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
        plain = logging.LogRecord(record.name, record.levelno, "", 0, " ".join(message.split()), None, None)
        plain.created, plain.msecs = record.created, record.msecs
        return super().format(plain)
