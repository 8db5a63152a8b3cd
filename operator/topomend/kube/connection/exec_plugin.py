"""Credentials that a program issues, as kubectl's exec plugins do (aws, gcloud, kubelogin).

Owns the program's call, its answer and when it is called again: once the credential has expired, or was not accepted.
The rules are those of client-go: plugin/pkg/client/auth/exec/exec.go:Authenticator.refreshCredsLocked.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, Any

from topomend.base.plain_text import plain
from topomend.kube.connection.kubeconfig import Entry, NotConfigured

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

SECONDS = 60.0
"""How long a program that cannot ask its user may take."""

AGAIN_SECONDS = 10.0
"""A credential that was not accepted is issued anew no sooner than so long after the last one."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""For how long the program is not called again after it failed: twice as long each time."""

MAX_WORDS = 200
_KEPT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Credential:
    """What the program issued: a token, a certificate with its key in PEM, or both; ``expires`` is a time.time()."""

    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    expires: float | None = None


class ExecPlugin:
    """The program that ``user`` names in its field ``exec``. May be used by several threads.

    ``cluster`` is told to the program if it asks for it. Raises NotConfigured where the field is wrong.
    """

    def __init__(self, user: Entry, cluster: Mapping[str, Any]) -> None:
        self._user = user
        self._config = Entry("exec of user", user.name, user.mapping("exec"), user.file, user.context)
        self._version = self._config.text("apiVersion")
        if self._version not in VERSIONS:
            raise self._config.wrong("apiVersion", f"is {self._version or 'missing'}: give {' or '.join(VERSIONS)}")
        self._command = _command(self._config)
        self._args = self._config.texts("args")
        self._env = _env(self._config)
        self._mode = self._config.text("interactiveMode") or ("IfAvailable" if "beta" in self._version else "")
        if self._mode not in ("Never", "IfAvailable", "Always"):
            is_ = plain(self._mode, 40) or "missing"
            raise self._config.wrong("interactiveMode", f"is {is_}: give Never, IfAvailable or Always")
        self._cluster = cluster if self._config.flag("provideClusterInfo") else None
        self._lock = threading.Lock()
        self._credential: Credential | None = None
        self._called = 0.0
        self._failures, self._why = 0, ""

    def credential(self) -> Credential:
        """The credential, issued anew if it has expired. Raises NotConfigured."""
        with self._lock:
            if self._credential is None or _has_expired(self._credential):
                self._credential = self._issue()
            return self._credential

    def forget(self) -> None:
        """Have the credential issued anew: the server did not accept it."""
        with self._lock:
            if time.monotonic() - self._called >= AGAIN_SECONDS:
                self._credential = None

    def _issue(self) -> Credential:
        pause = min(FIRST_PAUSE * 2.0 ** (self._failures - 1), LONGEST_PAUSE) if self._failures else 0.0
        if self._failures and time.monotonic() - self._called < pause:
            # A new error each time: Python adds to one what it passed through whenever it is raised.
            raise NotConfigured(self._why)
        try:
            issued = self._read(self._call())
        except NotConfigured as error:
            self._failures, self._why = min(self._failures + 1, 30), str(error)
            raise
        finally:
            self._called = time.monotonic()
        self._failures = 0
        return issued

    def _call(self) -> bytes:
        """What the program prints."""
        interactive = self._is_interactive()
        spec = {"interactive": interactive} | ({"cluster": self._cluster} if self._cluster is not None else {})
        info = {"kind": "ExecCredential", "apiVersion": self._version, "spec": spec}
        try:
            program = subprocess.Popen(
                [self._command, *self._args],
                env={**os.environ, **self._env, "KUBERNETES_EXEC_INFO": json.dumps(info)},
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            hint = plain(self._config.text("installHint"), MAX_WORDS)
            install = f": {hint}" if hint else ": install it, or correct the command"
            raise self._config.wrong("command", f"is {self._command}, which is not installed{install}") from error
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise self._config.wrong("command", f"is {self._command}, which cannot be run: {why}") from error
        assert program.stdout is not None and program.stderr is not None  # noqa: S101, PT018 - both are pipes
        words = _Words(program.stderr)
        try:
            printed = _read_all(program.stdout, program, None if interactive else SECONDS)
            code = program.wait(SECONDS)
            said = words.last()
        except subprocess.TimeoutExpired as error:
            raise self._user.wrong("exec", f"failed: {self._command} did not end within {SECONDS:.0f} s") from error
        finally:
            if program.poll() is None:
                program.kill()
                program.wait()
        if code:
            why = said or "without a word on stderr"
            raise self._user.wrong("exec", f"failed: {self._command} ended with exit code {code}: {why}")
        return printed

    def _is_interactive(self) -> bool:
        if self._mode == "Never":
            return False
        is_terminal = sys.stdin is not None and sys.stdin.isatty()
        if self._mode == "Always" and not is_terminal:
            raise self._config.wrong("interactiveMode", "is Always, and the standard input is no terminal")
        return is_terminal

    def _read(self, printed: bytes) -> Credential:
        try:
            answer = json.loads(printed)
        except (ValueError, RecursionError) as error:
            raise self._bad("prints no JSON") from error
        if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
            raise self._bad("prints no ExecCredential")
        if answer.get("apiVersion") != self._version:
            raise self._bad(f"answers in version {plain(str(answer.get('apiVersion')), 60)}, not {self._version}")
        status = answer.get("status")
        if not isinstance(status, dict):
            raise self._bad("answers without a status")
        token, certificate, key = (_text(status, name) for name in _ISSUED)
        if not token and not certificate and not key:
            raise self._bad("issues neither a token nor a certificate")
        if bool(certificate) != bool(key):
            raise self._bad("issues only one of certificate and key")
        return Credential(token, certificate.encode(), key.encode(), self._expires(status.get("expirationTimestamp")))

    def _expires(self, written: object) -> float | None:
        if written is None:
            return None
        try:
            time_ = datetime.fromisoformat(str(written))
        except ValueError as error:
            raise self._bad("prints an expirationTimestamp that is no time") from error
        return time_.timestamp()

    def _bad(self, problem: str) -> NotConfigured:
        return self._user.wrong("exec", f"failed: {self._command} {problem}")


_ISSUED = ("token", "clientCertificateData", "clientKeyData")


def _has_expired(credential: Credential) -> bool:
    return credential.expires is not None and time.time() > credential.expires


def _text(status: Mapping[str, Any], name: str) -> str:
    value = status.get(name)
    return value if isinstance(value, str) else ""


def _command(config: Entry) -> str:
    """A name for PATH, or a path relative to the kubeconfig's folder."""
    command = config.text("command")
    if not command:
        raise config.wrong("command", "is missing")
    return str(config.path("command")) if os.sep in command else command


def _env(config: Entry) -> dict[str, str]:
    listed = config.fields.get("env") or []
    if not isinstance(listed, list):
        raise config.wrong("env", "is no list")
    variables: dict[str, str] = {}
    for item in listed:
        entry = Entry("env of exec of user", config.name, item if isinstance(item, dict) else {}, config.file)
        name = entry.text("name")
        if not name:
            raise config.wrong("env", "has a variable without a name")
        variables[name] = entry.text("value")
    return variables


def _read_all(stream: IO[bytes], program: "subprocess.Popen[bytes]", seconds: float | None) -> bytes:
    """What the program prints until it closes its output. Raises TimeoutExpired after ``seconds``."""
    printed: list[bytes] = []

    def read() -> None:
        with stream:
            printed.append(stream.read())

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(seconds)
    if reading.is_alive():
        raise subprocess.TimeoutExpired(program.args, seconds or 0.0)
    return b"".join(printed)


class _Words:
    """What a program says on stderr: shown to a user who may have to act on it, and its end kept for an error."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._kept = stream, b""
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def last(self) -> str:
        """The last line that is not empty."""
        self._thread.join(1.0)  # a child of the program may keep the stream open
        lines = [line for line in self._kept.decode(errors="replace").splitlines() if line.strip()]
        return plain(lines[-1], MAX_WORDS) if lines else ""

    def _read(self) -> None:
        with self._stream:
            while some := os.read(self._stream.fileno(), _KEPT_BYTES):
                self._kept = (self._kept + some)[-_KEPT_BYTES:]
                if self._shown:
                    sys.stderr.write(some.decode(errors="replace"))
                    sys.stderr.flush()
