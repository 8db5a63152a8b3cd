"""One machine for all tests that run on it."""

from collections.abc import Iterator

import pytest
from tests.e2e import prerequisites
from tests.vm.node import Guest, booted, start_node
from tests.vm.parts import Unavailable


@pytest.fixture(scope="session")
def node() -> Iterator[Guest]:
    """The machine with a real kubelet and containerd, and topomend as it is installed; its agent is ready."""
    try:
        with booted() as guest:
            start_node(guest)
            yield guest
    except (Unavailable, prerequisites.Unavailable) as error:
        pytest.exit(f"the virtual machine cannot be made: {error}", returncode=1)
