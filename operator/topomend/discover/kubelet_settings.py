"""Choose between the sources of a kubelet's settings, and compare them.

The kubelet's ``configz`` answers with the settings in force. If it does not, or with anything but a
KubeletConfiguration, the configuration file with its drop-ins counts. Flags override the file if they are in a file of
their own, or if the kubelet's process is visible. Otherwise the flags are unknown, and a remark says so. What changes
in the files counts from the kubelet's next start on, as far as a start was seen before the change. If a kubelet has
answered, the file of the next one does not count while that may only be starting (``kubelet_start``). Owns this choice
and when to read again; ``kubelet_config`` parses. Every source is judged by the release of the kubelet, so the version
comes first.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from topomend.discover.host_files import SourceUnreadable
from topomend.discover.kubelet_config import (
    NOT_GIVEN,
    KubeletConfig,
    config_fingerprint,
    layouts,
    mark_of,
    read_configz,
    read_kubelet_config,
)
from topomend.discover.kubelet_config.kubelet_process import kubelet_of, read_flags_file
from topomend.discover.kubelet_start import KubeletStart, Mark
from topomend.kube.errors import APIError, Forbidden, Refused
from topomend.kube.kubelet_client import Configz
from topomend.model.nodes.kubelet import DEFAULT_VERSION, KubeletSettings
from topomend.runtime.backoff import Exponential, Retry

RECHECK_SECONDS = 300.0
"""A kubelet reads its settings only at its start, which replaces its socket. This covers a start that was missed."""

DELAYS = Exponential(1.0, 60.0)
"""The delays after failed requests. A starting kubelet has its socket a moment before it answers; one behind a firewall
never answers, and costs a time-out each time."""

STARTING_RECHECK_SECONDS = 1.0
"""The delay while the kubelet may only be starting."""

FLAGS_UNSEEN = "flags on the kubelet's command line, which override this file, cannot be seen from here"

VERSION_UNKNOWN = f"the kubelet's version is not known: {DEFAULT_VERSION} is assumed"

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
    """The paths of a kubelet's configuration file, drop-in folder and flags file; None for one that is not given."""

    file: Path | None = None
    drop_ins: Path | None = None
    flags: Path | None = None

    @property
    def given(self) -> bool:
        """Whether any path is given."""
        return bool(self.file or self.drop_ins or self.flags)


