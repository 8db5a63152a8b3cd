"""Recorded machines, unpacked once for every test that reads them. They are not part of the project."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from .lstopo import RECORDED


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a recorded machine by its archive's name; tests leave it as it is."""
    unpacked: dict[str, Path] = {}

    def folder_of(name: str) -> Path:
        if name not in unpacked:
            place = tmp_path_factory.mktemp("recorded")
            with tarfile.open(RECORDED / f"{name}.tar.bz2") as archive:
                archive.extractall(place, filter="data")
            (unpacked[name],) = place.iterdir()
        return unpacked[name]

    return folder_of
