"""One machine for all tests that run on it."""

from collections.abc import Iterator

import pytest
from tools.commands import Unavailable
from verify.vm.node import Guest, booted, start_node


@pytest.fixture(scope="session")
def node() -> Iterator[Guest]:
    """The machine with a real kubelet and containerd, and topomend as it is installed; its agent is ready."""
    try:
        with booted() as guest:
            start_node(guest)
            yield guest
    except Unavailable as error:
        pytest.exit(f"the virtual machine cannot be made: {error}", returncode=1)
