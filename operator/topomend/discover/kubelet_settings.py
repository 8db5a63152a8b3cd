"""Which of the sources of a kubelet's settings is believed, and what they say of one another.

A kubelet that is asked for its ``configz`` tells what it runs with. Else its file with drop-ins is read. Its flags
override that where they stand in a file of their own or its process is seen; else nobody knows of them, which is said.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from topomend.discover.host_files import Unreadable
from topomend.discover.kubelet_config import (
    NOT_GIVEN,
    KubeletConfig,
    config_fingerprint,
    mark_of,
    read_configz,
    read_kubelet_config,
)
from topomend.discover.kubelet_process import kubelet_of, read_flags_file
from topomend.kube.errors import APIError, Forbidden, Refused
from topomend.kube.kubelet_client import Configz
from topomend.model.kubelet import KubeletSettings

RECHECK_SECONDS = 300.0
"""A kubelet takes settings only as it starts, and its socket is new then; this is in case that was not seen."""

LEAST_RETRY_SECONDS, MOST_RETRY_SECONDS = 1.0, 60.0
"""After a kubelet did not answer, twice as long each time: its socket is there a moment before it does. One behind a
firewall never does, and costs a time-out each time."""

FLAGS_UNSEEN = "flags on the kubelet's command line, which override this file, cannot be seen from here"

LAYOUTS = "docs/layouts.md"
MAX_PATH = 200

UNVERIFIED = (
    "its certificate was not verified ({why}), so whoever took the kubelet's address could have answered: have the "
    "cluster sign it (serverTLSBootstrap in the kubelet's configuration), or name its authority with --kubelet-ca"
)

_FIELDS = {
    "topology_manager_policy": "topologyManagerPolicy",
    "topology_manager_scope": "topologyManagerScope",
    "topology_manager_policy_options": "topologyManagerPolicyOptions",
    "cpu_manager_policy": "cpuManagerPolicy",
    "cpu_manager_policy_options": "cpuManagerPolicyOptions",
    "memory_manager_policy": "memoryManagerPolicy",
    "reserved_cpus": "reservedSystemCPUs",
    "reserved_cpu_millis": "kubeReserved and systemReserved",
    "reserved_memory": "reservedMemory",
    "feature_gates": "featureGates",
}


@dataclass(frozen=True, slots=True)
class WrittenConfig:
    """Where a kubelet's configuration is written: its file, its drop-in folder, the file with its flags, if any."""

    file: Path | None = None
    drop_ins: Path | None = None
    flags: Path | None = None

    @property
    def given(self) -> bool:
        """Whether there is anything to read."""
        return bool(self.file or self.drop_ins or self.flags)


