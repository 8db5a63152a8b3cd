"""Metrics for Prometheus that any program has, and the page that shows them.

What Prometheus expects to know of a process: its memory, CPU time, open files, start; of Python, its collector. Apart
from ``endpoints``, because the library costs memory that an agent without metrics does not need.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from topomend.runtime.http.server import Page


def add_process_metrics(registry: CollectorRegistry) -> None:
    """Add ``process_*`` and ``python_*`` to a registry, under the names that every client library gives them."""
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)


def metrics_page(registry: CollectorRegistry) -> Callable[[], Page]:
    """A page that shows the registry in Prometheus' text format."""
    return lambda: Page(200, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry))
