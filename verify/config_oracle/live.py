"""``python -m verify.config_oracle.live``: random configurations on a real kubelet, which starts or does not.

One control plane serves all; each configuration is written for the one node's kubelet, which either serves its health
or ends. Its log then has the sentences that replay gives. ``topomend lint`` says of the same file whether it starts.
Exits with 1 after a difference, with 3 without a sandbox.
"""

import argparse
import json
import secrets
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import yaml
from click.testing import CliRunner
from verify.config_oracle.starting import Content, as_loaded, random_content, written

from topomend.cli.main import main
from topomend.cli.output.failures import NO, YES
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.replay.gates import minor_of
from topomend.replay.startup.configuration import Host
from topomend.replay.startup.go_text import duration_of, quote
from topomend.replay.startup.rules.run import STARTED_ONCE, runs_once
from topomend.replay.startup.validation import why_not_start
from topomend.sandbox import NodeSpec, Sandbox
from topomend.sandbox.failures import SandboxError
from topomend.sandbox.processes.host import free_ports

NODE = "n"
SHAPE = "sockets:1 numa:2 cores:4 memory:4Gi"
PATIENCE = 120.0
"""Seconds in which a kubelet must do the one or the other; it takes two."""

_LEFT_ALONE = frozenset(
    {
        "port",
        "healthzPort",
        "readOnlyPort",
        "containerRuntimeEndpoint",
        "cgroupsPerQOS",
        "cgroupRoot",
        "systemCgroups",
        "podLogsDir",
        "maxOpenFiles",
        "userNamespaces",
        "logging",
        "tracing",
        "maxPods",
        "memoryManagerPolicy",
        "reservedMemory",
        "systemReserved",
        "kubeReserved",
        "evictionHard",
        "reservedSystemCPUs",
        "serverTLSBootstrap",
        "defaultPodSysctls",
        "tlsCipherSuites",
    }
)
"""Fields that a kubelet needs in a sandbox, whose values cost a host or run into one another, or that some later part
of the kubelet looks at on its machine. Of these, ``_harmless`` draws values that decide the start alone."""

_CHANGES: tuple[Content, ...] = (
    {"port": 70000},
    {"readOnlyPort": -1},
    {"podLogsDir": "/a/../b"},
    {"maxOpenFiles": -1},
    {"maxPods": -1},
    {"runOnce": True},
    {"userNamespaces": {"idsPerPod": 5}},
    {"userNamespaces": {"idsPerPod": 65536}},
    {"logging": {"format": "x"}},
    {"logging": {"verbosity": 5}},
    {"logging": {"options": {"json": {"infoBufferSize": "1Ki"}}}},
    {"tracing": {"endpoint": "http://a"}},
    {"tracing": {"samplingRatePerMillion": -1}},
    {"kubeReserved": {"memory": "-1Mi"}},
    {"kubeReserved": {"memory": "100Mi", "cpu": "500m"}},
    {"systemReserved": {"gpu": "1"}},
    {"systemReserved": {"pid": "100", "memory": "x"}},
    {"evictionHard": {"memory.available": "1%"}},
    {"evictionHard": {"memory.available": "101%"}},
    {"evictionHard": {"memory.free": "1Mi"}},
    {"evictionHard": {"memory.available": "1Mi", "nodefs.available": "x"}},
    {"reservedSystemCPUs": "0"},
    {"reservedSystemCPUs": "0,a"},
    {"reservedSystemCPUs": "0", "systemReservedCgroup": "/system"},
    {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]},
    {
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
        "kubeReserved": {"memory": "100Mi"},
    },
    {
        "memoryManagerPolicy": "Static",
        "reservedMemory": [
            {"numaNode": 0, "limits": {"memory": "50Mi"}},
            {"numaNode": 1, "limits": {"memory": "50Mi"}},
        ],
        "kubeReserved": {"memory": "60Mi"},
        "evictionHard": {"memory.available": "40Mi"},
    },
    {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}, {"numaNode": 0, "limits": {"memory": "1Gi"}}]},
    {"reservedMemory": [{"numaNode": 0, "limits": {"cpu": "1", "memory": "0"}}]},
    {"featureGates": {"CPUManager": True, "TopologyManager": True}},
    {"featureGates": {"AppArmor": False}},
    {"tlsCipherSuites": ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]},
    {"tlsCipherSuites": ["x"]},
    {"serverTLSBootstrap": True, "featureGates": {"RotateKubeletServerCertificate": False}},
)
"""Configurations of the fields that are left alone otherwise."""


_RUNS_ONCE = (STARTED_ONCE, "runonce failed: no pod manifest update")
"""What a kubelet says that runs once: the second where its files are not read within a second, on a busy machine."""


@dataclass(frozen=True)
class Outcome:
    """One configuration, whether its kubelet started, what replay says, and whether it starts according to ``lint``.

    ``for_host`` is that it would have done otherwise on a host with cgroup v2, which lint assumes.
    """

    change: Content
    started: bool
    log: str
    sentences: tuple[str, ...]
    lint_starts: bool
    for_host: bool

    @property
    def agree(self) -> bool:
        """Whether lint and replay predict the start, or the log has one of the sentences, raw or quoted by klog."""
        if (self.lint_starts != self.started) is not self.for_host:
            return False
        if self.started or not self.sentences:
            return self.started and not self.sentences
        return any(text in self.log or quote(text)[1:-1] in self.log for text in self.sentences)


