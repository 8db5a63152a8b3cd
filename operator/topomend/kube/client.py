"""The API client of the operator and the commands: one request, one answer, plain dictionaries.

The official client loads credentials and keeps connections. Its models are not used, because ``wire`` reads objects
and because they cost time and memory. Owns paging and preconditions. Leaves retries to its callers: only they know
whether a request may be sent twice.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import urllib3
from kubernetes import config
from kubernetes.client import ApiClient, ApiException, Configuration

from topomend.kube.errors import NotFound, NotPermitted, Unanswered, answered, refused
from topomend.kube.list_stream import CHUNK_BYTES, BrokenList, ListStream
from topomend.kube.tls import as_clusters_are
from topomend.wire.group import API_VERSION

CONNECT_SECONDS, READ_SECONDS = 3.0, 15.0

SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

WATCH_SECONDS = 300
"""How long one watch lasts: whoever watches then lists again, which heals whatever a watch may have missed."""

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

_Read = TypeVar("_Read")


class NoCluster(Exception):
    """There is no usable kubeconfig and no in-cluster account, so there is no cluster to ask."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as it appears in the API's paths. ``plural`` is lower case, such as ``nodetopologies``."""

    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of one object, of all objects in one namespace, or of all objects."""
        group = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        within = ["namespaces", namespace] if self.namespaced and namespace else []
        parts = [*within, self.plural, name, subresource]
        return "/".join([group, *(quote(part, safe="") for part in parts if part)])


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a list, and the resourceVersion of the list."""

    items: tuple[dict[str, Any], ...]
    version: str


@dataclass(frozen=True, slots=True)
class Reading(Generic[_Read]):
    """What a reader made of the objects of a list, and the resourceVersion of the list."""

    items: tuple[_Read, ...]
    version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """An object that was created or changed, or that was deleted."""

    content: dict[str, Any]
    deleted: bool


