"""Prometheus and promtool, from a pinned Go module, without their web pages and with Kubernetes' discovery alone."""

import subprocess
from functools import cache
from pathlib import Path

from tools.go_programs import GoPrograms

PROGRAMS = GoPrograms(
    Path(__file__).parent / "programs",
    {
        "prometheus": "github.com/prometheus/prometheus/cmd/prometheus",
        "promtool": "github.com/prometheus/prometheus/cmd/promtool",
    },
    "prometheus",
    tags="remove_all_sd,enable_kubernetes_sd",
)


@cache
def program(name: str) -> Path:
    """The program of that name, built once: nine minutes with a cold cache of Go's.

    Raises NotBuilt, SandboxUnavailable.
    """
    return PROGRAMS.program(name)


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    return subprocess.run([str(program("promtool")), *arguments], capture_output=True, text=True, check=False)
