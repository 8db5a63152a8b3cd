"""The API client of the operator and the commands: one request, one answer, plain dictionaries.

Owns paging and preconditions. Leaves the way to the cluster to ``access``, connections to ``pool`` and ``official``,
and retries to its callers: only they know whether a request may be sent twice.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from topomend import __version__
from topomend.kube.connection.access import Access, find_access
from topomend.kube.connection.credentials import Headers
from topomend.kube.connection.transport import Server
from topomend.kube.errors import APIError, NotFound, NotPermitted, Refused, Unanswered, Untrusted, answered, refused
from topomend.kube.lists.list_stream import CHUNK_BYTES, BrokenList, ListStream
from topomend.kube.pool import Answer, Connections, Pool
from topomend.kube.resources import PODS, Resource
from topomend.kube.words import failure, is_untrusted, unknown_account

CONNECT_SECONDS, READ_SECONDS = 3.0, 15.0

UNAUTHORIZED = 401

USER_AGENT = f"topomend/{__version__}"

WATCH_SECONDS = 300
"""How long one watch lasts: whoever watches then lists again, which heals whatever a watch may have missed."""

SILENT_SECONDS = 10.0
"""How much later than it said an API server may end a watch. Until then a connection may be dead without a sign."""

LINE_BYTES = 1 << 16
"""How much of a watch is read at once, at most."""

MAX_LINE_BYTES = 32 << 20
"""No event is longer (see ``list_stream.MAX_OBJECT_CHARACTERS``)."""

FIELD_MANAGER = "topomend"
"""The name under which applied fields are ours."""

FIRST_PAGE, MAX_PAGE = 5, 500
"""Objects on the first page of a list, of which nothing is known yet, and on any. Pages keep answers of the API server
small, which has a minute for each."""

PAGE_BYTES = 4 << 20
"""About how long a page is: each has as many objects as this takes by the size of those on the page before."""

_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""A list without what the objects say. A server that cannot leave it out sends it."""

_DISCOVERY = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io,application/json"
"""All kinds in one answer."""

_Read = TypeVar("_Read")


class Listing(NamedTuple):
    """The objects of a list, and the resourceVersion of the list."""

    items: tuple[dict[str, Any], ...]
    version: str


class Reading(NamedTuple, Generic[_Read]):
    """What a reader made of the objects of a list, and the resourceVersion of the list."""

    items: tuple[_Read, ...]
    version: str


class WatchEvent(NamedTuple):
    """An object that was created or changed, or that was deleted."""

    content: dict[str, Any]
    deleted: bool


