"""What all ``make e2e`` tests share: the images, built once for the whole run, and the release of Kubernetes."""

import os
from pathlib import Path

import pytest
from verify.e2e import images

from topomend import __version__
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox.releases.go_modules import minor_of

RELEASE = os.environ.get("TOPOMEND_KUBERNETES") or DEFAULT_VERSION
"""The release of the control plane and of all kubelets of the story."""

MINOR = minor_of(RELEASE)

TAG = f"v{__version__}"
NEXT_TAG = f"{TAG}-next"
"""The tag that the manifests have, and the one that a cluster is upgraded to."""


@pytest.fixture(scope="session")
def archives() -> dict[str, Path]:
    """The archives to import: idle's, and topomend's by tag."""
    return {
        "idle": images.idle_image(print),
        TAG: images.topomend_image(TAG, print),
        NEXT_TAG: images.topomend_image(NEXT_TAG, print),
    }
