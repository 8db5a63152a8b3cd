"""The licences of what an archive of the plugin contains: LICENSES.md, and texts that its parts do not bring along.

Packages have their texts in their wheels. The libraries that are linked into a standalone Python have not: their texts
are those of Debian's packages of the same libraries, which the base of the image downloads, as apt has them that day.
"""

import json
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import Distribution, distributions
from pathlib import Path

from deploy.image import build
from deploy.release.archive import NotPacked
from deploy.release.images import Recipe
from deploy.release.kubectl_plugin.standalone import Pythons

FILE = "LICENSES.md"

FOLDER = "licences"
"""Of an archive, with a file for each library that has its text there."""

DOCKERFILE = "deploy/release/kubectl_plugin/licences.Dockerfile"


@dataclass(frozen=True, slots=True)
class Library:
    """A library that is linked into Python: its licence by SPDX's name, and the Debian package that has the text.

    Of a library without a package the ``reason`` says why its text is not needed, or where else it is.
    """

    name: str
    licence: str
    package: str = ""
    reason: str = ""


LIBRARIES = (
    Library("bzip2", "bzip2-1.0.6", "libbz2-1.0"),
    Library("Expat", "MIT", "libexpat1"),
    Library("libedit", "BSD-3-Clause", "libedit2"),
    Library("libffi", "MIT", "libffi8"),
    Library("libuuid", "BSD-3-Clause", "libuuid1"),
    Library("mpdecimal", "BSD-2-Clause", "libmpdec4"),
    Library("ncurses", "X11-distribute-modifications-variant", "libtinfo6"),
    Library("OpenSSL", "Apache-2.0", reason="the text is in `LICENSE`"),
    Library("SQLite", "blessing", reason="none: it is in the public domain"),
    Library("xz", "0BSD", reason="none: 0BSD does not ask for it"),
    Library("zlib", "Zlib", "zlib1g"),
    Library("Zstandard", "BSD-3-Clause", "libzstd1"),
)
"""Those of python-build-standalone, without what serves modules that no archive keeps (standalone.UNUSED)."""

_LICENCE_NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS")

_HEAD = """\
# Licences of what this archive contains

topomend is under the Apache License 2.0: see `LICENSE`.

Python {version} is built by python-build-standalone, release {release}, with the libraries from bzip2 to Zstandard
within, as far as a platform needs them. Their texts are those of Debian's packages. What Python's own sources
incorporate is listed in https://docs.python.org/{minor}/license.html.
"""


def texts(recipe: Recipe) -> dict[str, bytes]:
    """The text of each library that has a package, by the library's name. Raises build.Failed, NotPacked."""
    packages = " ".join(library.package for library in LIBRARIES if library.package)
    flags = (f"--file={DOCKERFILE}", f"--build-arg=PACKAGES={packages}", *recipe.inputs.flags)
    with tempfile.TemporaryDirectory(prefix="topomend-licences-") as place:
        archive = Path(place, "licences.tar")
        build.build(recipe.engine, "topomend-licences", archive, replace(recipe.inputs, flags=flags))
        return read(archive)


def read(archive: Path) -> dict[str, bytes]:
    """The texts in the image of DOCKERFILE, as docker save wrote it. Raises NotPacked."""
    found = dict(_files(archive))
    lacking = [each.name for each in LIBRARIES if each.package and not found.get(_copyright(each.package))]
    if lacking:
        raise NotPacked(f"Debian's packages have no licence of {', '.join(lacking)}: correct {__name__}.LIBRARIES")
    return {each.name: found[_copyright(each.package)] for each in LIBRARIES if each.package}


def write(folder: Path, pythons: Pythons, site: Path, of_libraries: Mapping[str, bytes]) -> None:
    """Write FILE, and the texts ``of_libraries`` in FOLDER, to an archive's ``folder`` with packages in ``site``.

    Raises NotPacked where a package declares no licence.
    """
    (folder / FOLDER).mkdir()
    for name, text in of_libraries.items():
        (folder / _text_of(name)).write_bytes(text)
    head = _HEAD.format(version=pythons.version, minor=pythons.minor, release=pythons.release)
    lines = [*head.splitlines(), "", "| part | licence | text |", "|---|---|---|"]
    python = f"`python/lib/python{pythons.minor}/LICENSE.txt`"
    lines.append(f"| Python {pythons.version} | PSF-2.0 | {python} |")
    lines += [f"| {each.name} | {each.licence} | {each.reason or f'`{_text_of(each.name)}`'} |" for each in LIBRARIES]
    for distribution in sorted(distributions(path=[str(site)]), key=lambda each: each.name.lower()):
        named = ", ".join(f"`{path}`" for path in _texts(distribution, folder)) or "in its metadata"
        lines.append(f"| {distribution.name} {distribution.version} | {_declared(distribution)} | {named} |")
    (folder / FILE).write_text("\n".join(lines) + "\n")


def _text_of(library: str) -> str:
    return f"{FOLDER}/{library}.txt"


def _copyright(package: str) -> str:
    return f"licences/{package}/copyright"


def _files(archive: Path) -> Iterator[tuple[str, bytes]]:
    """The files of an image that docker save wrote, by path."""
    with tarfile.open(archive) as saved:
        (manifest,) = json.load(saved.extractfile("manifest.json"))  # type: ignore[arg-type]  # a file, by its format
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=saved.extractfile(name)) as layer:
                for member in layer:
                    if file := layer.extractfile(member) if member.isfile() else None:
                        yield member.name.removeprefix("./"), file.read()


def _declared(distribution: Distribution) -> str:
    """The licence as a package declares it: by expression, by classifier, or in words. Raises NotPacked."""
    metadata = distribution.metadata
    if "License-Expression" in metadata:
        return metadata["License-Expression"]
    classifiers = [
        each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier", []) if each.startswith("License")
    ]
    named = " and ".join(classifiers) or (metadata["License"].split("\n")[0] if "License" in metadata else "")
    if not named:
        raise NotPacked(f"{distribution.name} declares no licence: it must not be packed")
    return named


def _texts(distribution: Distribution, folder: Path) -> Iterator[Path]:
    for file in sorted(distribution.files or ()):
        if file.name.upper().startswith(_LICENCE_NAMES) and ".dist-info" in file.parts[0]:
            yield Path(str(file.locate())).relative_to(folder)
