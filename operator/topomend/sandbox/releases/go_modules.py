"""The Go modules of any release of Kubernetes, as requirements of a module outside its tree.

``k8s.io/kubernetes`` names its staging modules by local paths; outside, each needs its own release, which the module
proxy has for most patch releases and not for all. Owns the go.mod; the builds are left to ``build`` and to the oracle.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

OLDEST_MINOR = 30
"""The oldest release that topomend supports, Kubernetes 1.30."""

ENVIRONMENT = {"GOFLAGS": "-mod=mod", "GONOSUMDB": "k8s.io/*"}
"""For a release whose sums are not pinned. Go's checksum database lacks some of Kubernetes' staging modules."""

RunGo: TypeAlias = Callable[..., str]
"""Runs ``go`` with the arguments in the module's folder, in ENVIRONMENT, and returns its output."""

_UNUSED = "k8s.io/sample-"
"""Staging modules that only show how to write a server or a controller. The proxy lacks most of their releases."""


class NotARelease(ValueError):
    """The text is no release of Kubernetes that topomend supports."""


def minor_of(version: str) -> int:
    """The minor version of a release such as ``v1.32.5``. Raises NotARelease."""
    matched = re.fullmatch(r"v1\.([0-9]{1,3})\.[0-9]{1,3}", version, re.ASCII)
    if matched is None or int(matched[1]) < OLDEST_MINOR:
        raise NotARelease(f"{version!r:.40} is not a release from v1.{OLDEST_MINOR}.0 on, such as v1.36.3")
    return int(matched[1])


def write_go_mod(folder: Path, module: str, least_go: str, version: str, run: RunGo) -> None:
    """Write the go.mod of ``module`` in ``folder``, with the requirements of the release ``version``.

    Raises what ``run`` raises, also where the proxy lacks one of the modules.
    """
    (folder / "go.mod").write_text(f"module {module}\n\ngo {least_go}\n")
    own = json.loads(run("mod", "download", "-json", f"k8s.io/kubernetes@{version}"))["GoMod"]
    named = json.loads(run("mod", "edit", "-json", own))
    unused = folder / "unused"
    unused.mkdir(exist_ok=True)
    (unused / "go.mod").write_text("module k8s.io/unused\n")
    run("mod", "edit", *_requirements(named, version))


def _requirements(named: dict[str, Any], version: str) -> Iterator[str]:
    """The arguments of ``go mod edit`` for what the go.mod ``named`` of k8s.io/kubernetes requires."""
    staging = {replaced["Old"]["Path"] for replaced in named["Replace"]}
    release = f"v0.{version.removeprefix('v1.')}"
    yield f"-require=k8s.io/kubernetes@{version}"
    for required in named["Require"]:
        if required["Path"] not in staging:
            yield f"-require={required['Path']}@{required['Version']}"
    for path in sorted(staging):
        if path.startswith(_UNUSED):
            yield f"-replace={path}=./unused"
        else:
            yield f"-require={path}@{release}"
            yield f"-replace={path}={path}@{release}"
