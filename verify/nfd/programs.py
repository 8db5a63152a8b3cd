"""Node Feature Discovery's master and kinds, from a pinned Go module."""

from functools import cache
from pathlib import Path
from typing import Any

from tools.go_programs import GoPrograms, downloaded

from topomend.runtime.manifests import documents

MODULE = "sigs.k8s.io/node-feature-discovery"

PROGRAMS = GoPrograms(Path(__file__).parent / "programs", {"nfd-master": f"{MODULE}/cmd/nfd-master"}, "nfd")


@cache
def master() -> Path:
    """nfd-master, built once: three minutes with a cold cache of Go's. Raises NotBuilt, SandboxUnavailable."""
    return PROGRAMS.program("nfd-master")


@cache
def kinds() -> tuple[dict[str, Any], ...]:
    """The definitions of NodeFeature and its like, as NFD installs them. Raises NotBuilt, SandboxUnavailable."""
    folder = downloaded(PROGRAMS.module, {}, MODULE)
    text = (folder / "deployment" / "base" / "nfd-crds" / "nfd-api-crds.yaml").read_text()
    return tuple(documents(text))
