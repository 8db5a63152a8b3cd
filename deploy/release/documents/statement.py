"""The release's provenance: an in-toto statement whose subjects are all files of the release (SLSA, version 1).

It claims no more than is so: whoever runs ``make release`` is the builder, on a machine that nobody attests, so this is
Build level 1. The images have statements of their own (``deploy.image.provenance``).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from deploy.image.provenance import PREDICATE, STATEMENT
from deploy.manifests import ROOT

BUILD_TYPE = "https://topomend.io/release/v1"
"""How a release is made: ``make release`` in a clone of the commit that is named among the inputs."""

BUILDER = f"{BUILD_TYPE}#make-release"

INPUT_FILES = (
    "deploy/release/programs/go.sum",
    "requirements/build.lock",
    "requirements/dev.lock",
    "requirements/plugin.lock",
    "requirements/runtime.lock",
)
"""The files that choose what else goes into a release, each by its hash."""


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def statement(files: Iterable[Path], commit: str, source: str, parameters: Mapping[str, Any]) -> str:
    """The statement as JSON: the same for the same files and inputs."""
    dependencies: list[dict[str, Any]] = [{"name": "source", "uri": source, "digest": {"gitCommit": commit}}]
    dependencies += [{"name": name, "digest": {"sha256": digest(ROOT / name)}} for name in INPUT_FILES]
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": {"source": source, **parameters},
        "resolvedDependencies": dependencies,
    }
    content = {
        "_type": STATEMENT,
        "subject": [{"name": path.name, "digest": {"sha256": digest(path)}} for path in sorted(files)],
        "predicateType": PREDICATE,
        "predicate": {"buildDefinition": definition, "runDetails": {"builder": {"id": BUILDER}}},
    }
    return json.dumps(content, indent=1) + "\n"


def sums(files: Iterable[Path]) -> str:
    """The content of SHA256SUMS, which ``sha256sum --check`` reads."""
    return "".join(f"{digest(path)}  {path.name}\n" for path in sorted(files))
