"""pytest fixtures, made by the project that wants them: nothing is registered with pytest that nobody asked for.

In a ``conftest.py``:

>>> from topomend_sandbox import NodeSpec
>>> from topomend_sandbox.fixtures import sandbox_fixture
>>> cluster = sandbox_fixture(NodeSpec.of_shape("worker", "numa:4 cores:4", topology_manager_policy="restricted"))

A test that takes the argument ``cluster`` gets the ``Sandbox``.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from topomend_sandbox import NodeSpec, Sandbox

Scope = Literal["session", "package", "module", "class", "function"]


def sandbox_fixture(*nodes: NodeSpec, scope: Scope = "session", **options: Any) -> Any:
    """A fixture, to be assigned to its name: one cluster of ``nodes`` for all tests of ``scope``.

    ``options`` are further arguments of Sandbox.up, such as ``version``. Each process of pytest-xdist has a cluster of
    its own. Where the cluster does not come up, the tests that use it end in an error that says why; none is skipped.
    """

    @pytest.fixture(scope=scope)
    def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
        with Sandbox.up(nodes, **{"on_progress": _reporter(request.config), **options}) as cluster:
            yield cluster

    return sandbox


def _reporter(config: pytest.Config) -> Callable[[str], None]:
    """Tells progress where pytest tells its own: a first build of Kubernetes takes minutes. A worker tells nothing."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return (lambda _: None) if reporter is None else reporter.write_line
