"""The image's bill of materials: of what the tools say of this environment, and of a Debian system of two packages."""

import json
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component
from cyclonedx.model.license import DisjunctiveLicense
from deploy.image.sbom import Incomplete, serialized
from deploy.manifests import ROOT
from packaging.utils import canonicalize_name

STATUS = """\
Package: libudev1
Status: install ok installed
Maintainer: Debian systemd Maintainers <systemd@lists.debian.example>
Architecture: amd64
Source: systemd
Version: 257.9-1~deb13u1
Depends: libc6 (>= 2.38)
Description: libudev shared library

Package: libc6
Status: install ok installed
Maintainer: GNU Libc Maintainers <libc@lists.debian.example>
Architecture: amd64
Source: glibc
Version: 2.41-12
Description: GNU C Library: Shared libraries
"""
IN_THE_IMAGE = {
    canonicalize_name(line.partition("==")[0])
    for line in (ROOT / "requirements" / "runtime.lock").read_text().splitlines()
    if "==" in line
}
WHEELS = {name: f"{number:064x}" for number, name in enumerate(sorted({"topomend", *IN_THE_IMAGE}))}


@cache
def python_document() -> str:
    """What cyclonedx-py says of this environment, as the Dockerfile asks it, of the packages that the image has."""
    command = [
        "environment",
        "--pyproject",
        "pyproject.toml",
        "--sv",
        "1.6",
        "--output-reproducible",
        "--no-validate",
        sys.executable,
    ]
    document = json.loads(
        subprocess.run(
            [Path(sys.executable).parent / "cyclonedx-py", *command], cwd=ROOT, capture_output=True, check=True
        ).stdout
    )
    others = {each["bom-ref"] for each in document["components"] if canonicalize_name(each["name"]) not in WHEELS}
    document["components"] = [each for each in document["components"] if each["bom-ref"] not in others]
    document["dependencies"] = [
        {**each, "dependsOn": [name for name in each.get("dependsOn", ()) if name not in others]}
        for each in document["dependencies"]
        if each["ref"] not in others
    ]
    return json.dumps(document)


@cache
def debian_document() -> str:
    """What debsbom says of the system that STATUS describes, as the Dockerfile asks it."""
    with TemporaryDirectory() as folder:
        dpkg = Path(folder) / "root" / "var" / "lib" / "dpkg"
        dpkg.mkdir(parents=True)
        (dpkg / "status").write_text(STATUS)
        command = ["generate", "--sbom-type", "cdx", "--cdx-schema-version", "1.6", "--with-licenses"]
        command += ["--distro-arch", "amd64", "--distro-version", "13", "--root", f"{folder}/root"]
        command += ["--out", f"{folder}/out"]
        subprocess.run([Path(sys.executable).parent / "debsbom", *command], capture_output=True, check=True)
        return (Path(folder) / "out.cdx.json").read_text()


