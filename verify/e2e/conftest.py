"""The fixtures of all ``make e2e`` tests: the images, built once for the whole run."""

from pathlib import Path

import pytest
from verify.e2e import images

TAG, NEXT_TAG = "v0.1.0", "v0.1.1"
"""The tag that the manifests have, and the one that a cluster is upgraded to."""


@pytest.fixture(scope="session")
def archives() -> dict[str, Path]:
    """The archives to import: idle's, and topomend's by tag."""
    return {
        "idle": images.idle_image(print),
        TAG: images.topomend_image(TAG, print),
        NEXT_TAG: images.topomend_image(NEXT_TAG, print),
    }
