"""The API client: one request, one answer, plain dictionaries, errors of one tree (``kube/errors.py``).

Loading of kubeconfig and account, TLS and connections are the official client's; its models are left aside, because
objects are read by ``wire`` and because they cost time and memory. Nothing is retried here: whoever asks knows whether
asking again is safe.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
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

PAGE = 500
"""Objects a page of a list: the API server answers small pages from its cache and holds no huge answer."""

SMALL_PAGE = 100
"""The same of those that are read as they come: a NodeTopology takes 120 KiB as Python has it."""

_Read = TypeVar("_Read")


class NoCluster(Exception):
    """No kubeconfig and no in-cluster account: there is no cluster to ask."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the API's paths name it."""

    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of one object, of one namespace's objects, or of all."""
        group = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        within = ["namespaces", namespace] if self.namespaced and namespace else []
        parts = [*within, self.plural, name, subresource]
        return "/".join([group, *(quote(part, safe="") for part in parts if part)])


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a list, and the resourceVersion at which they were so."""

    items: tuple[dict[str, Any], ...]
    version: str


@dataclass(frozen=True, slots=True)
class Reading(Generic[_Read]):
    """What the objects of a list were read as, and the resourceVersion at which they were so."""

    items: tuple[_Read, ...]
    version: str


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
    """The official client has no setting for how strictly a certificate is read."""

    def connect(self) -> None:
        context = as_clusters_are(urllib3.util.create_urllib3_context())
        # urllib3 does this only where the context is its own.
        if not self.ca_certs and not self.ca_cert_data:
            context.load_default_certs()
        self.ssl_context = context
        super().connect()


class _Pool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Connection


class Client:
    """Requests to one API server. May be used by several threads at once."""

    def __init__(self, configuration: Configuration) -> None:
        # A client that repeats a request by itself hides that the first one may have taken effect.
        configuration.retries = False
        api: Any = ApiClient(configuration)
        self._api = api
        manager = api.rest_client.pool_manager
        manager.pool_classes_by_scheme = {**manager.pool_classes_by_scheme, "https": _Pool}
        self._may_write: Callable[[], bool] | None = None

    def writing_while(self, permitted: Callable[[], bool]) -> "Client":
        """The same client, whose writes raise NotPermitted unless ``permitted`` says at that moment that they may."""
        limited = copy(self)
        limited._may_write = permitted
        return limited

    def get(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        """One object. Raises APIError."""
        return self._ask("GET", resource.path(namespace, name))

    def list(
        self, resource: Resource, *, namespace: str = "", fields: str = "", labels: str = "", cached: bool = False
    ) -> Listing:
        """Every object that the selectors match, of one namespace or of all. Raises APIError.

        ``cached`` takes what the API server's watch cache holds, moments old: for any other answer that waits until it
        is up to date, 100 ms at times (apiserver pkg/storage/cacher/progress/watch_progress.go:progressRequestPeriod).
        """
        query = {"limit": str(PAGE)}
        query |= {"fieldSelector": fields} if fields else {}
        query |= {"labelSelector": labels} if labels else {}
        query |= {"resourceVersion": "0"} if cached else {}
        pages = [*self._pages(resource.path(namespace), query)]
        return Listing(tuple(item for page in pages for item in page.items), pages[-1].version)

    def read(
        self, resource: Resource, reader: Callable[[dict[str, Any]], Iterable[_Read]], *, fields: str = ""
    ) -> Reading[_Read]:
        """What ``reader`` makes of every object of all namespaces that ``fields`` selects, one or nothing of each.

        The objects are held a page at a time: what is read of thousands is far smaller. Raises APIError.
        """
        query = {"limit": str(SMALL_PAGE)} | ({"fieldSelector": fields} if fields else {})
        found, version = list[_Read](), ""
        for page in self._pages(resource.path(), query):
            for each in page.items:
                found += reader(each)
            version = page.version
        return Reading(tuple(found), version)

    def _pages(self, path: str, query: Mapping[str, str]) -> Iterator[Listing]:
        while True:
            page = self._ask("GET", path, query=query)
            metadata = page.get("metadata", {})
            yield Listing(tuple(page.get("items") or ()), metadata.get("resourceVersion", ""))
            if not metadata.get("continue"):
                return
            query = {key: each for key, each in query.items() if key != "resourceVersion"}
            query["continue"] = metadata["continue"]

    def version(self) -> str:
        """The API server's version, such as ``v1.36.3``. Raises APIError."""
        return str(self._ask("GET", "/version").get("gitVersion", ""))

    def serves(self, resource: Resource) -> bool:
        """Whether the API server has this kind, in this version. Raises APIError."""
        try:
            found = self._ask("GET", resource.path().removesuffix(f"/{resource.plural}"))
        except NotFound:
            return False
        return any(each.get("name") == resource.plural for each in found.get("resources") or ())

    def create(
        self, resource: Resource, content: Mapping[str, Any], namespace: str = "", *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Create an object, or see whether it could be. Raises AlreadyExists where the name is taken, and APIError."""
        return self._ask("POST", resource.path(namespace), content, query={"dryRun": "All"} if dry_run else None)

    def merge(
        self, resource: Resource, name: str, patch: Mapping[str, Any], namespace: str = "", subresource: str = ""
    ) -> dict[str, Any]:
        """Merge ``patch`` into an object (RFC 7386); a resourceVersion in it is a precondition. Raises APIError."""
        path = resource.path(namespace, name, subresource)
        return self._ask("PATCH", path, patch, content_type="application/merge-patch+json")

    def delete(
        self, resource: Resource, name: str, namespace: str = "", *, uid: str, version: str = ""
    ) -> dict[str, Any]:
        """Delete the object of this uid, and of this resourceVersion if one is given.

        Raises Conflict where another object has the name by now, and APIError.
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
        if method != "GET" and self._may_write and not self._may_write():
            raise NotPermitted(f"{method} {path}: not sent, another operator leads")
        headers = {**self._api.default_headers, "Accept": "application/json", "Content-Type": content_type}
        self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = self._api.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        try:
            response = self._api.call_api(method, url, headers, body, _request_timeout=(CONNECT_SECONDS, READ_SECONDS))
            content = response.read()
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise Unanswered(f"{method} {path}: {_in_one_line(error)}") from error
        if response.status >= 400:
            raise refused(response.status, content, response.headers.get("Retry-After"))
        return answered(content, f"{method} {path}")


def connect(kubeconfig: str | None = None, context: str | None = None) -> Client:
    """A client by ``kubeconfig``, else KUBECONFIG, else the in-cluster account, else ``~/.kube/config``.

    Raises NoCluster where there is none of them or the one found cannot be read.
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
            f"no cluster to ask by {where}: {_in_one_line(error)} Set KUBECONFIG, or run with a service account."
        ) from error
    return Client(configuration)


def current_namespace(kubeconfig: str | None = None, context: str | None = None) -> str:
    """The namespace that a kubeconfig's context names; ``default`` where it names none or cannot be read."""
    try:
        contexts, current = config.list_kube_config_contexts(kubeconfig or os.environ.get("KUBECONFIG") or None)
    except (config.ConfigException, OSError, ValueError):
        return "default"
    chosen = next((each for each in contexts if each["name"] == context), current)
    return str(chosen.get("context", {}).get("namespace") or "default")


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
