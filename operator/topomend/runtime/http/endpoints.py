"""The pages of agent and operator over plain HTTP, for kubelets and Prometheus.

Owns the paths and the form of a probe's page. Leaves what is on a page to its owner, serving to ``server``.
"""

from collections.abc import Callable, Mapping

from topomend.runtime.http.server import PLAIN, Handler, Listener, Page

HEALTH, READINESS, METRICS = "/healthz", "/readyz", "/metrics"

MAX_CONNECTIONS = 32
"""Connections served at once. Kubelet and Prometheus need two."""

CONNECTION_SECONDS = 10.0
"""How long a connection may stay silent."""


def check_page(problem: Callable[[], str]) -> Callable[[], Page]:
    """A probe's page: 200 ``ok``, or 500 and what ``problem`` says is wrong; it is empty where nothing is."""

    def page() -> Page:
        text = problem()
        return Page(500 if text else 200, PLAIN, f"{text or 'ok'}\n".encode())

    return page


class Endpoints(Listener):
    """Serves ``pages``, path to page. Raises as Listener does."""

    def __init__(self, address: str, pages: Mapping[str, Callable[[], Page]]) -> None:
        super().__init__(address, _handler_of(pages), MAX_CONNECTIONS)


def _handler_of(pages: Mapping[str, Callable[[], Page]]) -> type[Handler]:
    unknown = Page(404, PLAIN, f"{', '.join(pages)} are here\n".encode())

    class PageHandler(Handler):
        timeout = CONNECTION_SECONDS

        def do_GET(self) -> None:  # noqa: N802 - the standard library's name
            make_page = pages.get(self.path.partition("?")[0])
            self.send_page(make_page() if make_page else unknown)

    return PageHandler
