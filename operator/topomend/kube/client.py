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
from topomend.kube.tls import as_clusters_are
from topomend.wire.group import API_VERSION

CONNECT_SECONDS, READ_SECONDS = 3.0, 15.0

SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

WATCH_SECONDS = 300
"""How long one watch lasts: whoever watches then lists again, which heals whatever a watch may have missed."""

PAGE = 500
"""Objects on one page of a list. Pages keep the API server from building one huge answer."""

SMALL_PAGE = 100
"""Objects on one page where each page is read at once: a NodeTopology takes 120 KiB as Python objects."""

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
NODE_TOPOLOGIES = Resource(API_VERSION, "nodetopologies", namespaced=False)
RELAUNCHES = Resource(API_VERSION, "relaunches")
BRAKES = Resource(API_VERSION, "brakes")
STEERINGS = Resource(API_VERSION, "steerings")
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

        ``fields`` and ``labels`` are selectors as kubectl writes them. ``cached`` accepts the state of the API server's
        watch cache, which may be moments old. Any other list waits until the cache is current, up to 100 ms
        (apiserver pkg/storage/cacher/progress/watch_progress.go:progressRequestPeriod).
        """
        query = {"limit": str(PAGE)}
        query |= {"fieldSelector": fields} if fields else {}
        query |= {"labelSelector": labels} if labels else {}
        query |= {"resourceVersion": "0"} if cached else {}
        pages = [*self._pages(resource.path(namespace), query)]
        return Listing(tuple(item for page in pages for item in page.items), pages[-1].version)

    def read(
        self,
        resource: Resource,
        reader: Callable[[dict[str, Any]], Iterable[_Read]],
        *,
        namespace: str = "",
        fields: str = "",
        labels: str = "",
    ) -> Reading[_Read]:
        """What ``reader`` makes of every object that the selectors match, in one namespace or in all. Raises APIError.

        Only one page of objects is in memory at a time: the values read from thousands of objects are far smaller.
        ``reader`` may return no value for an object, and its errors pass through.
        """
        query = {"limit": str(SMALL_PAGE)}
        query |= {"fieldSelector": fields} if fields else {}
        query |= {"labelSelector": labels} if labels else {}
        values, version = list[_Read](), ""
        for page in self._pages(resource.path(namespace), query):
            for item in page.items:
                values += reader(item)
            version = page.version
        return Reading(tuple(values), version)

    def _pages(self, path: str, query: Mapping[str, str]) -> Iterator[Listing]:
        while True:
            page = self._ask("GET", path, query=query)
            metadata = page.get("metadata", {})
            yield Listing(tuple(page.get("items") or ()), metadata.get("resourceVersion", ""))
            if not metadata.get("continue"):
                return
            query = {key: text for key, text in query.items() if key != "resourceVersion"}
            query["continue"] = metadata["continue"]

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
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        with _unanswered(f"{method} {path}"):
            target = path + (f"?{urlencode(query)}" if query else "")
            response = self._send(method, target, body, content_type)
            content = response.read()
        return answered(response.status, content, f"{method} {path}", response.headers.get("Retry-After"))

    def _send(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        seconds: float = READ_SECONDS,
    ) -> Any:
        """The official client's response to a request for ``target``, a path with its query. Its content is unread.

        ``seconds`` is how long the API server may be silent. Raises NotPermitted, and the official client's errors.
        """
        if method != "GET" and self._may_write and not self._may_write():
            raise NotPermitted(f"{method} {target.partition('?')[0]}: not sent, another operator leads")
        headers = {**self._api.default_headers, "Accept": "application/json", "Content-Type": content_type}
        self._api.update_params_for_auth(headers, [], ["BearerToken"], target, method, body)
        url = self._api.configuration.host + target
        return self._api.call_api(method, url, headers, body, _request_timeout=(CONNECT_SECONDS, seconds))


@contextmanager
def _unanswered(request: str) -> Iterator[None]:
    try:
        yield
    except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
        raise Unanswered(f"{request}: {_in_one_line(error)}") from error


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
