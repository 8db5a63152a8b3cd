"""The plugin's archives have what the plugin imports: requirements/plugin.lock against the modules themselves."""

import re
import tomllib
from importlib.metadata import packages_distributions

from deploy.manifests import ROOT
from deploy.release.kubectl_plugin.plugin import ENTRIES, LOCK
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.imports import foreign_imports

from topomend.cli.kubectl_numa import _VERBS as VERBS

PROGRAMS = [f"topomend.cli.{entry.split()[0]}" for entry in ENTRIES.values()]


NAMES_ALONE = "pyudev"
"""What the plugin shows of machines that it reads has no names of PCI devices."""


def test_each_package_that_a_verb_imports_is_in_the_archive() -> None:
    foreign = foreign_imports([*PROGRAMS, *(module for module, _, _ in VERBS.values())]) - {NAMES_ALONE}
    locked = {canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", LOCK.read_text(), re.MULTILINE)}
    providers = packages_distributions()
    # A distribution that the locked ones lack, of all that provide the module.
    lacking = {module for module in foreign if not {canonicalize_name(name) for name in providers[module]} & locked}
    assert {"click", "yaml"} <= foreign
    assert lacking == set()


def test_the_archive_has_what_the_extra_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["plugin"]]
    lines = (ROOT / "requirements" / "plugin.in").read_text().splitlines()
    given = {Requirement(line).name for line in lines if not line.startswith("#")}
    assert given == {Requirement(each).name for each in asked}


def test_packages_are_those_of_development_but_one_for_macs_with_intels_processors() -> None:
    """cryptography has no wheel for these since its version 49."""
    pin = re.compile(r"^(\S+==\S+)(?: ; ([^\\]+))? \\$", re.MULTILINE)
    markers = dict(pin.findall(LOCK.read_text()))
    development = {name for name, _ in pin.findall(LOCK.with_name("dev.lock").read_text())}
    (other,) = markers.keys() - development
    assert other.startswith("cryptography==48.")
    assert markers[other] == "platform_machine == 'x86_64' and sys_platform == 'darwin'"
