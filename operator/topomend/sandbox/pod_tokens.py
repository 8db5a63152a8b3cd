"""A program that gives topomend's programs the tokens of their pods, as a kubelet gives them to containers.

It finds the pod that each program replaces, requests a token that is bound to that pod, and writes it into the
program's kubeconfig. If the pod is replaced, or the token gets old, it writes a new token and ends the program; the
supervisor restarts it. The token carries the pod's node, by which the installed policies recognize an agent. A file
lists the programs and their pods (``bearers``).
"""

import base64
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil

from topomend.sandbox import layout
from topomend.sandbox.api import API
from topomend.sandbox.bearers import Bearer, Plan
from topomend.sandbox.control_plane import Account, kubeconfig
from topomend.sandbox.supervisor_client import read_status

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
            bearer.program: token for bearer in self._plan.bearers if (token := _token_in_kubeconfig(bearer))
        }

    def look(self, now: float) -> None:
        """Renew the tokens that are missing, expiring or of another pod. ``now`` is in seconds of Unix time."""
        for bearer in self._plan.bearers:
            token = self._tokens.get(bearer.program)
            pod = choose_pod(self._pods(bearer), bearer, token.pod_uid if token else "")
            if pod is None or (token and token.pod_uid == pod["metadata"]["uid"] and now < token.renew_at):
                continue
            self._renew(bearer, pod)

    def _pods(self, bearer: Bearer) -> Sequence[Mapping[str, Any]]:
        pods = self._api.get(f"/api/v1/namespaces/{bearer.namespace}/pods")
        return pods.get("items") or () if pods else ()

    def _renew(self, bearer: Bearer, pod: Mapping[str, Any]) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": LIFETIME, "boundObjectRef": reference},
        }
        path = f"/api/v1/namespaces/{bearer.namespace}/serviceaccounts/{bearer.account}/token"
        response = self._api.ask("POST", path, json.dumps(request))
        if response is None or response.status != HTTPStatus.CREATED:
            why = "no answer" if response is None else response.body.decode(errors="replace")[:300]
            _log(f"Error: no token of pod {bearer.namespace}/{name} for {bearer.program}, tried again: {why}")
            return
        token = json.loads(response.body)["status"]["token"]
        server = f"https://{self._plan.host}:{self._plan.port}"
        account = Account(f"system:serviceaccount:{bearer.namespace}:{bearer.account}", token)
        content = kubeconfig(server, Path(self._plan.authority).read_bytes(), account)
        layout.write_private(Path(bearer.kubeconfig), content)
        replaces = bearer.program in self._tokens
        self._tokens[bearer.program] = Token.read(token)
        _log(f"{bearer.program} has a token of pod {bearer.namespace}/{name}")
        if replaces:
            self._end(bearer.program)

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


def choose_pod(pods: Sequence[Mapping[str, Any]], bearer: Bearer, current_uid: str) -> Mapping[str, Any] | None:
    """The bearer's pod: the current one as long as it is alive, else the oldest; None if there is none."""
    alive = [pod for pod in pods if _is_alive(pod) and _is_of(pod, bearer)]
    alive.sort(key=lambda pod: (pod["metadata"]["uid"] != current_uid, pod["metadata"]["creationTimestamp"]))
    return alive[0] if alive else None


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
