"""The API server asked in plain HTTP under any account, so that a test sees exactly what that account would."""

import base64
import json
import ssl
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import urllib3
import yaml
from tests.waiting import eventually

_JSON_PATCH, _MERGE_PATCH, _APPLY_PATCH = (
    f"application/{kind}" for kind in ("json-patch+json", "merge-patch+json", "apply-patch+yaml")
)


@dataclass(frozen=True)
class Answer:
    """What the API server answered: HTTP code and the object, or the Status that says why not."""

    code: int
    content: Any

    @property
    def allowed(self) -> bool:
        """Whether the request was carried out."""
        return self.code < 300

    @property
    def message(self) -> str:
        """Why it was not."""
        return str(self.content.get("message", ""))


@dataclass(frozen=True)
class API:
    """One account at one API server. ``authority`` is the certificate to trust, in PEM.

    Accounts of a server share its ``connections``: opening one takes longer than most requests. A request that is not
    answered raises ConnectionError.
    """

    server: str
    authority: str
    connections: urllib3.PoolManager
    token: str
    acts_as: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()

    def as_token(self, token: str) -> "API":
        """The same API server under another account."""
        return replace(self, token=token)

    def impersonating(self, user: str, *groups: str) -> "API":
        """The same account, asking to be taken for another."""
        return replace(self, acts_as=(user, *groups))

    def with_extra(self, key: str, value: str) -> "API":
        """The other account, with something further that an authenticator may say of a user."""
        return replace(self, extra=(*self.extra, (key, value)))

    def get(self, path: str) -> Answer:
        """Read one object, or a list."""
        return self._ask("GET", path)

    def create(self, path: str, body: Any, *, dry_run: bool = False) -> Answer:
        """Create an object; a field that its schema does not know is an error."""
        return self._ask("POST", f"{path}?fieldValidation=Strict" + ("&dryRun=All" if dry_run else ""), body)

    def replace(self, path: str, body: Any) -> Answer:
        """Put an object in the place of the one that is there."""
        return self._ask("PUT", f"{path}?fieldValidation=Strict", body)

    def patch(self, path: str, body: Any, *, dry_run: bool = False) -> Answer:
        """Patch an object: a list is a JSON patch, anything else a merge patch."""
        kind = _JSON_PATCH if isinstance(body, list) else _MERGE_PATCH
        return self._ask("PATCH", f"{path}?fieldValidation=Strict" + ("&dryRun=All" if dry_run else ""), body, kind)

    def apply(self, path: str, body: Any, *, dry_run: bool = False) -> Answer:
        """Server-side apply, as ``kubectl apply --server-side --force-conflicts`` does."""
        query = "fieldManager=tests&force=true&fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        return self._ask("PATCH", f"{path}?{query}", body, _APPLY_PATCH)

    def delete(self, path: str) -> Answer:
        """Delete an object at once."""
        return self._ask("DELETE", f"{path}?gracePeriodSeconds=0")

    def _ask(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Answer:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        headers |= dict(zip(("Impersonate-User", "Impersonate-Group"), self.acts_as, strict=False))
        headers |= {f"Impersonate-Extra-{key}": value for key, value in self.extra}
        try:
            response = self.connections.request(
                method,
                self.server + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                retries=False,
                timeout=30,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(f"{method} {path}: {error}") from error
        return Answer(response.status, _content(response.data))


def _content(text: bytes) -> Any:
    """The object, or the text as a message: the answer of a path that is not served yet is none."""
    try:
        return json.loads(text)
    except ValueError:
        return {"message": text.decode(errors="replace")}


def administrator(kubeconfig: Path) -> API:
    """The account of a sandbox's kubeconfig."""
    content = yaml.safe_load(kubeconfig.read_text())
    cluster = content["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    connections = urllib3.PoolManager(ssl_context=ssl.create_default_context(cadata=authority))
    return API(cluster["server"], authority, connections, content["users"][0]["user"]["token"])


def path_of(item: dict[str, Any]) -> str:
    """Where the API server keeps an object of one of the kinds that our manifests hold."""
    version, metadata = item["apiVersion"], item["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    kind = item["kind"].lower()
    plural = kind[:-1] + "ies" if kind.endswith("y") else kind + ("es" if kind.endswith("ch") else "s")
    return f"{root}{place}/{plural}/{metadata['name']}"


_DEFAULT_ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}


def have_default_account(admin: API, namespace: str) -> None:
    """Have it in the namespace of this path: no pod can be created there before, and its controller may be slow."""
    accounts = f"{namespace}/serviceaccounts"
    eventually(
        accounts, lambda: admin.get(f"{accounts}/default").allowed or admin.create(accounts, _DEFAULT_ACCOUNT).allowed
    )


def have_node(admin: API, name: str) -> bool:
    """Have a Node of this name, without a kubelet. Returns whether it is new.

    Pods of a node that does not exist are removed, within a minute of the first or at once
    (podgc/gc_controller.go:gcOrphaned).
    """
    if admin.get(f"/api/v1/nodes/{name}").allowed:
        return False
    content = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"unschedulable": True}}
    made = admin.create("/api/v1/nodes", content)
    assert made.allowed, made.message
    return True