class Client:
    """Requests to the API server of ``access``. May be used by several threads at once.

    ``transport`` makes what sends them.
    """

    def __init__(self, access: Access, *, transport: Callable[[Server, float], Connections] = Pool) -> None:
        self.access = access
        self._pool = transport(access.server, CONNECT_SECONDS)
        self._may_write: Callable[[], bool] | None = None
        self._creates_alone: Resource | None = None

    def writing_while(self, permitted: Callable[[], bool]) -> "Client":
        """The same client, whose writes raise NotPermitted unless ``permitted`` returns True at that moment."""
        limited = copy(self)
        limited._may_write = permitted
        return limited

    def creating_alone(self, resource: Resource) -> "Client":
        """The same client, which creates objects of this kind: every other write raises NotPermitted, unsent."""
        limited = copy(self)
        limited._creates_alone = resource
        return limited

    def get(
        self, resource: Resource, name: str, namespace: str = "", *, seconds: float = READ_SECONDS
    ) -> dict[str, Any]:
        """One object. ``seconds`` is how long the API server may be silent. Raises APIError."""
        return self._ask("GET", resource.path(namespace, name), seconds=seconds)

    def list(
        self, resource: Resource, *, namespace: str = "", fields: str = "", labels: str = "", cached: bool = False
    ) -> Listing:
        """Every object that the selectors match, in one namespace or in all. Raises APIError.

        All of them are in memory at once; ``read`` keeps less. The arguments are those of ``read``.
        """
        listed = self.read(
            resource, lambda item: (item,), namespace=namespace, fields=fields, labels=labels, cached=cached
        )
        return Listing(listed.items, listed.version)

    def read(  # noqa: PLR0913  what the API server lets a list be asked
        self,
        resource: Resource,
        reader: Callable[[dict[str, Any]], Iterable[_Read]],
        *,
        namespace: str = "",
        fields: str = "",
        labels: str = "",
        cached: bool = False,
        not_older_than: str = "",
        metadata_only: bool = False,
        shape: type | None = None,
        shaped_reader: Callable[[dict[str, Any]], Iterable[_Read]] | None = None,
        ahead: bool = False,
    ) -> Reading[_Read]:
        """What ``reader`` makes of every object that the selectors match, in one namespace or in all. Raises APIError.

        Only one object is in memory at a time, however large they all are: the values read from them are far smaller.
        ``reader`` may return no value for an object, and its errors pass through.

        ``fields`` and ``labels`` are selectors as kubectl writes them. ``cached`` accepts the state of the API server's
        watch cache, which may be moments old, but not older than the resourceVersion ``not_older_than``. Any other list
        waits until the cache is current, up to 100 ms
        (apiserver pkg/storage/cacher/progress/watch_progress.go:progressRequestPeriod). ``metadata_only`` asks
        for objects that need not have more than their metadata. ``shape`` is a TypedDict of ``wire.shapes``: objects
        may lack the fields that are not in it, which then are not decoded. ``shaped_reader``, by default ``reader``,
        reads those that do: none is longer than ``list_stream.SHAPED_CHARACTERS``. ``ahead`` asks for a page before the
        one before it is read, over a second connection, where that begins with its metadata: that of a built-in kind.
        """
        # A page of a list that is not older than a version would come from etcd, which has no index by node
        # (apiserver pkg/storage/cacher:shouldDelegateList); the cache answers it as a whole.
        query = {} if not_older_than else {"limit": str(FIRST_PAGE)}
        query |= {"fieldSelector": fields} if fields else {}
        query |= {"labelSelector": labels} if labels else {}
        query |= {"resourceVersion": not_older_than or "0"} if cached else {}
        query |= {"resourceVersionMatch": "NotOlderThan"} if cached and not_older_than else {}
        values = list[_Read]()
        path, accept = resource.path(namespace), _METADATA if metadata_only else _JSON
        size = 0
        with ExitStack() as sent:
            answer = sent.enter_context(self._list(path, query, accept))
            while True:
                # What decodes by a shape takes longer to import than to decode the few objects of the first page.
                of_page = shape if size else None
                token, count = "", 0
                with sent.pop_all(), self._stream(answer, path, of_page) as page:
                    for item in page:
                        if ahead and size and not token and (token := page.metadata.get("continue", "")):
                            answer = sent.enter_context(self._list(path, _following(query, token, size), accept))
                        count += 1
                        values += shaped_reader(item) if shaped_reader and page.is_shaped else reader(item)
                size = _page_size(count, page.bytes_read)
                if not page.metadata.get("continue"):
                    return Reading(tuple(values), page.metadata.get("resourceVersion", ""))
                if not token:
                    following = _following(query, page.metadata["continue"], size)
                    answer = sent.enter_context(self._list(path, following, accept))

    def _list(self, path: str, query: Mapping[str, str], accept: str) -> AbstractContextManager[Callable[[], Answer]]:
        return self._sent("GET", f"{path}?{urlencode(query)}", accept=accept)

    @contextmanager
    def _stream(self, answer: Callable[[], Answer], path: str, shape: type | None = None) -> Iterator[ListStream]:
        """One page of a list, whose objects are read as they arrive. Raises APIError; other errors pass through."""
        request = f"GET {path}"
        try:
            yield ListStream(self._chunks(answer(), request), shape=shape)
        except (BrokenList, UnicodeDecodeError) as error:
            raise Unanswered(f"{request}: {error}") from error

    def newest_version(self, resource: Resource) -> str:
        """The resourceVersion of a list of all objects of this kind now, to watch from. Raises APIError.

        A page of one object has it too, and costs the API server no more than that object.
        """
        path = resource.path()
        with self._list(path, {"limit": "1"}, _METADATA) as answer, self._stream(answer, path) as page:
            for _ in page:
                pass
            return str(page.metadata.get("resourceVersion", ""))

    def watch(
        self, resource: Resource, version: str, *, namespace: str = "", fields: str = "", labels: str = ""
    ) -> Iterator[WatchEvent]:
        """The changes since the resourceVersion ``version`` as they happen. Ends after WATCH_SECONDS.

        Raises Gone where ``version`` is too old, Unanswered where the stream breaks off, and other APIErrors.
        """
        query = {"fieldSelector": fields} if fields else {}
        query |= {"labelSelector": labels} if labels else {}
        with self.watch_lines(resource, version, WATCH_SECONDS, namespace=namespace, query=query) as lines:
            for line in lines:
                yield _watch_event(answered(200, line, f"GET {resource.path(namespace)}"))

    @contextmanager
    def watch_lines(
        self,
        resource: Resource,
        version: str,
        seconds: int,
        *,
        namespace: str = "",
        query: Mapping[str, str] = MappingProxyType({}),
    ) -> Iterator[Iterator[bytes]]:
        """The lines of a watch since ``version`` as they arrive, each an event as JSON. The watch is answered by now.

        The API server ends it after ``seconds``. One that says nothing for so long, and for SILENT_SECONDS more, is
        taken for dead. ``query`` are further parameters of the request. Raises APIError.
        """
        path = resource.path(namespace)
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(seconds), **query}
        with self._sent("GET", f"{path}?{urlencode(query)}", seconds=seconds + SILENT_SECONDS) as answer:
            yield self._lines(answer(), f"GET {path}")

    def version(self) -> str:
        """The API server's version, such as ``v1.36.3``. Raises APIError."""
        return str(self._ask("GET", "/version").get("gitVersion", ""))

    def check_trust(self) -> None:
        """Raise Untrusted where the API server's certificate is not trusted. Other failures may heal by themselves."""
        try:
            self.version()
        except Untrusted:
            raise
        except APIError:
            return

    def serves(self, resource: Resource) -> bool:
        """Whether the API server serves this kind in this version. Raises APIError."""
        try:
            answer = self._ask("GET", resource.path().removesuffix(f"/{resource.plural}"))
        except NotFound:
            return False
        return any(listed.get("name") == resource.plural for listed in answer.get("resources") or ())

    def schemas(self, api_version: str) -> dict[str, Any]:
        """The OpenAPI schemas of a group's version by their names; empty where it is not served. Raises APIError.

        Every user that the API server knows may read them (ClusterRole ``system:discovery``). For a moment after the
        last kind of a group is gone, the API server answers with an empty body.
        """
        target = f"/openapi/v3/apis/{quote(api_version)}"
        try:
            with self._sent("GET", target) as answer:
                response = answer()
                with self._unanswered(f"GET {target}"):
                    content = response.read()
        except NotFound:
            return {}
        described = answered(response.status, content or b"{}", f"GET {target}")
        schemas = (described.get("components") or {}).get("schemas")
        return schemas if isinstance(schemas, dict) else {}

    def resource_of(self, api_version: str, kind: str) -> Resource | None:
        """The resource that the API server serves as this kind; None where it serves none. Raises APIError."""
        try:
            answer = self._ask("GET", Resource(api_version, "").path())
        except NotFound:
            return None
        for listed in answer.get("resources") or ():
            if listed.get("kind") == kind and "/" not in listed.get("name", "/"):
                return Resource(api_version, listed["name"], bool(listed.get("namespaced")))
        return None

    def groups(self) -> dict[str, Any]:
        """All groups but the core one, with their versions and kinds (APIGroupDiscoveryList). Raises APIError."""
        with self._sent("GET", "/apis", accept=_DISCOVERY) as answer:
            response = answer()
            with self._unanswered("GET /apis"):
                content = response.read()
            return answered(response.status, content, "GET /apis")

    def check(self, resource: Resource, content: Mapping[str, Any], namespace: str = "") -> None:
        """Have the API server read an object strictly, which it does before anything else, and create nothing.

        Raises Invalid that names each unknown field, and other APIErrors, which say nothing of fields.
        """
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        self._ask("POST", resource.path(namespace), content, query=query)

    def create(
        self, resource: Resource, content: Mapping[str, Any], namespace: str = "", *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Create an object, or with ``dry_run`` only check it. Returns the object as the API server has it.

        Raises AlreadyExists where the name is taken, and other APIErrors.
        """
        return self._ask("POST", resource.path(namespace), content, query={"dryRun": "All"} if dry_run else None)

    def merge(
        self, resource: Resource, name: str, patch: Mapping[str, Any], namespace: str = "", subresource: str = ""
    ) -> dict[str, Any]:
        """Merge ``patch`` into an object (RFC 7386) and return the result. Raises APIError.

        A resourceVersion in the patch is a precondition: Conflict where it does not hold. A uid that is not the
        object's is Invalid where the version holds.
        """
        path = resource.path(namespace, name, subresource)
        return self._ask("PATCH", path, patch, content_type="application/merge-patch+json")

    def patch_status(
        self, resource: Resource, name: str, patch: Mapping[str, Any], namespace: str = ""
    ) -> dict[str, Any]:
        """Strategic merge patch of the status of an object of a built-in kind: its lists merge by their keys.

        Raises APIError; Conflict where the metadata names another uid or resourceVersion than the object has.
        """
        path = resource.path(namespace, name, "status")
        return self._ask("PATCH", path, patch, content_type="application/strategic-merge-patch+json")

    def apply(  # noqa: PLR0913  the parts of a request
        self,
        resource: Resource,
        name: str,
        content: Mapping[str, Any],
        namespace: str = "",
        *,
        subresource: str = "",
        manager: str = FIELD_MANAGER,
    ) -> dict[str, Any]:
        """Apply ``content`` (server-side), created where it does not exist. Fields of others become those of
        ``manager`` where both set them. Returns the result; raises APIError, a Conflict where ``content`` has the uid
        of an object that is gone, or a resourceVersion that it no longer has.

        A role may name an object that is created by this, unlike one that is posted: the API server asks for the rights
        to patch and to create it by name (apiserver pkg/endpoints/handlers/patch.go:PatchResource).
        """
        query = {"fieldManager": manager, "force": "true"}
        path = resource.path(namespace, name, subresource)
        return self._ask("PATCH", path, content, query=query, content_type="application/apply-patch+yaml")

    def delete(
        self, resource: Resource, name: str, namespace: str = "", *, uid: str, version: str = ""
    ) -> dict[str, Any]:
        """Delete the object of this uid, and of this resourceVersion if one is given. Returns the API server's answer.

        The answer is the object where finalizers keep it. Raises Conflict where another object has the name by now or
        the version differs, and other APIErrors.
        """
        preconditions = {"uid": uid} | ({"resourceVersion": version} if version else {})
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        return self._ask("DELETE", resource.path(namespace, name), options)

    def evict(self, name: str, namespace: str, *, uid: str, dry_run: bool = False) -> None:
        """Evict the pod of this uid, or with ``dry_run`` only ask whether that is allowed.

        Raises DeniedForNow where a PodDisruptionBudget does not allow it now, Conflict where another pod has the
        name by now, and other APIErrors.
        """
        options = {"preconditions": {"uid": uid}} | ({"dryRun": ["All"]} if dry_run else {})
        metadata = {"name": name, "namespace": namespace}
        content = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
        self._ask("POST", PODS.path(namespace, name, "eviction"), content)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def _ask(  # noqa: PLR0913  the parts of a request
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = _JSON,
        seconds: float = READ_SECONDS,
    ) -> dict[str, Any]:
        target = path + (f"?{urlencode(query)}" if query else "")
        with self._sent(method, target, body, content_type, seconds=seconds) as answer:
            response = answer()
            with self._unanswered(f"{method} {path}"):
                content = response.read()
            return answered(response.status, content, f"{method} {path}")

    @contextmanager
    def _sent(  # noqa: PLR0913  the parts of a request
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = _JSON,
        *,
        seconds: float = READ_SECONDS,
        accept: str = _JSON,
    ) -> Iterator[Callable[[], Answer]]:
        """Send a request for ``target``, a path with its query. Waits for the successful answer where that is called.

        ``seconds`` is how long the API server may be silent. Both raise APIError; other errors of the reader pass
        through.
        """
        request = f"{method} {target.partition('?')[0]}"
        if method != "GET":
            self._check_permitted(method, target, request)
        with ExitStack() as stack:
            with self._unanswered(request):
                sent = (self.access.path + target, body, self._headers(body, content_type, accept), seconds)
                answer = stack.enter_context(self._pool.sent(method, *sent))

            def successful() -> Answer:
                with self._unanswered(request):
                    response = answer()
                if not 200 <= response.status < 300:
                    raise self._refusal(response, request)
                return response

            yield successful

    def _check_permitted(self, method: str, target: str, request: str) -> None:
        if self._may_write and not self._may_write():
            raise NotPermitted(f"{request}: not sent, another operator leads")
        if self._creates_alone and not self._creates_alone.is_created_by(method, target):
            raise NotPermitted(f"{request}: not sent, this client only creates {self._creates_alone.plural}")

    def _headers(self, body: Mapping[str, Any] | None, content_type: str, accept: str) -> Headers:
        ours = (("Accept", accept), ("User-Agent", USER_AGENT))
        written = () if body is None else (("Content-Type", content_type),)
        return ours + written + self.access.credentials.headers()

    def _refusal(self, response: Answer, request: str) -> Refused:
        with self._unanswered(request):
            refusal = refused(response.status, response.read(), response.headers.get("Retry-After"))
        if response.status != UNAUTHORIZED:
            return refusal
        self.access.credentials.renew()
        self._pool.close()  # a connection stays that of the certificate with which it was made
        return unknown_account(refusal, self.access)

    def _chunks(self, response: Answer, request: str) -> Iterator[bytes]:
        while True:
            with self._unanswered(request):
                chunk = response.read(CHUNK_BYTES)
            if not chunk:
                return
            yield chunk

    def _lines(self, response: Answer, request: str) -> Iterator[bytes]:
        """The lines of a stream as they arrive. One that is cut short is a line too."""
        begun, size = list[bytes](), 0
        while True:
            with self._unanswered(request):
                chunk = response.read1(LINE_BYTES)
            if not chunk:
                break
            rest, *others = chunk.split(b"\n")
            begun.append(rest)
            size += len(rest)
            for other in others:
                yield b"".join(begun)
                begun, size = [other], len(other)
            if size > MAX_LINE_BYTES:
                raise APIError(f"{request}: an event is longer than {MAX_LINE_BYTES} bytes")
        if size:
            yield b"".join(begun)

    @contextmanager
    def _unanswered(self, request: str) -> Iterator[None]:
        try:
            yield
        except self._pool.FAILURES as error:
            kind = Untrusted if is_untrusted(error) else Unanswered
            raise kind(failure(error, self.access), request) from error


def _following(first: Mapping[str, str], token: str, size: int) -> dict[str, str]:
    """The query for a further page, of so many objects, by that for the ``first`` one. It takes no version."""
    kept = {key: text for key, text in first.items() if not key.startswith("resourceVersion")}
    return kept | {"continue": token, "limit": str(size)}


def _page_size(objects: int, size: int) -> int:
    """How many objects the next page may have, after one of ``objects`` in ``size`` bytes."""
    return max(1, min(MAX_PAGE, objects * PAGE_BYTES // max(1, size)))


def _watch_event(content: dict[str, Any]) -> WatchEvent:
    """An event of a watch stream. Raises the APIError of an event that is an error."""
    if content["type"] == "ERROR":
        raise refused(int(content["object"].get("code", 500)), json.dumps(content["object"]).encode(), None)
    return WatchEvent(content["object"], deleted=content["type"] == "DELETED")


def connect(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    transport: Callable[[Server, float], Connections] = Pool,
) -> Client:
    """A client by ``find_access``. Raises NotConfigured."""
    return Client(find_access(kubeconfig, context), transport=transport)
