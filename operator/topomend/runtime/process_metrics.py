"""What Prometheus expects to know of any process: its memory, CPU time, open files, start; of Python, its collector."""

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector


def add_process_metrics(registry: CollectorRegistry) -> None:
    """Add ``process_*`` and ``python_*`` to a registry, under the names that every client library gives them."""
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
