"""The operator's own objects, Brake and Steering: kopf watches them and tells the gating of each change.

They are two small objects in one namespace, of which each change is to be known within milliseconds. kopf has what that
takes: handlers, an account that is renewed, watches that are kept alive. It writes nothing: no annotations, no
finalizers, no Events. It ends altogether on an error that it does not expect, and is then started again after a pause.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence, Set
from contextlib import closing, suppress
from functools import partial
from typing import Any

import aiohttp
import kopf
from multidict import CIMultiDict

from topomend.base.plain_text import plain
from topomend.kube.client import USER_AGENT, Client
from topomend.kube.connection.access import Access
from topomend.kube.connection.kubeconfig import NotConfigured
from topomend.kube.connection.tls import MadeAnew
from topomend.kube.resources import Resource
from topomend.kube.words import not_accepted
from topomend.runtime.backoff import Exponential

PAUSES = Exponential(0.5, 5.0, jitter=0.5)

WATCH_SECONDS = 60
"""How long one watch lasts before kopf renews it."""

LOGIN_SECONDS = 2.0
"""Before another attempt with an account that the API server has not accepted."""

HUNG_SECONDS = 1.0
"""How long a task of kopf may go on once kopf ends, and after each cancellation that it ignores."""

CLOSE_SECONDS = 1.0
"""How long the end of kopf waits for its connections to close: ``stop`` waits for five seconds at most."""

IDENTITY = "topomend-operator"
"""kopf's name for this operator, which only peering shows, and peering is off. Without one kopf asks for the name of
the user that runs it, and a container's user has none."""

Told = Callable[[Resource, dict[str, Any], bool], None]
"""Gets the kind of an object, the object, and whether it was deleted."""

_log = logging.getLogger(__name__)


class NotServed(Exception):
    """A kind is not there; the message names it."""


