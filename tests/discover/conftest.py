"""Recorded machines, as folders. They are not part of the project."""

from collections.abc import Callable
from pathlib import Path

import pytest
from verify.oracle.random_cases.recorded import unpacked


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], Path]:
    """The folder of a recorded machine by its archive's name; tests leave it as it is."""
    return unpacked