class SettingsReader:
    """Reads one kubelet's settings again and again; as long as nothing changed it returns the very same object.

    ``configz`` asks the kubelet for what it runs with and raises APIError; None where it is not to be asked. ``proc``
    is where processes are seen, None where those are not this kubelet's. ``socket`` is replaced when it starts anew.
    """

    def __init__(
        self,
        written: WrittenConfig,
        *,
        configz: Callable[[], Configz] | None = None,
        proc: Path | None = None,
        socket: Path | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files, self._configz = written, configz
        self._proc, self._socket, self._monotonic = proc, socket, monotonic
        self._seen: object = None
        self._due = 0.0
        self._failures = 0
        self._config: KubeletConfig | None = None
        self._running: tuple[object, KubeletConfig] | None = None

    def read(self) -> KubeletConfig:
        """The settings now. What is wrong is said in them; never raises."""
        files = self._files
        written = config_fingerprint(files.file, files.flags, drop_ins=files.drop_ins)
        started = self._socket and mark_of(self._socket)
        if self._config is not None and (written, started) == self._seen and self._monotonic() < self._due:
            return self._config
        self._due = self._monotonic() + RECHECK_SECONDS
        self._seen = (written, started)
        config = self._believed(self._written(), started)
        if config != self._config:
            self._config = config
        assert self._config is not None  # noqa: S101 - it was set above
        return self._config

    def _written(self) -> KubeletConfig:
        """What the files say; the flags of a kubelet that is seen to run with them count, and name its drop-ins."""
        files = self._files
        if files.flags:
            return _with_flags_file(files, files.flags)
        kubelet = kubelet_of(files.file, self._proc) if files.file and self._proc else None
        if kubelet is None:
            config = read_kubelet_config(files.file, files.drop_ins)
            return config if config.reason else replace(config, remarks=(*config.remarks, FLAGS_UNSEEN))
        without = read_kubelet_config(files.file, kubelet.config_dir)
        config = read_kubelet_config(files.file, kubelet.config_dir, kubelet.flags)
        overridden = list(_differences(config.settings, without.settings))
        if config.reason or not overridden:
            return config
        named = f"flags on the kubelet's command line override {', '.join(overridden)}"
        return replace(config, remarks=(*config.remarks, named))

    def _believed(self, written: KubeletConfig, started: object) -> KubeletConfig:
        if self._configz is None:
            return written
        try:
            running = _running(self._configz())
        except APIError as error:
            self._due = self._monotonic() + min(MOST_RETRY_SECONDS, LEAST_RETRY_SECONDS * 2**self._failures)
            self._failures = min(self._failures + 1, 8)
            if started is None or self._running is None or self._running[0] != started:
                return self._instead(written, error)
            # It is the same kubelet that answered before, and takes no settings but at its start.
            running = self._running[1]
        else:
            self._failures = 0
            self._running = (started, running)
        if running.reason:
            return running
        return replace(running, **_compared(running, written))

    def _instead(self, written: KubeletConfig, error: APIError) -> KubeletConfig:
        """The files' settings where the kubelet does not tell its own."""
        why = f"the kubelet's configz cannot be read: {_why(error)}"
        if not self._files.given:
            return replace(written, problems=(why, f"{NOT_GIVEN}, or apply the component of its layout ({LAYOUTS})"))
        if written.reason:
            return replace(written, problems=(*written.problems, why))
        remarks = (f"{why}; its file is read instead", *written.remarks)
        return replace(written, source="ConfigzUnavailable", remarks=remarks)


def _with_flags_file(files: WrittenConfig, path: Path) -> KubeletConfig:
    try:
        flags = read_flags_file(path)
    except Unreadable as error:
        return KubeletConfig(KubeletSettings(), "Unreadable", (f"the kubelet's flags: {error}",))
    for name, given in (("config", files.file), ("config-dir", files.drop_ins)):
        if flags.get(name) and given is None:
            why = f"the kubelet's flags name {flags[name][-1][:MAX_PATH]}: give it with --kubelet-{name}"
            return KubeletConfig(KubeletSettings(), "Unreadable", (why,))
    return read_kubelet_config(files.file, files.drop_ins, flags)


def _running(answer: Configz) -> KubeletConfig:
    config = read_configz(answer.content)
    if config.reason or not answer.unverified:
        return config
    return replace(config, remarks=(UNVERIFIED.format(why=answer.unverified),))


def _compared(running: KubeletConfig, written: KubeletConfig) -> dict[str, Any]:
    """What the files say beside what the kubelet runs with: the fields ``source`` and ``remarks``."""
    if written.reason == "NotGiven":
        return {"source": "ReadFromConfigz"}
    if written.reason:
        contradicted = f"not in force, yet: {written.problems[0]}"
    elif differing := list(_differences(running.settings, written.settings)):
        contradicted = (
            f"the kubelet runs with another {', '.join(differing)} than its file says: what it runs with counts"
        )
    else:
        return {"source": "ReadFromConfigz"}
    return {"source": "FileContradicted", "remarks": (contradicted, *running.remarks)}


def _why(error: APIError) -> str:
    if not isinstance(error, Refused):
        return str(error)
    if error.status == 401:
        return f"{error}: it takes no tokens (authentication.webhook.enabled), or could not have this one reviewed"
    if isinstance(error, Forbidden):
        return f"{error}: a kubelet before 1.33 wants nodes/proxy for it, which no agent gets"
    if error.status in (404, 405):
        return f"{error}: its configuration turns it off (enableDebuggingHandlers)"
    return str(error)


def _differences(one: KubeletSettings, other: KubeletSettings) -> Iterator[str]:
    """The kubelet's names for the fields in which they differ."""
    for field, name in _FIELDS.items():
        if _unordered(getattr(one, field)) != _unordered(getattr(other, field)):
            yield name


def _unordered(content: object) -> object:
    return frozenset(content) if isinstance(content, tuple) else content
