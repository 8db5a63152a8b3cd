"""A client whose requests can be made to fail, to hang or to be seen, on their way to a real API server."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from topomend.kube.client import READ_SECONDS, Client
from topomend.kube.pool import Answer

Intercept = Callable[[str, str], None]
"""Gets the method and the target (path and query) of a request; an error that it raises is the request's."""


class Intercepted(Client):
    """The same cluster as ``client``; ``intercept`` may be changed at any time, and holds for copies made after."""

    def __init__(self, client: Client, intercept: Intercept = lambda _, __: None) -> None:
        super().__init__(client.access)
        self.intercept = intercept

    @contextmanager
    def _sent(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        *,
        seconds: float = READ_SECONDS,
        accept: str = "application/json",
    ) -> Iterator[Callable[[], Answer]]:
        self.intercept(method, target)
        with super()._sent(method, target, body, content_type, seconds=seconds, accept=accept) as answer:
            yield answer
