"""The watch streams of pods, nodes, published states and records: kopf, restarted whenever it ends.

kopf runs in a thread and an event loop of its own. It keeps the watches alive and writes nothing: no annotations, no
finalizers, no Events. When one of its watchers dies (an unexpected ERROR event, a broken line, an unlistable kind),
kopf ends altogether; it is restarted after a growing pause, which lists everything again.

kopf reports neither the lists nor the watches that it starts, so its HTTP session is ours, with traces. A list means
that events were missed, some of them deletions: a relist repairs that. kopf would hold all objects of a list at once,
so it gets empty lists: it needs only the resourceVersion to watch from. For the same reason it gets no object of a
watch. It would start a task for each, and keep it and a copy for a while: that is a millisecond, for which everybody
else's events wait. Our session takes the events out of the stream as they arrive, hands them to ingest, and leaves kopf
a bookmark, from which it goes on watching. A kind that is not watched for long means that the streams are broken.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import aiohttp
import kopf
from multidict import CIMultiDict

from topomend.base.plain_text import plain
from topomend.controller.ingest import WatchEvent, watch_event
from topomend.kube.client import NODE_TOPOLOGIES, NODES, PODS, RELAUNCHES, UNAUTHORIZED, USER_AGENT
from topomend.kube.connection.access import Access
from topomend.kube.connection.kubeconfig import NotConfigured
from topomend.kube.connection.tls import MadeAnew
from topomend.kube.words import not_accepted
from topomend.runtime.backoff import Exponential

PAUSES = Exponential(0.5, 5.0, jitter=0.5)

LASTING_SECONDS = 20.0
"""Streams that lasted this long have recovered: the next pause is the first one again."""

END_SECONDS, END_ROUNDS = 0.5, 20
"""How long kopf may take to end by itself, and how often its tasks are then cancelled, at this interval."""

LIST_SECONDS = 30.0
"""How long one request of a list may take; kopf's own five minutes would be a gap of five minutes."""

WATCH_SECONDS = 300
"""How long one watch lasts before it is renewed from where it was; the renewal shows that the streams work.

A whole number: the API server takes no other."""

LATE_SECONDS = 120.0
"""How long a kind may be unwatched before it counts as a fault: far longer than any pause or unanswered watch."""

KINDS = (PODS, NODES, NODE_TOPOLOGIES, RELAUNCHES)
_PLURALS = frozenset(kind.plural for kind in KINDS)

NOT_RUNNING = "status.phase!=Running"
"""The pods that are watched: those that wait, and those that ended, whose resources are free."""

IDENTITY = "topomend-operator"
"""kopf's name for this operator. Only peering shows it, and peering is off. Without one kopf asks for the user's name
and looks the host up in reverse (``kopf._core.engines.peering.detect_own_id``); a container's user has no name."""

NO_NAME = "-"
"""No object has this name: the API server rejects it."""

_log = logging.getLogger(__name__)


