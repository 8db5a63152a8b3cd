"""The image's bill of materials (SBOM): one CycloneDX document out of what the tools say of its parts.

cyclonedx-py tells of the Python packages with their licences, debsbom of the base's Debian packages, pip's report which
wheels were installed. This joins them, adds what none of them sees (the base's own Python, the hardware database), and
validates the outcome. The same parts make the same document, byte for byte; SOURCE_DATE_EPOCH is its time.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.utils import canonicalize_name

SCHEMA = SchemaVersion.V1_6


class Incomplete(Exception):
    """The parts do not fit: one that is in the image is not in what the tools say of it, or Pythons differ.

    Or the document is none of its schema.
    """


def image_bom(python: Bom, debian: Bom, wheels: Mapping[str, str], further: Iterable[Component] = ()) -> Bom:
    """The bill of the image.

    ``python``'s own component is topomend, ``debian``'s the operating system. ``wheels`` is the SHA-256 of each Python
    package's wheel by canonical name. Raises Incomplete where a package has none, or a wheel has no package.
    """
    topomend, system = _own_component(python), _own_component(debian)
    _add_hashes(python.components, wheels)
    image = Component(type=ComponentType.CONTAINER, name="topomend", bom_ref="image", version=topomend.version)
    image.licenses = topomend.licenses
    contained = [topomend, system, *further]
    bom = Bom(components=[*contained, *python.components, *debian.components])
    bom.metadata = BomMetaData(component=image, tools=python.metadata.tools)
    bom.metadata.tools.components.update(debian.metadata.tools.components)
    bom.metadata.timestamp = _time()  # type: ignore[assignment]  # the schema takes a document without one
    bom.dependencies = {*python.dependencies, *debian.dependencies}
    bom.register_dependency(image, contained)
    names = "\n".join(sorted(str(component.bom_ref) for component in bom.components))
    bom.serial_number = uuid5(NAMESPACE_URL, f"topomend {bom.metadata.timestamp}\n{names}")
    return bom


def serialized(bom: Bom) -> str:
    """``bom`` as JSON. Raises Incomplete where it does not keep to its schema."""
    # Imported here: it builds 38 parsers, for 1.5 s, in each process that collects the tests.
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    text = make_outputter(bom, OutputFormat.JSON, SCHEMA).output_as_string(indent=1)
    if error := JsonStrictValidator(SCHEMA).validate_str(text):
        raise Incomplete(f"the document is not CycloneDX {SCHEMA.to_version()}: {error}")
    return text + "\n"


def installed_wheels(report: Mapping[str, Any]) -> dict[str, str]:
    """The SHA-256 of each wheel that pip installed, by canonical name of the package, from pip's ``--report``.

    Its format: https://pip.pypa.io/en/stable/reference/installation-report
    """
    return {
        canonicalize_name(install["metadata"]["name"]): install["download_info"]["archive_info"]["hashes"]["sha256"]
        for install in report["install"]
    }


def read_bom(path: Path) -> Bom:
    """The CycloneDX document of that file."""
    # A decorator of the library's makes this method, which types do not show.
    bom: Bom = Bom.from_json(json.loads(path.read_text()))  # type: ignore[attr-defined]
    return bom


def base_python(debian: Bom, version: str) -> Iterator[Component]:
    """Python itself, where the base has it from elsewhere than Debian.

    Raises Incomplete where the base's ``version`` is not this Python's, which has made the image's byte code.
    """
    if version != platform.python_version():
        raise Incomplete(
            f"the base has Python {version}, the base of the building machine's processor {platform.python_version()}: "
            f"name one by the digest of an index that has both processors"
        )
    packaged = f"python{sys.version_info.major}.{sys.version_info.minor}-minimal"
    if not any(component.name == packaged for component in debian.components):
        purl = PackageURL("generic", name="python", version=version)
        yield Component(type=ComponentType.PLATFORM, name="python", bom_ref="python", version=version, purl=purl)


def hardware_names(version: str) -> Component:
    """The database of PCI devices' names, which is made from Debian's package udev of that version."""
    purl = PackageURL("deb", "debian", "udev", version)
    return Component(type=ComponentType.DATA, name="hwdb.bin", bom_ref="hwdb", version=version, purl=purl)


def _own_component(bom: Bom) -> Component:
    if bom.metadata.component is None:
        raise Incomplete("a document does not say what it is about")
    return bom.metadata.component


def _add_hashes(components: Iterable[Component], wheels: Mapping[str, str]) -> None:
    packages = {canonicalize_name(component.name): component for component in components}
    if differ := sorted(packages.keys() ^ wheels.keys()):
        raise Incomplete(f"installed by pip or found in the environment, but not both: {', '.join(differ)}")
    for name, component in packages.items():
        component.hashes = {HashType(alg=HashAlgorithm.SHA_256, content=wheels[name])}


def _time() -> datetime | None:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch else None


def main() -> None:
    """Write the image's document, of what the build wrote down."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    for name in ("python", "debian", "base-python", "wheels", "names", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--version", required=True)
    paths = parser.parse_args()
    python, debian = read_bom(paths.python), read_bom(paths.debian)
    _own_component(python).version = paths.version
    wheels = installed_wheels(json.loads(paths.wheels.read_text()))
    further = [*base_python(debian, paths.base_python.read_text().strip()), hardware_names(paths.names.read_text())]
    paths.output.write_text(serialized(image_bom(python, debian, wheels, further)))


if __name__ == "__main__":
    main()
