"""The plugin's archives have what the plugin imports: requirements/plugin.lock against the modules themselves."""

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions

import grimp
from deploy.release.plugin import ENTRIES, LOCK
from packaging.utils import canonicalize_name

from topomend.cli.kubectl_numa import _VERBS as VERBS

PROGRAMS = [f"topomend.cli.{entry.split()[0]}" for entry in ENTRIES.values()]


def ancestors(module: str) -> Iterator[str]:
    """The packages whose ``__init__`` runs before the module."""
    parts = module.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def imported(roots: Iterable[str]) -> set[str]:
    """All modules that these import, and theirs, by name; of foreign packages the first name alone."""
    graph = grimp.build_graph("topomend", include_external_packages=True)
    found: set[str] = set()
    waiting = {each for root in roots for each in ancestors(root)}
    while waiting:
        found |= waiting
        direct = {each for module in waiting for each in graph.find_modules_directly_imported_by(module)}
        waiting = {each for module in direct for each in ancestors(module) if each in graph.modules} - found
    return found


def test_each_package_that_a_verb_imports_is_in_the_archive() -> None:
    foreign = {
        module
        for module in imported([*PROGRAMS, *(module for module, _, _ in VERBS.values())])
        if not module.startswith("topomend") and module not in sys.stdlib_module_names
    }
    locked = {canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", LOCK.read_text(), re.MULTILINE)}
    providers = packages_distributions()
    # A distribution that the locked ones lack, of all that provide the module.
    lacking = {module for module in foreign if not {canonicalize_name(name) for name in providers[module]} & locked}
    assert {"click", "yaml"} <= foreign
    assert lacking == set()


def test_packages_are_those_of_development_but_one_for_macs_with_intels_processors() -> None:
    """cryptography has no wheel for these since its version 49."""
    pin = re.compile(r"^(\S+==\S+)(?: ; ([^\\]+))? \\$", re.MULTILINE)
    markers = dict(pin.findall(LOCK.read_text()))
    development = {name for name, _ in pin.findall(LOCK.with_name("dev.lock").read_text())}
    (other,) = markers.keys() - development
    assert other.startswith("cryptography==48.")
    assert markers[other] == "platform_machine == 'x86_64' and sys_platform == 'darwin'"
