"""The licences of an archive: each library and each package has its text in the archive, or a reason why not."""

import re
from pathlib import Path

import pytest
from deploy.image.build import DEFAULT_BASE
from deploy.manifests import ROOT
from deploy.release.archive import NotPacked
from deploy.release.kubectl_plugin import licences
from deploy.release.kubectl_plugin.licences import LIBRARIES
from deploy.release.kubectl_plugin.standalone import Pythons
from deploy.release.packages import plugin_bom
from tests.deploy.image.test_build import saved, tar

PYTHONS = Pythons(Path(), "3.14.1", "20260101")

TEXTS = {each.name: f"Copyright of {each.name}".encode() for each in LIBRARIES if each.package}


def site_with(folder: Path, metadata: str) -> Path:
    site = folder / "python" / "lib" / "python3.14" / "site-packages"
    information = site / "thing-1.0.dist-info"
    (information / "licenses").mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.4\nName: thing\nVersion: 1.0\n{metadata}\n")
    (information / "licenses" / "LICENSE").write_text("Do as you please.\n")
    (information / "RECORD").write_text("thing-1.0.dist-info/METADATA,,\nthing-1.0.dist-info/licenses/LICENSE,,\n")
    return site


def test_every_library_has_its_text_in_the_archive_or_a_reason(tmp_path: Path) -> None:
    licences.write(tmp_path, PYTHONS, site_with(tmp_path, "License-Expression: MIT"), TEXTS)
    listed = (tmp_path / licences.FILE).read_text()
    for library in LIBRARIES:
        (row,) = [line for line in listed.splitlines() if line.startswith(f"| {library.name} | {library.licence} | ")]
        named = re.findall(r"`(licences/[^`]+)`", row)
        assert [(tmp_path / name).read_bytes() for name in named] == ([TEXTS[library.name]] if library.package else [])
        assert bool(library.package) != bool(library.reason)
    assert "| Python 3.14.1 | PSF-2.0 | `python/lib/python3.14/LICENSE.txt` |" in listed


def test_a_package_is_listed_with_its_licence_and_the_place_of_its_text(tmp_path: Path) -> None:
    licences.write(tmp_path, PYTHONS, site_with(tmp_path, "License-Expression: MIT"), TEXTS)
    place = "python/lib/python3.14/site-packages/thing-1.0.dist-info/licenses/LICENSE"
    assert f"| thing 1.0 | MIT | `{place}` |" in (tmp_path / licences.FILE).read_text()
    assert (tmp_path / place).is_file()


def test_a_package_that_declares_no_licence_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(NotPacked, match="thing declares no licence"):
        licences.write(tmp_path, PYTHONS, site_with(tmp_path, ""), TEXTS)


def test_a_text_that_the_packages_lack_is_named(tmp_path: Path) -> None:
    files = {f"licences/{each.package}/copyright": b"text" for each in LIBRARIES if each.package}
    archive = saved(tmp_path / "whole.tar", tar(files))
    assert licences.read(archive) == dict.fromkeys(TEXTS, b"text")
    archive = saved(tmp_path / "lacking.tar", tar(files | {"licences/zlib1g/copyright": b""}))
    with pytest.raises(NotPacked, match="Debian's packages have no licence of zlib:"):
        licences.read(archive)


def test_the_texts_come_from_the_base_of_the_image() -> None:
    recipes = [DEFAULT_BASE.search((ROOT / name).read_text()) for name in ("Dockerfile", licences.DOCKERFILE)]
    image, texts = (recipe and recipe[1] for recipe in recipes)
    assert image == texts is not None


def test_the_bill_of_materials_lists_python_with_its_libraries_and_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = (plugin_bom(tmp_path / name, "3.14.1", 1_600_000_000).read_text() for name in ("a.json", "b.json"))
    assert first == second
    assert '"purl": "pkg:generic/python@3.14.1"' in first
    assert '"timestamp": "2020-09-13T12:26:40+00:00"' in first
    for library in LIBRARIES:
        assert f'"bom-ref": "python/{library.name}"' in first