PODS = Resource("v1", "pods")
NODES = Resource("v1", "nodes", namespaced=False)
NAMESPACES = Resource("v1", "namespaces", namespaced=False)
EVENTS = Resource("events.k8s.io/v1", "events")
LEASES = Resource("coordination.k8s.io/v1", "leases")
DEPLOYMENTS = Resource("apps/v1", "deployments")
SUBJECT_ACCESS_REVIEWS = Resource("authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "priorityclasses", namespaced=False)
DEVICE_CLASSES = Resource("resource.k8s.io/v1", "deviceclasses", namespaced=False)
RESOURCE_CLAIMS = Resource("resource.k8s.io/v1", "resourceclaims")
RESOURCE_SLICES = Resource("resource.k8s.io/v1", "resourceslices", namespaced=False)
NODE_TOPOLOGIES = Resource(API_VERSION, "nodetopologies", namespaced=False)
RELAUNCHES = Resource(API_VERSION, "relaunches")
BRAKES = Resource(API_VERSION, "brakes")
STEERINGS = Resource(API_VERSION, "steerings")
SECRETS = Resource("v1", "secrets")
MUTATING_WEBHOOKS = Resource("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", namespaced=False)
MUTATING_ADMISSION_POLICIES = Resource("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", namespaced=False)
MUTATING_ADMISSION_POLICY_BINDINGS = Resource(
    "admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings", namespaced=False
)


class _Connection(urllib3.connection.HTTPSConnection):
    """A connection that checks certificates as Go does: the official client has no setting for it."""

    def connect(self) -> None:
        context = as_clusters_are(urllib3.util.create_urllib3_context())
        # urllib3 loads them only into a context that it made itself.
        if not self.ca_certs and not self.ca_cert_data:
            context.load_default_certs()
        self.ssl_context = context
        super().connect()


class _Pool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Connection


class Client:
    """Requests to one API server. May be used by several threads at once."""

    def __init__(self, configuration: Configuration) -> None:
        # A client that retries by itself hides that the first request may have taken effect.
        configuration.retries = False
        api: Any = ApiClient(configuration)
        self._api = api
        manager = api.rest_client.pool_manager
        manager.pool_classes_by_scheme = {**manager.pool_classes_by_scheme, "https": _Pool}
        self._may_write: Callable[[], bool] | None = None

    def writing_while(self, permitted: Callable[[], bool]) -> "Client":
        """The same client, whose writes raise NotPermitted unless ``permitted`` returns True at that moment."""
        limited = copy(self)
        limited._may_write = permitted
        return limited

    def get(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        """One object. Raises APIError."""
        return self._ask("GET", resource.path(namespace, name))

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
        metadata_only: bool = False,
    ) -> Reading[_Read]:
        """What ``reader`` makes of every object that the selectors match, in one namespace or in all. Raises APIError.

        Only one object is in memory at a time, however large they all are: the values read from them are far smaller.
        ``reader`` may return no value for an object, and its errors pass through.

        ``fields`` and ``labels`` are selectors as kubectl writes them. ``cached`` accepts the state of the API server's
        watch cache, which may be moments old. Any other list waits until the cache is current, up to 100 ms
        (apiserver pkg/storage/cacher/progress/watch_progress.go:progressRequestPeriod). ``metadata_only`` asks
        for objects that need not have more than their metadata.
        """
        query = {"limit": str(FIRST_PAGE)}
        query |= {"fieldSelector": fields} if fields else {}
        query |= {"labelSelector": labels} if labels else {}
        query |= {"resourceVersion": "0"} if cached else {}
        values = list[_Read]()
        path = resource.path(namespace)
        while True:
            count = 0
            with self._stream(path, query, _METADATA if metadata_only else _JSON) as page:
                for item in page:
                    count += 1
                    values += reader(item)
            if not page.metadata.get("continue"):
                return Reading(tuple(values), page.metadata.get("resourceVersion", ""))
            query = {key: text for key, text in query.items() if key != "resourceVersion"}
            query |= {"continue": page.metadata["continue"], "limit": str(_page_size(count, page.bytes_read))}

    @contextmanager
    def _stream(self, path: str, query: Mapping[str, str], accept: str) -> Iterator[ListStream]:
        """One page of a list, whose objects are read as they arrive. Raises APIError; other errors pass through."""
        request = f"GET {path}"
        with _unanswered(request):
            response = self._send("GET", f"{path}?{urlencode(query)}", accept=accept)
            with closing(response.response):
                if response.status != 200:
                    raise refused(response.status, response.read(), response.headers.get("Retry-After"))
                try:
                    yield ListStream(response.response.stream(CHUNK_BYTES))
                except (BrokenList, UnicodeDecodeError) as error:
                    raise Unanswered(f"{request}: {error}") from error

    def watch(
        self, resource: Resource, version: str, *, namespace: str = "", fields: str = "", labels: str = ""
    ) -> Iterator[WatchEvent]:
        """The changes since the resourceVersion ``version`` as they happen. Ends after WATCH_SECONDS.

        Raises Gone where ``version`` is too old, Unanswered where the stream breaks off, and other APIErrors.
        """
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
        query |= {"fieldSelector": fields} if fields else {}
        query |= {"labelSelector": labels} if labels else {}
        path = resource.path(namespace)
        target = f"{path}?{urlencode(query)}"
        with _unanswered(f"GET {path}"):
            response = self._send("GET", target, seconds=WATCH_SECONDS + READ_SECONDS)
            with closing(response.response):
                if response.status != 200:
                    raise refused(response.status, response.read(), response.headers.get("Retry-After"))
                for line in response.response:
                    yield _watch_event(answered(response.status, line, f"GET {path}"))

    def version(self) -> str:
        """The API server's version, such as ``v1.36.3``. Raises APIError."""
        return str(self._ask("GET", "/version").get("gitVersion", ""))

    def serves(self, resource: Resource) -> bool:
        """Whether the API server serves this kind in this version. Raises APIError."""
        try:
            answer = self._ask("GET", resource.path().removesuffix(f"/{resource.plural}"))
        except NotFound:
            return False
        return any(listed.get("name") == resource.plural for listed in answer.get("resources") or ())

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

    def apply(self, resource: Resource, name: str, content: Mapping[str, Any], namespace: str = "") -> dict[str, Any]:
        """Apply ``content`` (server-side), created where it does not exist. Fields of others become ours where both set
        them. Returns the result; raises APIError.

        A role may name an object that is created by this, unlike one that is posted: the API server asks for the rights
        to patch and to create it by name (apiserver pkg/endpoints/handlers/patch.go:PatchResource).
        """
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        path = resource.path(namespace, name)
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

        Raises TooManyRequests where a PodDisruptionBudget does not allow it now, Conflict where another pod has the
        name by now, and other APIErrors.
        """
        options = {"preconditions": {"uid": uid}} | ({"dryRun": ["All"]} if dry_run else {})
        metadata = {"name": name, "namespace": namespace}
        content = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
        self._ask("POST", PODS.path(namespace, name, "eviction"), content)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = _JSON,
    ) -> dict[str, Any]:
        with _unanswered(f"{method} {path}"):
            target = path + (f"?{urlencode(query)}" if query else "")
            response = self._send(method, target, body, content_type)
            content = response.read()
        return answered(response.status, content, f"{method} {path}", response.headers.get("Retry-After"))

    def _send(  # noqa: PLR0913  the parts of a request
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = _JSON,
        *,
        seconds: float = READ_SECONDS,
        accept: str = _JSON,
    ) -> Any:
        """The official client's response to a request for ``target``, a path with its query. Its content is unread.

        ``seconds`` is how long the API server may be silent. Raises NotPermitted, and the official client's errors.
        """
        if method != "GET" and self._may_write and not self._may_write():
            raise NotPermitted(f"{method} {target.partition('?')[0]}: not sent, another operator leads")
        headers = {**self._api.default_headers, "Accept": accept, "Content-Type": content_type}
        self._api.update_params_for_auth(headers, [], ["BearerToken"], target, method, body)
        url = self._api.configuration.host + target
        return self._api.call_api(method, url, headers, body, _request_timeout=(CONNECT_SECONDS, seconds))


@contextmanager
def _unanswered(request: str) -> Iterator[None]:
    try:
        yield
    except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
        raise Unanswered(f"{request}: {_in_one_line(error)}") from error


def _page_size(objects: int, size: int) -> int:
    """How many objects the next page may have, after one of ``objects`` in ``size`` bytes."""
    return max(1, min(MAX_PAGE, objects * PAGE_BYTES // max(1, size)))


def _watch_event(content: dict[str, Any]) -> WatchEvent:
    """An event of a watch stream. Raises the APIError of an event that is an error."""
    if content["type"] == "ERROR":
        raise refused(int(content["object"].get("code", 500)), json.dumps(content["object"]).encode(), None)
    return WatchEvent(content["object"], deleted=content["type"] == "DELETED")


def connect(kubeconfig: str | None = None, context: str | None = None) -> Client:
    """A client by ``kubeconfig``, else KUBECONFIG, else the in-cluster account, else ``~/.kube/config``.

    Raises NoCluster where none of them exists, or the first that exists cannot be read.
    """
    configuration = Configuration()
    kubeconfig = kubeconfig or os.environ.get("KUBECONFIG") or None
    try:
        if kubeconfig is None and SERVICE_ACCOUNT_TOKEN.exists():
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config(kubeconfig, context, client_configuration=configuration)
    except (config.ConfigException, OSError, ValueError) as error:
        where = kubeconfig or "~/.kube/config"
        raise NoCluster(
            f"{where} names no cluster: {_in_one_line(error)} Set KUBECONFIG, or run with a service account."
        ) from error
    return Client(configuration)


def current_namespace(kubeconfig: str | None = None, context: str | None = None) -> str:
    """The namespace that a kubeconfig's context names; ``default`` where it names none or cannot be read."""
    try:
        contexts, current = config.list_kube_config_contexts(kubeconfig or os.environ.get("KUBECONFIG") or None)
    except (config.ConfigException, OSError, ValueError):
        return "default"
    chosen = next((candidate for candidate in contexts if candidate["name"] == context), current)
    return str(chosen.get("context", {}).get("namespace") or "default")


def context_names(kubeconfig: str | None = None) -> list[str]:
    """The names of a kubeconfig's contexts; none where it cannot be read."""
    try:
        contexts, _ = config.list_kube_config_contexts(kubeconfig or os.environ.get("KUBECONFIG") or None)
    except (config.ConfigException, OSError, ValueError):
        return []
    return [str(context["name"]) for context in contexts]


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
