"""The recorded machines of ``tests/discover``, for the tests that draw them."""

from tests.discover.conftest import recorded

__all__ = ["recorded"]