class OwnObjects:
    """Watches the objects of these names in ``namespace``, the operator's own, from ``start`` until ``stop``.

    It waits for their kinds, also where one is deleted and comes back. ``told`` is called in kopf's thread, and returns
    quickly.
    """

    def __init__(self, access: Access, namespace: str, named: Sequence[tuple[Resource, str]], told: Told) -> None:
        self._access, self._namespace, self._named, self._told = access, namespace, named, told
        self._stopped, self._logins = threading.Event(), 0
        self._connector: aiohttp.TCPConnector | None = None
        self._closing: asyncio.Future[None] | None = None
        self._end_kopf: Callable[[], object] = _no_kopf
        self._thread = threading.Thread(target=self._keep_up, name="kopf", daemon=True)

    def start(self) -> None:
        """Start to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End kopf, for five seconds at most."""
        self._stopped.set()
        with suppress(RuntimeError):  # its loop is closed: it has ended by itself
            self._end_kopf()
        logging.getLogger("kopf").setLevel(logging.CRITICAL)  # it logs the requests that it cancels itself as errors
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _keep_up(self) -> None:
        for pause in PAUSES:
            try:
                self._check_kinds()
                asyncio.run(self._operate())
            except Exception as error:  # noqa: BLE001  whatever ended kopf, it must come back
                _log.warning("kopf ended (%s); it is restarted", plain(f"{type(error).__name__}: {error}", 300))
            if self._stopped.wait(pause):
                return

    def _check_kinds(self) -> None:
        """Raise NotServed for a kind that is not there: kopf would start without it, and not see it come later."""
        with closing(Client(self._access)) as client:
            for resource, _ in self._named:
                if not client.serves(resource):
                    raise NotServed(f"the API server serves no {resource.plural} of {resource.api_version}")

    async def _operate(self) -> None:
        registry = kopf.OperatorRegistry()
        kopf.on.startup(registry=registry)(self._configure)
        kopf.on.login(registry=registry)(self._login)
        ended = asyncio.Event()
        kopf.on.cleanup(registry=registry)(partial(_note, ended))
        for resource, _ in self._named:
            self._handle(resource, registry)
        # Not a flag of threads: kopf would wait for it in a thread, for which the loop's end would wait.
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._logins, self._end_kopf = 0, partial(loop.call_soon_threadsafe, self._hang_up, stop)
        if self._stopped.is_set():
            return
        hung = asyncio.create_task(_end_hung_tasks(ended, asyncio.all_tasks()))
        try:
            await kopf.operator(
                registry=registry,
                identity=IDENTITY,  # type: ignore[arg-type]  # kopf has a type of its own, which it does not export
                standalone=True,
                namespaces=[self._namespace],
                stop_flag=stop,
            )
        finally:
            hung.cancel()
            if self._closing:  # a loop that ends before leaves sockets open
                await asyncio.wait([self._closing], timeout=CLOSE_SECONDS)

    def _hang_up(self, stop: asyncio.Event) -> None:
        """Have kopf end, and its connections with it: their TLS would else wait for the server's goodbye."""
        stop.set()
        if self._connector:
            self._closing = asyncio.ensure_future(self._connector.close(abort_ssl=True))

    async def _configure(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True  # of kinds that appear later, which would need rights in the whole cluster
        settings.watching.server_timeout = WATCH_SECONDS
        settings.watching.connect_timeout = settings.networking.connect_timeout = 5.0
        settings.networking.request_timeout = 30.0
        settings.networking.error_backoffs = PAUSES  # without end
        for resource, name in self._named:  # the role names them
            settings.watching.field_selectors[resource.plural] = f"metadata.name={name}"

    def _handle(self, resource: Resource, registry: kopf.OperatorRegistry) -> None:
        group, _, version = resource.api_version.rpartition("/")

        @kopf.on.event(group, version, resource.plural, registry=registry)
        async def tell(event: kopf.RawEvent, **_: Any) -> None:
            self._told(resource, dict(event["object"]), event["type"] == "DELETED")

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        """kopf asks at its start, and again when the API server does not accept the account or a session is closed."""
        if self._logins:
            _log.warning("%s", not_accepted(self._access))
            self._access.credentials.renew()
            await asyncio.sleep(LOGIN_SECONDS)
        self._logins += 1
        server = self._access.server
        self._connector = aiohttp.TCPConnector(
            ssl=MadeAnew(server.tls, server.certified_name) if server.tls else True,
            force_close=True,  # each watch comes with the certificate of its time
        )
        session = aiohttp.ClientSession(
            connector=self._connector,
            headers={"User-Agent": USER_AGENT},
            proxy=server.proxy.shown if server.proxy else None,
            middlewares=[self._sign],
        )
        return kopf.AiohttpSession(server=self._access.url, aiohttp_session=session)

    async def _sign(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Have the request come from the account as it is now. An exec plugin may take long, so it has a thread."""
        try:
            headers = await asyncio.to_thread(self._access.credentials.headers)
        except NotConfigured as error:
            raise aiohttp.ClientConnectionError(str(error)) from error  # kopf tries again
        for name, value in headers:
            request.headers.add(name, value)
        proxy = self._access.server.proxy
        if proxy and proxy.authorization:
            request.proxy_headers = CIMultiDict({"Proxy-Authorization": proxy.authorization})
        return await send(request)


async def _note(ended: asyncio.Event, **_: Any) -> None:
    ended.set()


async def _end_hung_tasks(ended: asyncio.Event, kept: Set[asyncio.Task[Any]]) -> None:
    """Cancel all tasks but ``kept`` until they end, once kopf does. It cancels them once, and then waits without end.

    A watch that tries its request again may take that one cancellation for a pause (kopf._cogs.clients.api:stream).
    """
    await ended.wait()
    while True:
        await asyncio.sleep(HUNG_SECONDS)
        for task in asyncio.all_tasks() - kept - {asyncio.current_task()}:
            task.cancel()


def _no_kopf() -> None:
    """There is none to be ended yet."""
