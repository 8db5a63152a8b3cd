"""The programs that try the Helm chart: helm 3, helm 4 and kubeconform, from pinned Go modules."""

import os
import subprocess
from functools import cache
from pathlib import Path

from tools.go_programs import GoPrograms

from topomend.sandbox.layout import cache_folder

PROGRAMS = GoPrograms(
    Path(__file__).parent / "programs",
    {
        "helm3": "helm.sh/helm/v3/cmd/helm",
        "helm4": "helm.sh/helm/v4/cmd/helm",
        "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform",
    },
    "chart",
)


@cache
def program(name: str) -> Path:
    """The program of that name, built once: three minutes with a cold cache of Go's.

    Raises NotBuilt, SandboxUnavailable.
    """
    return PROGRAMS.program(name)


def run(name: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program on this machine's files alone, without the user's settings of helm."""
    settings = cache_folder() / "chart" / "settings"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HELM_")}
    environment |= {f"HELM_{kind}_HOME": str(settings) for kind in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [str(program(name)), *arguments],
        input=given,
        env=environment | {"KUBECONFIG": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
