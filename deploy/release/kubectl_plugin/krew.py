"""The manifest by which krew, kubectl's plugin manager, finds the plugin's archives: https://krew.sigs.k8s.io/docs.

Owns its text. krew's own validator reads it before a release is signed.
"""

from collections.abc import Mapping
from pathlib import Path

import yaml
from deploy.release.kubectl_plugin.plugin import archive_name
from deploy.release.kubectl_plugin.standalone import PLATFORMS
from deploy.release.programs import PROGRAMS
from tools.commands import Unavailable, run

NAME = "numa"

_SHORT = "Show NUMA nodes, explain refused pods"

_DESCRIPTION = """\
Shows which containers have the CPUs, memory and devices of each NUMA node,
explains why a kubelet refused a pod for its topology, and counts how many
replicas of a pod fit now. It asks the objects that topomend publishes.
"""

_CAVEATS = """\
The cluster needs topomend: see the homepage. "kubectl numa check" says
whether it works. Linux machines need glibc 2.28 or newer.
"""


class Invalid(Exception):
    """krew would not take the manifest; the text is its validator's."""


def manifest(version: str, source: str, digests: Mapping[str, str]) -> str:
    """The manifest as YAML. ``source`` is the repository's URL; ``digests`` has the archives' SHA-256 by file name."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": platform.os, "arch": platform.arch}},
            "uri": f"{source}/releases/download/v{version}/{archive_name(version, platform)}",
            "sha256": digests[archive_name(version, platform)],
            "bin": "kubectl-numa",
        }
        for platform in PLATFORMS
    ]
    texts = {"shortDescription": _SHORT, "description": _DESCRIPTION, "caveats": _CAVEATS}
    spec = {"version": f"v{version}", "homepage": source, **texts, "platforms": platforms}
    head = {"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": {"name": NAME}}
    return yaml.safe_dump(head | {"spec": spec}, sort_keys=False, width=100)


def validate(path: Path) -> None:
    """Have krew's validator read the manifest, whose archives nobody can download yet. Raises Invalid."""
    try:
        run(str(PROGRAMS.program("validate-krew-manifest")), f"--manifest={path}", "--skip-install")
    except Unavailable as error:
        raise Invalid(str(error)) from error