class SettingsReader:
    """Reads one kubelet's settings repeatedly. Returns the same object until something changes.

    ``configz`` requests the settings in force and raises APIError; None means not to ask. ``proc`` is the folder of
    processes, None if the kubelet is not among them. A new ``socket`` means that the kubelet has restarted. ``cure``
    says what to do if no source tells the settings.
    """

    def __init__(  # noqa: PLR0913 - the sources, and how to learn that they changed
        self,
        written: WrittenConfig,
        *,
        configz: Callable[[], Configz] | None = None,
        proc: Path | None = None,
        socket: Path | None = None,
        cure: Callable[[], str] = layouts.cure,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files, self._configz, self._cure = written, configz, cure
        self._proc, self._socket, self._monotonic = proc, socket, monotonic
        self._last_marks: object = None
        self._next_read = 0.0
        self._retry = Retry(DELAYS)
        self._config: KubeletConfig | None = None
        self._answered: tuple[object, Configz | APIError] | None = None
        self._read_at_start: tuple[tuple[Mark, str], KubeletConfig] | None = None
        self._start = KubeletStart(monotonic)

    def read(self, version: str | None) -> KubeletConfig:
        """The current settings of a kubelet of this version. None takes the default version, with a remark.

        Never raises: the result names its problems.
        """
        files = self._files
        written = config_fingerprint(files.file, files.flags, drop_ins=files.drop_ins)
        started = mark_of(self._socket) if self._socket else None
        marks = (written, started, version)
        if self._config is not None and marks == self._last_marks and self._monotonic() < self._next_read:
            return self._config
        self._next_read = self._monotonic() + RECHECK_SECONDS
        self._last_marks = marks
        config = self._effective(self._written(version or DEFAULT_VERSION), started)
        if version is None:
            config = replace(config, remarks=(*config.remarks, VERSION_UNKNOWN))
        if config != self._config:
            self._config = config
        assert self._config is not None  # noqa: S101 - it was set above
        return self._config

    def _written(self, version: str) -> KubeletConfig:
        """The settings in the files. A visible kubelet process adds its flags, which also name the drop-in folder."""
        files = self._files
        if files.flags:
            return _with_flags_file(files, files.flags, version)
        kubelet = kubelet_of(files.file, self._proc) if files.file and self._proc else None
        if kubelet is None:
            config = read_kubelet_config(files.file, files.drop_ins, version=version)
            return config if config.reason else replace(config, remarks=(*config.remarks, FLAGS_UNSEEN))
        without = read_kubelet_config(files.file, kubelet.config_dir, version=version)
        config = read_kubelet_config(files.file, kubelet.config_dir, kubelet.flags, version=version)
        overridden = list(_differences(config.settings, without.settings))
        if config.reason or not overridden:
            return config
        named = f"flags on the kubelet's command line override {', '.join(overridden)}"
        return replace(config, remarks=(*config.remarks, named))

    def _in_force(self, written: KubeletConfig, started: Mark | None) -> KubeletConfig:
        """The files as they were when the kubelet's socket was first seen: it reads them only at its start."""
        if started is None or not any(started):
            return written
        start = (started, written.settings.version)
        if self._read_at_start is None or self._read_at_start[0] != start:
            if written.reason:
                return written
            self._read_at_start = (start, written)
        read = self._read_at_start[1]
        if not (written.reason or any(_differences(read.settings, written.settings))):
            return written
        return replace(read, **_comparison(read, written))

    def _effective(self, written: KubeletConfig, started: Mark | None) -> KubeletConfig:
        in_force = self._in_force(written, started)
        if self._configz is None:
            return in_force
        version = written.settings.version
        if started is not None:
            self._start.saw(started)
        answer = _answer(self._configz)
        running = _running(answer, version)
        if not running.reason:
            self._retry.succeeded()
            self._answered = (started, answer)
            self._start.end()
        else:
            now = self._monotonic()
            if self._answered is not None and self._start.is_recent() and isinstance(answer, APIError):
                self._next_read = now + STARTING_RECHECK_SECONDS
                return _until_it_answers(_running(self._answered[1], version), running)
            self._next_read = now + self._retry.failed(now)
            if started is None or self._answered is None or self._answered[0] != started:
                return self._without_configz(in_force, running)
            # The same kubelet answered before, and it reads settings only at its start.
            running = _running(self._answered[1], version)
        return replace(running, **_comparison(running, written))

    def _without_configz(self, written: KubeletConfig, running: KubeletConfig) -> KubeletConfig:
        """The settings of the files, with the reason why those of ``running`` are not known."""
        if not self._files.given:
            # A value that no kubelet is known to have is the same in its file.
            what_to_do = () if running.reason == "Invalid" else (f"{NOT_GIVEN}, or {self._cure()}",)
            return replace(running, problems=(*running.problems, *what_to_do))
        if written.reason:
            return replace(written, problems=tuple(dict.fromkeys((*written.problems, *running.problems))))
        remarks = (f"{running.problems[0]}; its file is read instead", *written.remarks)
        return replace(written, source="ConfigzUnavailable", remarks=remarks)


def _with_flags_file(files: WrittenConfig, path: Path, version: str) -> KubeletConfig:
    try:
        flags = read_flags_file(path)
    except SourceUnreadable as error:
        return KubeletConfig(KubeletSettings(version), "Unreadable", (f"the kubelet's flags: {error}",))
    for name, given in (("config", files.file), ("config-dir", files.drop_ins)):
        if flags.get(name) and given is None:
            why = f"the kubelet's flags name {flags[name][-1][:MAX_PATH]}: give it with --kubelet-{name}"
            return KubeletConfig(KubeletSettings(version), "Unreadable", (why,))
    return read_kubelet_config(files.file, files.drop_ins, flags, version=version)


def _answer(ask: Callable[[], Configz]) -> Configz | APIError:
    try:
        return ask()
    except APIError as error:
        return error


def _running(answer: Configz | APIError, version: str) -> KubeletConfig:
    """The settings in force; with a reason if the kubelet does not tell them."""
    if isinstance(answer, APIError):
        why = f"the kubelet's configz cannot be read: {_why(answer)}"
        return KubeletConfig(KubeletSettings(version), "NotGiven", (why,))
    config = read_configz(answer.content, version)
    if config.reason or not answer.unverified:
        return config
    return replace(config, remarks=(UNVERIFIED.format(why=answer.unverified),))


def _until_it_answers(before: KubeletConfig, running: KubeletConfig) -> KubeletConfig:
    """The settings ``before`` a start of the kubelet, with the reason why those of ``running`` are not known."""
    problem = f"{running.problems[0]}; the kubelet has just started, and the settings that it had before are shown"
    return replace(before, reason="KubeletStarting", problems=(problem,))


def _comparison(running: KubeletConfig, written: KubeletConfig) -> dict[str, Any]:
    """Compare the files with the settings in force; the KubeletConfig fields ``source`` and ``remarks``."""
    if written.reason == "NotGiven":
        return {"source": "ReadFromConfigz"}
    if written.reason:
        contradicted = f"the changed file is not in force: {written.problems[0]}"
    elif differing := list(_differences(running.settings, written.settings)):
        contradicted = (
            f"the kubelet runs with another {', '.join(differing)} than its file says; the running kubelet counts"
        )
    else:
        return {"source": "ReadFromConfigz"}
    after_restart = None if written.reason else written.settings
    return {
        "source": "FileContradicted",
        "remarks": (contradicted, *running.remarks),
        "after_restart": after_restart,
    }


def _why(error: APIError) -> str:
    if not isinstance(error, Refused):
        return str(error)
    if error.status == 401:
        return f"{error}: it accepts no tokens (authentication.webhook.enabled), or could not have this one reviewed"
    if isinstance(error, Forbidden):
        return f"{error}: a kubelet before 1.33 wants nodes/proxy, a right that no agent has"
    if error.status in (404, 405):
        return f"{error}: its configuration disables configz (enableDebuggingHandlers)"
    return str(error)


def _differences(one: KubeletSettings, other: KubeletSettings) -> Iterator[str]:
    """The names, in the kubelet's configuration, of the fields that differ."""
    for field, name in _FIELDS.items():
        if _unordered(getattr(one, field)) != _unordered(getattr(other, field)):
            yield name


def _unordered(content: object) -> object:
    return frozenset(content) if isinstance(content, tuple) else content
