"""``topomend operator``: flags, log and signals. The work is left to ``controller``."""

import logging
import signal
import threading
from collections.abc import Callable
from typing import Any

import click

from topomend.cli.flags.log_flags import log_flags
from topomend.cli.flags.setting_flags import setting_flags
from topomend.cli.output.failures import BadInput, CannotAsk
from topomend.gating.definitions import SERVICE
from topomend.kube.connection.address import host_and_port
from topomend.reconcile.settings import OBSERVE, Settings
from topomend.runtime.log import log_to_stderr

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FOREIGN_LOGGERS = ("kopf", "kubernetes", "urllib3", "aiohttp", "asyncio")


_EXAMPLES = """\b
Examples:
  topomend operator                                  # on the cluster of KUBECONFIG
  topomend operator --leader-elect --log-format json   # one of several
"""


@click.command("operator", epilog=_EXAMPLES, context_settings={"show_default": True})
@setting_flags
@log_flags
def operator(*, log_level: str, log_format: str, **values: Any) -> None:
    """Explain pods that a kubelet refused for their topology, and relaunch bare ones on nodes that admit them.

    Connects to the cluster of KUBECONFIG, or to the one that it runs in. Runs until SIGTERM or SIGINT.
    """
    settings = Settings(**values)
    _check_address("--health-address", settings.health_address)
    _check_address("--metrics-address", settings.metrics_address)
    _check_address("--webhook-address", settings.webhook_address)
    if SERVICE not in settings.gating_service:
        raise BadInput(f"--gating-service {settings.gating_service!r} does not contain {SERVICE!r}")
    if bool(settings.pod_name) != bool(settings.pod_uid):
        raise BadInput("--pod-name and --pod-uid belong together: give both or neither")
    if settings.mode == OBSERVE and settings.startup_taint:
        raise BadInput(
            "--startup-taint needs --mode relaunch: an operator that observes takes no taint off, and new nodes would "
            "stay tainted; leave the flag out, and have nodes registered without the taint"
        )
    if settings.mode == OBSERVE and settings.defragment:
        raise BadInput(
            "--defragment needs --mode relaunch: an operator that observes moves no pod; leave the flag out, and ask "
            "kubectl numa defragment what it would bring"
        )
    if settings.mode == OBSERVE and settings.kueue:
        raise BadInput(
            "--kueue needs --mode relaunch: an operator that observes answers no admission check, and Kueue would "
            "admit nothing; leave the flag out, and the check out of the ClusterQueues"
        )
    log_to_stderr(log_level, log_format, _FOREIGN_LOGGERS)
    logging.getLogger("kopf").setLevel(logging.ERROR)  # it warns that it handles no signals; this module handles them
    # Imported here: the client is slow to import, and --help and bad input do not need it.
    from topomend.controller.operator import Operator  # noqa: PLC0415
    from topomend.kube.client import connect  # noqa: PLC0415
    from topomend.kube.connection.kubeconfig import NotConfigured  # noqa: PLC0415
    from topomend.kube.errors import Untrusted  # noqa: PLC0415
    from topomend.kube.official import Official  # noqa: PLC0415
    from topomend.runtime.threads import ThreadDied  # noqa: PLC0415

    try:
        client = connect(transport=Official)
        client.check_trust()
    except (NotConfigured, Untrusted) as error:
        raise CannotAsk(str(error)) from error
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # before the first thread, so that none receives one
    running = Operator(client, settings)
    threading.Thread(target=_stop_on_signal, args=(running.stop,), name="signals", daemon=True).start()
    try:
        running.run()
    except ThreadDied as error:
        raise CannotAsk(f"{error}; the log has its traceback") from error
    except OSError as error:
        addresses = " or ".join(filter(None, (settings.health_address, settings.metrics_address)))
        raise BadInput(f"cannot listen at {addresses}: {error.strerror or error}") from error


def _stop_on_signal(stop: Callable[[], None]) -> None:
    """Wait for a signal in a thread of its own.

    A signal handler would run in the main thread, which waits for an event. A signal just before that wait would stay
    unnoticed until the next one.
    """
    signal.sigwait(_SIGNALS)
    stop()


def _check_address(flag: str, address: str) -> None:
    if address:
        try:
            host_and_port(address)
        except ValueError as error:
            raise BadInput(f"{flag} {error}") from error