class WatchStreams:
    """The streams of the API server of ``access``.

    ``on_event`` gets every object; ``on_list`` is called when events may have been missed.
    """

    def __init__(
        self,
        access: Access,
        on_event: Callable[[WatchEvent], None],
        on_list: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._on_event, self._on_list, self._clock = on_event, on_list, clock
        self._watched_by: dict[str, float] = {}
        self._unwatched: set[str] = set()
        self._problem = ""
        self._watching: dict[str, asyncio.BaseTransport] = {}
        self._stopped = threading.Event()
        self._end_kopf: Callable[[], object] = _no_kopf
        self._thread = threading.Thread(target=self._keep_up, name="streams", daemon=True)

    def start(self) -> None:
        """Start to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the streams, for five seconds at most."""
        self._stopped.set()
        with suppress(RuntimeError):  # its loop is closed: it has ended by itself
            self._end_kopf()
        # kopf logs the requests that it cancels itself as errors.
        logging.getLogger("kopf").setLevel(logging.CRITICAL)
        if self._thread.is_alive():
            self._thread.join(5.0)

    def overdue(self) -> tuple[tuple[str, float], ...]:
        """The kinds that should be watched and are not, and since when by the clock."""
        now = self._clock()
        return tuple((plural, due) for plural, due in self._watched_by.copy().items() if now > due)

    def _keep_up(self) -> None:
        pauses = iter(PAUSES)
        while not self._stopped.is_set():
            begun = self._clock()
            self._expect_watches()
            try:
                asyncio.run(self._watch())
            except Exception as error:  # noqa: BLE001  whatever ended kopf, the streams must come back
                _log.warning("the watch streams ended (%s); they are restarted", _in_one_line(error))
            if self._clock() - begun > LASTING_SECONDS:
                pauses = iter(PAUSES)
            if self._stopped.wait(next(pauses)):
                return

    def _expect_watches(self) -> None:
        late = self._clock() + LATE_SECONDS
        self._unwatched = {kind.plural for kind in KINDS}
        for kind in KINDS:
            self._watched_by[kind.plural] = min(late, self._watched_by.get(kind.plural, late))

    async def _watch(self) -> None:
        self._problem = ""
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for resource in KINDS:
            group, _, version = resource.api_version.rpartition("/")
            kopf.on.event(group, version, resource.plural, registry=registry)(_handle_nothing)
        ending = asyncio.Event()

        async def note_the_end(**_: Any) -> None:
            ending.set()

        kopf.on.cleanup(registry=registry, id="ending")(note_the_end)
        # Not a flag of threads: kopf would wait for one in a thread of the loop's, which would outlive kopf's own end
        # and be waited for by the loop's.
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._end_kopf = partial(loop.call_soon_threadsafe, stop.set)
        if self._stopped.is_set():
            return
        noted = asyncio.create_task(ending.wait())
        running = asyncio.create_task(
            kopf.operator(
                registry=registry,
                settings=_settings(),
                identity=IDENTITY,  # type: ignore[arg-type]  # kopf keeps its NewType of str private
                standalone=True,
                clusterwide=True,
                stop_flag=stop,
            )
        )
        await asyncio.wait({running, noted}, return_when=asyncio.FIRST_COMPLETED)
        await _end(running, besides=noted)
        self._hang_up()
        if self._problem:
            raise _AccountRefused(self._problem)
        await running

    def _hang_up(self) -> None:
        """Close the watches' connections, whose TLS would else wait for the server's goodbye after the loop's end."""
        for transport in self._watching.values():
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()
        self._watching = {}

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        """kopf's own session (``kopf._cogs.clients.auth.APIContext``) with traces."""
        server = self._access.server
        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(self._asked)
        trace.on_request_end.append(self._answered)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                ssl=MadeAnew(server.tls, server.certified_name) if server.tls else True,
                # Each watch comes with the certificate of its time, and there is one in minutes.
                force_close=True,
            ),
            headers={"User-Agent": USER_AGENT},
            proxy=server.proxy.shown if server.proxy else None,
            trace_configs=[trace],
            middlewares=[self._sign, _list_nothing, self._take_events],
        )
        return kopf.AiohttpSession(
            server=self._access.url, default_namespace=self._access.namespace, aiohttp_session=session
        )

    async def _sign(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Have the request come from the account as it is now. An exec plugin may take long, so it has a thread.

        If the account is not accepted, kopf gets no answer and ends. It would ask for another account, which there is
        not, and advise its reader to install a library.
        """
        try:
            headers = await asyncio.to_thread(self._access.credentials.headers)
        except NotConfigured as error:
            await self._give_up(str(error))
        for name, value in headers:
            request.headers.add(name, value)
        proxy = self._access.server.proxy
        if proxy and proxy.authorization:
            request.proxy_headers = CIMultiDict({"Proxy-Authorization": proxy.authorization})
        response = await send(request)
        if response.status == UNAUTHORIZED:
            response.close()
            self._access.credentials.renew()
            await self._give_up(not_accepted(self._access))
        return response

    async def _give_up(self, problem: str) -> NoReturn:
        """Have kopf end, and wait until it cancels this request."""
        self._problem = problem
        self._end_kopf()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets the event")

    async def _asked(
        self, _: aiohttp.ClientSession, __: SimpleNamespace, asked: aiohttp.TraceRequestStartParams
    ) -> None:
        plural = asked.url.name
        if plural in self._watched_by:
            self._watched_by[plural] = min(self._watched_by[plural], self._clock() + LATE_SECONDS)

    async def _answered(
        self, _: aiohttp.ClientSession, __: SimpleNamespace, answered: aiohttp.TraceRequestEndParams
    ) -> None:
        plural = answered.url.name
        if plural not in self._watched_by or answered.response.status != 200:
            return
        if "watch" in answered.url.query:
            self._watched_by[plural] = self._clock() + WATCH_SECONDS + LATE_SECONDS
            self._say_when_all_are_watched(plural)
        else:
            self._on_list()

    def _say_when_all_are_watched(self, plural: str) -> None:
        if self._unwatched == {plural}:
            _log.info("every kind is watched")
        self._unwatched.discard(plural)

    async def _take_events(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Have a watch hold no object: its events are handed on before kopf reads where they end."""
        response = await send(request)
        if request.url.name in _PLURALS and "watch" in request.url.query and response.status == 200:
            events = _Events(response.content, request.url.name, self._on_event)
            response.content = cast("aiohttp.StreamReader", events)
            if response.connection and response.connection.transport:
                self._watching[request.url.name] = response.connection.transport
        return response


class _AccountRefused(Exception):
    """The API server does not accept the account, or there is none at the moment."""


class _Events:
    """The body of a watch of ``plural``: what kopf reads of it, which is what is about no object, and bookmarks.

    A line that cannot be read is kopf's, which ends because of it.
    """

    def __init__(self, content: aiohttp.StreamReader, plural: str, on_event: Callable[[WatchEvent], None]) -> None:
        self._content, self._plural, self._on_event = content, plural, on_event

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """The lines that are left, as they arrive, at most ``size`` bytes read at once."""
        rest = b""
        async for chunk in self._content.iter_chunked(size):
            *lines, rest = (rest + chunk).split(b"\n")
            left = self._left_of(lines)
            if left:
                yield b"\n".join((*left, b""))
        yield rest

    def _left_of(self, lines: Iterable[bytes]) -> list[bytes]:
        """Hand on the events, and leave a bookmark for all in a row."""
        left, version = list[bytes](), ""
        for line in lines:
            event = self._event(line)
            if event is not None:
                self._on_event(event)
                version = event.content["metadata"]["resourceVersion"]
                continue
            if version:
                left.append(_bookmark(version))
                version = ""
            left.append(line)
        return [*left, _bookmark(version)] if version else left

    def _event(self, line: bytes) -> WatchEvent | None:
        try:
            return watch_event(self._plural, line)
        except (ValueError, KeyError, TypeError):
            return None

    def exception(self) -> BaseException | None:
        """The error that ended the response, if any."""
        return self._content.exception()

    def set_exception(self, error: BaseException, *cause: BaseException) -> None:
        """End the response with this error."""
        self._content.set_exception(error, *cause)


def _bookmark(version: str) -> bytes:
    """The line by which kopf learns how far it has watched (``kopf._cogs.clients.watching.continuous_watch``)."""
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}).encode()


