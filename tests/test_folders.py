"""The folders of the package are small enough to be read as a list."""

from pathlib import Path

import topomend

MOST = 12
"""Modules of a folder beside its ``__init__``."""


def test_no_folder_has_more_than_a_dozen_modules() -> None:
    root = Path(topomend.__file__).parent
    modules = [path for path in root.rglob("*.py") if path.name != "__init__.py"]
    counts = {folder: sum(path.parent == folder for path in modules) for folder in {path.parent for path in modules}}
    assert len(counts) > 50, "the package was found"
    long = {str(folder.relative_to(root)): count for folder, count in counts.items() if count > MOST}
    assert not long, "group them by what they are about"
