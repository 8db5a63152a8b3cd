"""``topomend-sandbox``, the distribution: its documented names, and no more packages than the cluster imports."""

import doctest
import tomllib
from importlib.metadata import packages_distributions

import topomend_sandbox
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.clusters import ROOT
from tests.imports import foreign_imports
from topomend_sandbox import fixtures

from topomend import __version__

PAGE = ROOT / "docs" / "reference" / "sandbox.md"
SANDBOX = tomllib.loads((ROOT / "sandbox" / "pyproject.toml").read_text())
TOPOMEND = tomllib.loads((ROOT / "pyproject.toml").read_text())

OWN = f"topomend=={__version__}"
PROGRAMS = (
    "topomend.sandbox.processes.supervisor",
    "topomend.sandbox.devices.device_plugin",
    "topomend.sandbox.devices.dra_driver",
)
"""The cluster starts them as processes."""

OPTIONAL = {"pyudev"}
"""Without it, the devices of a machine in a folder have no names."""


def test_it_needs_topomend_of_its_own_version_and_what_the_cluster_imports() -> None:
    """And no package of the operator, the agent and the plugin."""
    imported = foreign_imports(["topomend.cli.sandbox.sandbox", *PROGRAMS])
    providers = packages_distributions()
    needed = {str(canonicalize_name(name)) for each in imported - OPTIONAL - {"google"} for name in providers[each]}
    needed |= {"protobuf"} if "google" in imported else set()
    asked = {Requirement(each).name for each in SANDBOX["project"]["dependencies"]} - {"topomend"}
    brought = {Requirement(each).name for each in TOPOMEND["project"]["dependencies"]}
    assert needed == asked | brought
    assert OWN in SANDBOX["project"]["dependencies"]


def test_the_lowest_packages_are_those_of_topomends_extras() -> None:
    """``make packages`` tries those."""
    extras = {each for listed in TOPOMEND["project"]["optional-dependencies"].values() for each in listed}
    assert set(SANDBOX["project"]["dependencies"]) - {OWN} <= extras
    assert SANDBOX["project"]["requires-python"] == TOPOMEND["project"]["requires-python"]


def test_the_names_that_it_promises_are_documented() -> None:
    text = PAGE.read_text()
    assert [name for name in topomend_sandbox.__all__ if not getattr(topomend_sandbox, name).__doc__] == []
    assert [name for name in (*topomend_sandbox.__all__, "sandbox_fixture") if f"`{name}" not in text] == []


def test_the_examples_run() -> None:
    for failed, tried in (
        doctest.testmod(topomend_sandbox),
        doctest.testmod(fixtures),
        doctest.testfile(str(PAGE), module_relative=False),
    ):
        assert failed == 0
        assert tried > 2
