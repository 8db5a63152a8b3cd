"""The manifests as kustomize collects them, read without kustomize, and the one-file installation made of them.

``python -m deploy.manifests`` prints what deploy/install.yaml must hold.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from topomend.runtime.manifests import documents

ROOT = Path(__file__).parents[1]
CRDS = ROOT / "crds"
DEPLOY = ROOT / "deploy"
INSTALL = DEPLOY / "install.yaml"

_HEADER = (
    "# Generated from the manifests beside it: do not edit. To install: kubectl apply --server-side -f install.yaml\n"
)


def files(folder: Path) -> Iterator[Path]:
    """The manifests that the kustomization of ``folder`` names, in its order, those of its bases included."""
    # kustomize takes either name; see crds/Kustomization for why it has the other one.
    named = next(path for path in (folder / "kustomization.yaml", folder / "Kustomization") if path.exists())
    for resource in yaml.safe_load(named.read_text())["resources"]:
        path = (folder / resource).resolve()
        yield from files(path) if path.is_dir() else [path]


def objects(folder: Path = DEPLOY) -> list[dict[str, Any]]:
    """The objects that ``folder`` installs, before any patch of an overlay."""
    return [document for path in files(folder) for document in documents(path.read_text())]


def crd(plural: str) -> dict[str, Any]:
    """The definition of one of our kinds."""
    definition: dict[str, Any]
    (definition,) = documents((CRDS / f"topomend.io_{plural}.yaml").read_text())
    return definition


def crd_schema(plural: str) -> dict[str, Any]:
    """The OpenAPI schema of one of our kinds."""
    schema: dict[str, Any] = crd(plural)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def install_yaml() -> str:
    """The whole installation as one file, comments kept."""
    return _HEADER + "---\n".join(path.read_text() for path in files(DEPLOY))


if __name__ == "__main__":
    sys.stdout.write(install_yaml())
