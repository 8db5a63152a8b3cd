"""The image for each processor, as archives of an OCI layout, with the bill of materials and the provenance of each.

``deploy.image.build`` builds; this asks it once a processor, and names the results. Of a foreign processor's image a
few short steps run in QEMU, which the kernel must know (binfmt_misc).
"""

import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from deploy.image import build
from deploy.release.archive import pack

ARCHITECTURES = ("amd64", "arm64")

BINFMT = Path("/proc/sys/fs/binfmt_misc")
"""Where Linux lists which programs run the files of other processors: Documentation/admin-guide/binfmt-misc.rst."""

_LINUX_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How images are built: by which engine, and from which inputs, whose base has all processors."""

    engine: build.Engine
    inputs: build.Inputs

    def for_architecture(self, architecture: str) -> build.Inputs:
        """The inputs of that processor's image."""
        return replace(self.inputs, flags=(f"--platform=linux/{architecture}", *self.inputs.flags))


def runs(architecture: str, binfmt: Path = BINFMT) -> bool:
    """Whether this machine's kernel runs programs of that processor, itself or by QEMU."""
    if architecture == build.native():
        return True
    return any(_LINUX_NAMES[architecture] in path.name for path in binfmt.glob("*"))


def build_image(recipe: Recipe, tag: str, architecture: str, folder: Path, stem: str) -> list[Path]:
    """Write ``STEM.oci.tar``, ``STEM.cdx.json`` and ``STEM.provenance.json`` to ``folder``. Raises build.Failed."""
    inputs = recipe.for_architecture(architecture)
    own_tag = f"{tag}-{architecture}"
    with tempfile.TemporaryDirectory(prefix="topomend-image-", dir=folder) as place:
        saved, layout = Path(place, "docker.tar"), Path(place, "oci.tar")
        build.build(recipe.engine, own_tag, saved, inputs)
        image = build.read_archive(saved)
        build.save_oci(recipe.engine, own_tag, layout)
        made = [folder / f"{stem}{suffix}" for suffix in (".oci.tar", ".cdx.json", ".provenance.json")]
        # Engines give the layout's files the time of the writing.
        with tarfile.open(layout) as archive:
            archive.extractall(Path(place, "layout"), filter="data")
        pack(Path(place, "layout"), made[0], inputs.commit.epoch)
    made[1].write_bytes(image.sbom)
    made[2].write_text(build.provenance_of(image, own_tag, inputs))
    return made