def random_change(random: Random) -> Content:
    """What is changed in the configuration of the sandbox's kubelet."""
    if random.random() < 0.3:
        return random.choice(_CHANGES)
    change = {name: value for name, value in random_content(random).items() if name not in _LEFT_ALONE}
    return {**change, **_harmless_gates(change)}


def _harmless_gates(change: Mapping[str, Any]) -> Content:
    """No gate turns a feature on that nobody has asked for: alpha features may end a kubelet later."""
    gates = {name: on for name, on in change.get("featureGates", {}).items() if not (on and name.startswith("All"))}
    return {"featureGates": gates}


def predicted(loaded: Content, version: str, host: Host) -> tuple[str, ...]:
    """The sentences of which a kubelet on this host says one at its end; empty where it starts and runs on."""
    if refused := why_not_start(loaded, version, host=host):
        return refused
    return _RUNS_ONCE if runs_once(minor_of(version), loaded) else ()


class LiveKubelet:
    """The one kubelet of a sandbox, started with one configuration after the other."""

    def __init__(self, sandbox: Sandbox, version: str) -> None:
        self._sandbox, self._version = sandbox, version
        self._folder = sandbox.folder / "nodes" / NODE / "kubelet"
        self._log = sandbox.folder / "logs" / f"kubelet-{NODE}.log"
        self._file = self._folder / "config.yaml"
        self._base: Content = yaml.safe_load(self._file.read_text())

    def ask(self, change: Content) -> Outcome:
        """Start the kubelet with ``change`` over the sandbox's configuration, wait for its end or health, stop it."""
        (health,) = free_ports(1)
        content = {**_typed(self._base), "healthzPort": health, **change}
        self._file.write_text(json.dumps(written(content)))
        for name in ("cpu_manager_state", "memory_manager_state"):
            (self._folder / name).unlink(missing_ok=True)
        self._log.write_text("")
        lint_starts, started = self._lint_starts(), self._starts(health)
        log = self._log.read_text(errors="replace")
        loaded, host = as_loaded(content), Host(cgroup_v1=not Path("/sys/fs/cgroup/cgroup.controllers").exists())
        sentences = predicted(loaded, self._version, host)
        for_host = bool(sentences) != bool(predicted(loaded, self._version, Host(cgroup_v1=False)))
        return Outcome(change, started, log, sentences, lint_starts, for_host)

    def _lint_starts(self) -> bool:
        """Whether the kubelet starts with its file by ``topomend lint``; not where the file cannot be read."""
        arguments = ["lint", str(self._file), "--machine", SHAPE, "--kubelet-version", self._version, "-o", "json"]
        result = CliRunner().invoke(main, arguments)
        return result.exit_code in (YES, NO) and bool(json.loads(result.stdout)["starts"])

    def _starts(self, health: int) -> bool:
        self._sandbox.begin_kubelet(NODE)
        try:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                if self._sandbox.kubelet_ended(NODE):
                    return False
                if _is_healthy(health):
                    return True
                time.sleep(0.05)
            raise SandboxError(f"the kubelet neither ended nor served its health for {PATIENCE:.0f} s")
        finally:
            self._sandbox.stop_kubelet(NODE)


def _typed(config: Mapping[str, Any]) -> Content:
    """The sandbox's configuration with its durations in nanoseconds."""
    durations = ("syncFrequency", "nodeStatusUpdateFrequency", "nodeStatusReportFrequency", "volumeStatsAggPeriod")
    return {**config, **{name: duration_of(config[name]) for name in durations}}


def _is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@contextmanager
def live_kubelet(version: str) -> Iterator[LiveKubelet]:
    """A kubelet of the release in a sandbox of its own."""
    spec = NodeSpec.of_shape(NODE, SHAPE, version=version, cpu_manager_policy="none", memory_manager_policy="None")
    with Sandbox.up([spec], version=version) as sandbox:
        # A Node whose kubelet is away most of the time is of no interest to controllers.
        sandbox.stop_controllers()
        sandbox.stop_kubelet(NODE)
        yield LiveKubelet(sandbox, version)


def ask_all() -> int:
    """Ask the kubelet about every configuration, and print the differences and the figures."""
    parser = argparse.ArgumentParser(prog="python -m verify.config_oracle.live", description=__doc__)
    parser.add_argument("--cases", type=int, default=300, help="how many configurations (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="the first one's number (default: random)")
    parser.add_argument("--version", default=DEFAULT_VERSION, help="the kubelet's release (default: %(default)s)")
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 40) if options.seed is None else options.seed
    sys.stdout.write(f"kubelet {options.version}: repeat with --seed {seed} --cases {options.cases}\n")
    try:
        with live_kubelet(options.version) as kubelet:
            outcomes = [
                _report(kubelet.ask(random_change(Random(f"{seed + number}")))) for number in range(options.cases)
            ]
    except SandboxError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    differences = sum(not outcome.agree for outcome in outcomes)
    started = sum(outcome.started for outcome in outcomes)
    sys.stdout.write(f"{len(outcomes)} configurations, {started} kubelets started, {differences} differences\n")
    return 1 if differences else 0


def _report(outcome: Outcome) -> Outcome:
    if not outcome.agree:
        said = " | ".join(outcome.sentences) or "starts"
        said += "; lint: starts" if outcome.lint_starts else "; lint: does not start"
        did = "started" if outcome.started else "ended: " + " / ".join(outcome.log.splitlines()[-3:])[:1500]
        sys.stdout.write(f"{json.dumps(outcome.change)}\n  replay: {said}\n  kubelet: {did}\n")
        sys.stdout.flush()
    return outcome


if __name__ == "__main__":
    sys.exit(ask_all())
