"""The folders of the package, of the programs for developers and of their tests can be read as a list."""

from pathlib import Path

import pytest

import topomend

MOST = 12
"""Modules of a folder beside its ``__init__``."""

PROJECT = Path(__file__).parents[1]
PACKAGE = Path(topomend.__file__).parent

FOLDERS = {"tools": 2, "deploy": 5, "verify": 25, "tests/tools": 2, "tests/deploy": 8, "tests/verify": 25}
"""Those beside the package, and how many folders with modules each has at least, or it was not found."""


@pytest.mark.parametrize(
    ("root", "least"),
    [(PACKAGE, 50), *((PROJECT / name, least) for name, least in FOLDERS.items())],
    ids=["topomend", *FOLDERS],
)
def test_no_folder_has_more_than_a_dozen_modules(root: Path, least: int) -> None:
    modules = [path for path in root.rglob("*.py") if path.name != "__init__.py"]
    counts = {folder: sum(path.parent == folder for path in modules) for folder in {path.parent for path in modules}}
    assert len(counts) >= least, "the folder was found"
    long = {str(folder.relative_to(root)): count for folder, count in counts.items() if count > MOST}
    assert not long, "group them by what they are about"
