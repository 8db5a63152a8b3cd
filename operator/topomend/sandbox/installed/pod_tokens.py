"""A program that has topomend's programs run in the place of their pods' containers, as a kubelet has containers run.

It finds the pod that each program replaces, requests a token that is bound to that pod, and writes it into the
program's kubeconfig, and the pod's arguments and variables into its launch file. If the pod is replaced, or the token
gets old, it writes both anew and ends the program; the supervisor starts it again. Without a pod there is no launch
file, and the supervisor holds the program. The token carries the pod's node, by which the installed policies recognize
an agent. A file lists the programs and their pods (``bearers``).

It also applies what the sandbox needs of topomend's objects where a user has created them anew.
"""

import base64
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil

from topomend.kube.connection.transport import Response
from topomend.sandbox import layout
from topomend.sandbox.api import API
from topomend.sandbox.control_plane import Account, kubeconfig
from topomend.sandbox.installed.bearers import Bearer, Plan
from topomend.sandbox.installed.installation import MANAGER
from topomend.sandbox.installed.pod_program import NotSupported, launch_of
from topomend.sandbox.processes.supervisor_client import read_status

POLL = 0.5
"""Seconds between two polls of the pods."""

LIFETIME = 10 * 365 * 86400
"""Requested lifetime of a token in seconds: longer than any sandbox. An API server may grant less."""

RENEW_AFTER = 0.8
"""The share of its lifetime after which a token is renewed, as in kubelets (pkg/kubelet/token/token_manager.go)."""


@dataclass(frozen=True)
class Token:
    """A program's current token: the pod it is bound to, and when to renew it, in seconds of Unix time."""

    pod_uid: str
    renew_at: float

    @classmethod
    def read(cls, text: str) -> "Token":
        """Read the claims of a service account token (RFC 7519), without checking its signature."""
        payload = text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        lifetime = claims["exp"] - claims["iat"]
        return cls(claims["kubernetes.io"]["pod"]["uid"], claims["iat"] + lifetime * RENEW_AFTER)


class PodTokens:
    """Keeps the kubeconfigs of all bearers valid."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plan = Plan.read(folder)
        self._api = API(self._plan.host, self._plan.port, Path(self._plan.authority), self._plan.token)
        self._tokens = {
            bearer.program: token
            for bearer in self._plan.bearers
            if Path(bearer.launch).exists() and (token := _token_in_kubeconfig(bearer))
        }
        self._written = time.time_ns()
        self._refused: set[str] = set()

    def look(self, now: float) -> None:
        """Start, renew and end what is due. ``now`` is in seconds of Unix time."""
        for path, part in self._plan.adapted.items():
            self._keep(path, part)
        for bearer in self._plan.bearers:
            pods = self._pods(bearer)
            if pods is not None:
                self._serve(bearer, pods, now)

    def _serve(self, bearer: Bearer, pods: Sequence[Mapping[str, Any]], now: float) -> None:
        token = self._tokens.get(bearer.program)
        pod = choose_pod(pods, bearer, token.pod_uid if token else "")
        if pod is None:
            self._withdraw(bearer)
        elif not (token and token.pod_uid == pod["metadata"]["uid"] and now < token.renew_at):
            self._renew(bearer, pod)

    def _withdraw(self, bearer: Bearer) -> None:
        """End a program whose last pod is gone or ends."""
        launch = Path(bearer.launch)
        self._tokens.pop(bearer.program, None)
        if launch.exists():
            launch.unlink()
            _log(f"{bearer.program} has no pod any more and is held")
            self._end(bearer.program)

    def _keep(self, path: str, part: Mapping[str, Any]) -> None:
        """Apply ``part`` where the object exists and the sandbox's manager has applied nothing to it yet."""
        existing = self._api.get(path)
        if existing is None or "deletionTimestamp" in existing["metadata"] or _is_kept(existing):
            return
        response = self._api.apply(path, part, MANAGER)
        if response is None or response.status != HTTPStatus.OK:
            _log(f"Error: {path} is not adapted, tried again: {_reason(response)}")

    def _pods(self, bearer: Bearer) -> Sequence[Mapping[str, Any]] | None:
        """The pods of the bearer's namespace; None without an answer."""
        pods = self._api.get(f"/api/v1/namespaces/{bearer.namespace}/pods")
        return None if pods is None else pods.get("items") or ()

    def _renew(self, bearer: Bearer, pod: Mapping[str, Any]) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        try:
            launch = launch_of(pod, address=bearer.address, replaced=bearer.replaced, added=bearer.added)
        except NotSupported as error:
            self._refuse(bearer, pod, str(error))
            return
        reference = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": LIFETIME, "boundObjectRef": reference},
        }
        path = f"/api/v1/namespaces/{bearer.namespace}/serviceaccounts/{bearer.account}/token"
        response = self._api.ask("POST", path, json.dumps(request))
        if response is None or response.status != HTTPStatus.CREATED:
            why = _reason(response)
            _log(f"Error: no token of pod {bearer.namespace}/{name} for {bearer.program}, tried again: {why}")
            return
        token = json.loads(response.body)["status"]["token"]
        server = f"https://{self._plan.host}:{self._plan.port}"
        account = Account(f"system:serviceaccount:{bearer.namespace}:{bearer.account}", token)
        content = kubeconfig(server, Path(self._plan.authority).read_bytes(), account)
        layout.write_private(Path(bearer.kubeconfig), content)
        self._written += 1  # the supervisor compares contents, and a new token alone is a reason to start again
        layout.write_private(Path(bearer.launch), json.dumps({**asdict(launch), "written": self._written}))
        self._tokens[bearer.program] = Token.read(token)
        _log(f"{bearer.program} has a token of pod {bearer.namespace}/{name}")
        self._end(bearer.program)

    def _refuse(self, bearer: Bearer, pod: Mapping[str, Any], why: str) -> None:
        """Say on the pod, once, why no program runs in its place, and hold the program of the pod before it."""
        self._withdraw(bearer)
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if uid in self._refused:
            return
        _log(f"Error: no program runs for pod {bearer.namespace}/{name}: {why}")
        reference = {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": bearer.namespace, "uid": uid}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.sandbox", "namespace": bearer.namespace},
            "involvedObject": reference,
            "type": "Warning",
            "reason": "NotInSandbox",
            "message": f"no program runs for this pod: {why}",
            "source": {"component": MANAGER},
            "firstTimestamp": pod["metadata"]["creationTimestamp"],
            "lastTimestamp": pod["metadata"]["creationTimestamp"],
            "count": 1,
        }
        if self._api.create(f"/api/v1/namespaces/{bearer.namespace}/events", event):
            self._refused.add(uid)

    def _end(self, program: str) -> None:
        """End the program if it runs, so that it reads its new kubeconfig: it does so only at its start."""
        status = read_status(self._folder)
        pid = status.get("programs", {}).get(program, {}).get("pid")
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            # Skip a process of another parent: it got the pid after the program had ended.
            if pid is not None and psutil.Process(pid).ppid() == status["supervisor"]:
                os.kill(pid, signal.SIGTERM)


