"""The image's provenance: what was built from what, as an in-toto statement with SLSA's predicate, version 1.

Owns the statement's layout: https://slsa.dev/spec/v1.0/provenance. It has no time and no name of a machine, so the same
inputs make the same statement, byte for byte. Nothing signs it: who publishes an image signs both. Like ``build``, this
imports nothing but Python's own library.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://topomend.io/image/v1"
"""How the image is built: ``make image`` of the commit that is named among the inputs."""

INPUT_FILES = ("Dockerfile", "requirements/build.lock", "requirements/runtime.lock", "deploy/image/sbom.py")
"""The files of the working tree that choose what else goes into the image. The commit names all others."""


def statement(  # noqa: PLR0913  a build has that many inputs
    *,
    root: Path,
    tag: str,
    config: str,
    layers: Mapping[str, Sequence[str]],
    commit: str,
    source: str,
    base: str,
    sbom: bytes,
    parameters: Mapping[str, Any],
) -> str:
    """The statement as JSON.

    ``config`` is the image's configuration, whose digest is the image's id. ``layers`` has the digests of the layers of
    the ``base`` and of its own, from the base up. ``commit`` and ``source`` are the revision and its URL, and ``base``
    the reference of the base image. ``parameters`` are those of the build.
    """
    subject = {"name": tag, "digest": {"sha256": hashlib.sha256(config.encode()).hexdigest()}}
    inputs = [
        _resource("source", source, {"gitCommit": commit}),
        *(_resource(path, "", _digest((root / path).read_bytes())) for path in INPUT_FILES),
        *(_resource(f"{base} layer {number}", "", {"sha256": digest}) for number, digest in enumerate(layers["base"])),
    ]
    outputs = [
        _resource("sbom", "", _digest(sbom)),
        *(_resource(f"layer {number}", "", {"sha256": digest}) for number, digest in enumerate(layers["own"])),
    ]
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {**parameters, "base": base},
            "resolvedDependencies": inputs,
        },
        "runDetails": {"builder": {"id": f"{BUILD_TYPE}#make-image"}, "byproducts": outputs},
    }
    content = {"_type": STATEMENT, "subject": [subject], "predicateType": PREDICATE, "predicate": predicate}
    return json.dumps(content, indent=1) + "\n"


def _digest(content: bytes) -> dict[str, str]:
    return {"sha256": hashlib.sha256(content).hexdigest()}


def _resource(name: str, address: str, digest: Mapping[str, str]) -> dict[str, Any]:
    """A resource descriptor: https://github.com/in-toto/attestation/blob/main/spec/v1/resource_descriptor.md."""
    return {"name": name} | ({"uri": address} if address else {}) | {"digest": dict(digest)}
