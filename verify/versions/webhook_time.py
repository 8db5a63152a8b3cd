"""How long the API server waits for the operator's webhook, and what the operator takes of that, by their metrics."""

import subprocess
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from verify.targets import Target
from verify.versions.cluster import OPERATOR

from topomend.sandbox import Sandbox, registry
from topomend.wire.group import GROUP

MOST_P99_SECONDS = 0.02

_WAITS = "apiserver_admission_webhook_admission_duration_seconds"
_ANSWERS = "topomend_operator_webhook_seconds"


@dataclass(frozen=True)
class Histogram:
    """How many durations were at most as long as each bound, in seconds."""

    counts: Mapping[float, float]

    @property
    def total(self) -> float:
        """How many there are in all."""
        return max(self.counts.values(), default=0)

    def since(self, before: "Histogram") -> "Histogram":
        """What has been counted since then."""
        return Histogram({bound: count - before.counts.get(bound, 0) for bound, count in self.counts.items()})

    def quantile(self, part: float) -> float:
        """The duration within which so many ended, as Prometheus' histogram_quantile has it; 0 where there are none.

        Within a bucket durations count as evenly spread. Those beyond the last bound count as long as that.
        """
        lower, fewer = 0.0, 0.0
        for bound, count in sorted(self.counts.items()):
            if count >= part * self.total > 0:
                return (
                    lower
                    if bound == float("inf")
                    else lower + (bound - lower) * (part * self.total - fewer) / (count - fewer)
                )
            lower, fewer = bound, count
        return 0.0

    def text(self) -> str:
        """The median and the 99th percentile."""
        return f"{1000 * self.quantile(0.5):.1f}/{1000 * self.quantile(0.99):.1f} ms"


@dataclass(frozen=True)
class WebhookTime:
    """Both histograms: of the API server, over all webhooks of topomend, and of the operator."""

    waits: Histogram
    answers: Histogram

    @classmethod
    def read(cls, sandbox: Sandbox) -> "WebhookTime":
        """Both as they are now."""
        command = [*sandbox.kubectl_prefix(), "get", "--raw", "/metrics"]
        of_server = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (operator,) = (program for program in registry.status(sandbox.name).programs if program.name == OPERATOR)
        with urllib.request.urlopen(operator.metrics, timeout=10) as answer:  # noqa: S310  the sandbox's own
            of_operator = answer.read().decode()
        return cls(read_histogram(of_server, _WAITS, f".gating.{GROUP}"), read_histogram(of_operator, _ANSWERS))

    def since(self, before: "WebhookTime") -> "WebhookTime":
        """What has been counted since then."""
        return WebhookTime(self.waits.since(before.waits), self.answers.since(before.answers))

    def text(self) -> str:
        """The cell of a table."""
        if not self.waits.total:
            return "not asked"
        return f"{self.waits.text()}, of which operator {self.answers.text()}"

    def target(self, release: str) -> Target:
        """The promise that new pods wait for the webhook only so long."""
        p99 = self.waits.quantile(0.99)
        return Target(f"wait for the webhook on {release}, p99", 1000 * p99, 1000 * MOST_P99_SECONDS, "ms")


def read_histogram(page: str, name: str, webhooks: str = "") -> Histogram:
    """The sum of the page's histograms of this name; of webhooks, those whose names end so."""
    lines = "".join(f"{line}\n" for line in page.splitlines() if line.startswith(f"{name}_bucket"))
    counts: defaultdict[float, float] = defaultdict(float)
    for family in text_string_to_metric_families(lines):
        for sample in family.samples:
            if sample.labels.get("name", "").endswith(webhooks):
                counts[float(sample.labels["le"])] += sample.value
    return Histogram(counts)
