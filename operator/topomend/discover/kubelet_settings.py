"""Which of the sources of a kubelet's settings is believed, and what they say of one another.

A kubelet that is asked for its ``configz`` tells what it runs with. Else its file with drop-ins is read, and the flags
of its process override that where the process is seen; where it is not, nobody knows of flags, and that is said.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from topomend.discover.kubelet_config import (
    KubeletConfig,
    config_fingerprint,
    mark_of,
    read_configz,
    read_kubelet_config,
)
from topomend.discover.kubelet_process import kubelet_of
from topomend.kube.errors import APIError, Forbidden
from topomend.model.kubelet import KubeletSettings

RECHECK_SECONDS = 300.0
"""A kubelet takes settings only as it starts, and its socket is new then; this is in case that was not seen."""

RETRY_SECONDS = 15.0
"""After a kubelet did not answer: its socket is there a moment before it does."""

FLAGS_UNSEEN = "flags on the kubelet's command line, which override this file, cannot be seen from here"

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


class SettingsReader:
    """Reads one kubelet's settings again and again; as long as nothing changed it returns the very same object.

    ``configz`` asks the kubelet for what it runs with and raises APIError; None where it is not to be asked. ``proc``
    is where processes are seen, None where those are not this kubelet's. ``socket`` is replaced when it starts anew.
    """

    def __init__(  # noqa: PLR0913 - one argument for each source
        self,
        file: Path | None,
        drop_ins: Path | None = None,
        *,
        configz: Callable[[], object] | None = None,
        proc: Path | None = None,
        socket: Path | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file, self._drop_ins, self._configz = file, drop_ins, configz
        self._proc, self._socket, self._monotonic = proc, socket, monotonic
        self._seen: object = None
        self._due = 0.0
        self._config: KubeletConfig | None = None

    def read(self) -> KubeletConfig:
        """The settings now. What is wrong is said in them; never raises."""
        seen = (config_fingerprint(self._file, self._drop_ins), self._socket and mark_of(self._socket))
        if self._config is not None and seen == self._seen and self._monotonic() < self._due:
            return self._config
        self._due = self._monotonic() + RECHECK_SECONDS
        self._seen = seen
        config = self._believed(self._written())
        if config != self._config:
            self._config = config
        assert self._config is not None  # noqa: S101 - it was set above
        return self._config

    def _written(self) -> KubeletConfig:
        """What the file says, and the flags of the kubelet that was started with it: these name its drop-ins, too."""
        kubelet = kubelet_of(self._file, self._proc) if self._file and self._proc else None
        if kubelet is None:
            config = read_kubelet_config(self._file, self._drop_ins)
            return config if config.reason else replace(config, remarks=(FLAGS_UNSEEN,))
        without = read_kubelet_config(self._file, kubelet.config_dir)
        config = read_kubelet_config(self._file, kubelet.config_dir, kubelet.flags)
        overridden = list(_differences(config.settings, without.settings))
        if config.reason or not overridden:
            return config
        return replace(config, remarks=(f"flags on the kubelet's command line override {', '.join(overridden)}",))

    def _believed(self, written: KubeletConfig) -> KubeletConfig:
        if self._configz is None:
            return written
        try:
            running = read_configz(self._configz())
        except APIError as error:
            self._due = self._monotonic() + RETRY_SECONDS
            return _instead(written, f"the kubelet's configz cannot be read: {_why(error)}")
        if running.reason:
            return running
        if written.reason == "NotGiven":
            return replace(running, source="ReadFromConfigz")
        if written.reason:
            return replace(running, source="FileContradicted", remarks=(f"not in force, yet: {written.problems[0]}",))
        if differing := list(_differences(running.settings, written.settings)):
            why = f"the kubelet runs with another {', '.join(differing)} than its file says: what it runs with counts"
            return replace(running, source="FileContradicted", remarks=(why,))
        return replace(running, source="ReadFromConfigz")


def _instead(written: KubeletConfig, why: str) -> KubeletConfig:
    """The file's settings where the kubelet does not tell its own."""
    if written.reason:
        return replace(written, problems=(*written.problems, why))
    return replace(written, source="ConfigzUnavailable", remarks=(f"{why}; its file is read instead", *written.remarks))


def _why(error: APIError) -> str:
    if isinstance(error, Forbidden):
        return (
            f"{error}: the agent's account needs the right nodes/configz (deploy/overlays/kubelet-configz), "
            "and the kubelet must be of 1.33 or newer"
        )
    return str(error)


def _differences(one: KubeletSettings, other: KubeletSettings) -> Iterator[str]:
    """The kubelet's names for the fields in which they differ."""
    for field, name in _FIELDS.items():
        if _unordered(getattr(one, field)) != _unordered(getattr(other, field)):
            yield name


def _unordered(content: object) -> object:
    return frozenset(content) if isinstance(content, tuple) else content