def make(
    folder: Path, wheels: dict[str, str], base_python: str = platform.python_version(), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Make the document as the Dockerfile does; it is then in ``folder``."""
    (folder / "python.version").write_text(f"{base_python}\n")
    (folder / "debian.cdx.json").write_text(debian_document())
    (folder / "python.json").write_text(python_document())
    (folder / "udev.version").write_text("257.9-1~deb13u1")
    report = [
        {"metadata": {"name": name}, "download_info": {"archive_info": {"hashes": {"sha256": digest}}}}
        for name, digest in wheels.items()
    ]
    (folder / "wheels.json").write_text(json.dumps({"install": report}))
    command = [sys.executable, str(ROOT / "deploy" / "image" / "sbom.py"), "--version", "0.1.0"]
    command += ["--python", "python.json", "--debian", "debian.cdx.json", "--wheels", "wheels.json"]
    command += ["--base-python", "python.version", "--names", "udev.version", "--output", "sbom.cdx.json"]
    variables = os.environ | environment
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("sbom")
    own = {name: digest for name, digest in WHEELS.items() if name != "topomend"}
    done = make(folder, own, SOURCE_DATE_EPOCH="1700000000")
    assert done.returncode == 0, done.stderr
    return (folder / "sbom.cdx.json").read_text()


@pytest.fixture(scope="module")
def components(text: str) -> dict[str, dict[str, Any]]:
    return {component["name"]: component for component in json.loads(text)["components"]}


def test_a_document_that_does_not_keep_to_its_schema_is_not_written() -> None:
    licence = DisjunctiveLicense(id="a licence without a name at SPDX")
    with pytest.raises(Incomplete, match=r"the document is not CycloneDX 1\.6: .*a licence without a name at SPDX"):
        serialized(Bom(components=[Component(name="click", licenses=[licence])]))


def test_every_python_package_has_its_version_its_wheels_hash_and_the_licence_it_declares(
    components: dict[str, dict[str, Any]],
) -> None:
    click = components["click"]
    assert click["purl"] == f"pkg:pypi/click@{click['version']}"
    assert click["licenses"][0]["license"]["id"] == "BSD-3-Clause"
    for name, component in components.items():
        if component.get("purl", "").startswith("pkg:pypi/") and name != "topomend":
            assert component["hashes"] == [{"alg": "SHA-256", "content": WHEELS[canonicalize_name(name)]}]


def test_debians_packages_are_there_and_what_the_names_of_devices_are_made_from(
    components: dict[str, dict[str, Any]],
) -> None:
    assert components["libudev1"]["version"] == "257.9-1~deb13u1"
    assert components["libudev1"]["purl"].startswith("pkg:deb/debian/libudev1@257.9-1~deb13u1")
    assert components["hwdb.bin"]["version"] == "257.9-1~deb13u1"
    # The base has a Python of its own, which Debian knows nothing of.
    assert components["python"]["version"] == ".".join(map(str, sys.version_info[:3]))


def test_the_image_depends_on_topomend_and_on_the_system(text: str) -> None:
    document = json.loads(text)
    assert (document["metadata"]["component"]["name"], document["metadata"]["component"]["version"]) == (
        "topomend",
        "0.1.0",
    )
    (of_image,) = [dependency["dependsOn"] for dependency in document["dependencies"] if dependency["ref"] == "image"]
    types = {component["bom-ref"]: component["type"] for component in document["components"]}
    assert sorted(types[reference] for reference in of_image) == ["application", "data", "operating-system", "platform"]


@pytest.mark.night  # make image-twice compares whole images
def test_the_same_parts_make_the_same_document(text: str, tmp_path: Path) -> None:
    own = {name: digest for name, digest in reversed(WHEELS.items()) if name != "topomend"}
    done = make(tmp_path, own, SOURCE_DATE_EPOCH="1700000000", PYTHONHASHSEED="7")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sbom.cdx.json").read_text() == text
    assert json.loads(text)["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"


@pytest.mark.parametrize(("more", "fewer"), [({"stowaway": "0" * 64}, ""), ({}, "click")])
def test_a_package_that_pip_installed_and_the_tool_does_not_see_ends_the_build(
    more: dict[str, str], fewer: str, tmp_path: Path
) -> None:
    wheels = {name: digest for name, digest in WHEELS.items() if name not in ("topomend", fewer)} | more
    done = make(tmp_path, wheels)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(next(iter(more), fewer))


def test_byte_code_of_another_python_than_the_bases_is_refused(tmp_path: Path) -> None:
    own = {name: digest for name, digest in WHEELS.items() if name != "topomend"}
    done = make(tmp_path, own, base_python="3.0.1")
    assert done.returncode != 0
    assert f"the base has Python 3.0.1, the base of the building machine's processor {platform.python_version()}: " in (
        done.stderr
    )
    assert not (tmp_path / "sbom.cdx.json").exists()