def _token_in_kubeconfig(bearer: Bearer) -> Token | None:
    """The token in the bearer's kubeconfig from before this process started; None if there is none."""
    try:
        document = json.loads(Path(bearer.kubeconfig).read_text())
    except FileNotFoundError:
        return None
    return Token.read(document["users"][0]["user"]["token"])


def _is_kept(existing: Mapping[str, Any]) -> bool:
    return any(entry["manager"] == MANAGER for entry in existing["metadata"].get("managedFields", ()))


def _reason(response: Response | None) -> str:
    return "no answer" if response is None else response.body.decode(errors="replace")[:300]


def choose_pod(pods: Sequence[Mapping[str, Any]], bearer: Bearer, current_uid: str) -> Mapping[str, Any] | None:
    """The bearer's pod: the current one if it is of the template rolled out last, else the oldest that is.

    A rollout waits for pods of its template to be ready, and pods of the one before may never be. None if no pod is
    alive.
    """
    alive = [pod for pod in pods if _is_alive(pod) and _is_of(pod, bearer)]
    if not alive:
        return None
    newest = max(alive, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["uid"] == current_uid))
    candidates = [pod for pod in alive if _template(pod) == _template(newest)]
    return min(
        candidates, key=lambda pod: (pod["metadata"]["uid"] != current_uid, pod["metadata"]["creationTimestamp"])
    )


def _template(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("labels", {}).get("pod-template-hash", ""))


def _is_of(pod: Mapping[str, Any], bearer: Bearer) -> bool:
    node = pod["spec"].get("nodeName", "")
    return bool(pod["spec"].get("serviceAccountName") == bearer.account and node and node == (bearer.node or node))


def _is_alive(pod: Mapping[str, Any]) -> bool:
    ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not ended and "deletionTimestamp" not in pod["metadata"]


def _log(line: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}\n")


def main() -> None:
    """Serve the bearers of the sandbox whose folder is the one argument, until ended."""
    tokens = PodTokens(Path(sys.argv[1]))
    while True:
        tokens.look(time.time())
        time.sleep(POLL)


if __name__ == "__main__":
    main()