async def _handle_nothing(**_: Any) -> None:
    """kopf watches a kind for which there is a handler."""


async def _list_nothing(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Have a list hold no object, but its resourceVersion."""
    if request.url.name in _PLURALS and "watch" not in request.url.query:
        request.url = request.url.update_query(fieldSelector=f"metadata.name={NO_NAME}")
    return await send(request)


async def _end(running: asyncio.Task[None], besides: asyncio.Task[Any]) -> None:
    """Have kopf, which has begun to end, come to an end.

    It waits for each of its tasks without limit, and cancels each but once. A request that is waiting for credentials
    takes that for the pause of the operator if the task that tells of pauses is cancelled with it
    (``kopf._cogs.clients.api.stream``), and waits on for ever.
    """
    await asyncio.wait({running}, timeout=END_SECONDS)
    for _ in range(END_ROUNDS):
        if running.done():
            break
        for task in asyncio.all_tasks() - {running, besides, asyncio.current_task()}:
            if not task.get_name().startswith("pause-waiter"):
                task.cancel()
        await asyncio.wait({running}, timeout=END_SECONDS)
    besides.cancel()


def _no_kopf() -> None:
    """There is none to be ended yet."""


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.field_selectors["pods"] = NOT_RUNNING
    settings.watching.connect_timeout = 5.0
    settings.watching.server_timeout = WATCH_SECONDS
    settings.networking.connect_timeout = 5.0
    settings.networking.request_timeout = LIST_SECONDS
    settings.networking.error_backoffs = PAUSES  # without end: kopf gives a stream up when they run out
    return settings


def _in_one_line(error: Exception) -> str:
    if isinstance(error, _AccountRefused):
        return str(error)
    return plain(f"{type(error).__name__}: {error}", 300)
