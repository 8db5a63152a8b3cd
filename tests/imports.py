"""What modules import, and what is imported in turn, without running any of it."""

import sys
from collections.abc import Iterable, Iterator

import grimp


def foreign_imports(roots: Iterable[str]) -> set[str]:
    """The packages, neither topomend's nor Python's, that these modules import at some time, by their first names."""
    return {
        module
        for module in _imported(roots)
        if not module.startswith("topomend") and module not in sys.stdlib_module_names
    }


def _imported(roots: Iterable[str]) -> set[str]:
    graph = grimp.build_graph("topomend", include_external_packages=True)
    found: set[str] = set()
    waiting = {each for root in roots for each in _ancestors(root)}
    while waiting:
        found |= waiting
        direct = {each for module in waiting for each in graph.find_modules_directly_imported_by(module)}
        waiting = {each for module in direct for each in _ancestors(module) if each in graph.modules} - found
    return found


def _ancestors(module: str) -> Iterator[str]:
    """The packages whose ``__init__`` runs before the module."""
    parts = module.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts) + 1))
