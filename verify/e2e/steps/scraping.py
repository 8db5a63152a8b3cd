"""A real Prometheus beside the control plane, which finds topomend's pods by their annotations and has its alerts."""

import json
import math
import sys
import time
from contextlib import suppress
from datetime import datetime
from typing import Any, Self

import yaml
from deploy.watch.kept import RULES
from tests.waiting import eventually
from verify.e2e.containers.cluster import INSIDE, Cluster
from verify.e2e.containers.programs import Failed
from verify.e2e.steps.installed import AGENT, OPERATOR
from verify.prometheus.programs import program

from topomend.sandbox import control_plane

ADDRESS = "127.0.0.1:9090"

SCRAPE_SECONDS, EVALUATION_SECONDS = 30, 15
"""The interval that our monitors have, and one at which rules are evaluated: Prometheus' own default is a minute."""

_READ = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())"
"""What prints a page in the cluster's network, as promtool does not."""

_POD = "__meta_kubernetes_pod"


class Prometheus:
    """Answers queries. It ends with the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @classmethod
    def beside(cls, cluster: Cluster) -> Self:
        """Start one on the cluster, and wait until it is ready. Raises NotBuilt."""
        content = yaml.safe_dump(_configuration())
        (cluster.folder / "prometheus.yaml").write_text(content)
        running = cluster.start(
            "prometheus",
            str(program("prometheus")),
            f"--config.file={INSIDE / 'prometheus.yaml'}",
            f"--storage.tsdb.path={INSIDE / 'prometheus'}",
            f"--web.listen-address={ADDRESS}",
        )
        prometheus = cls(cluster)

        def answers() -> bool:
            running.check()
            with suppress(Failed):
                return bool(prometheus.asked("vector(1)"))
            return False

        eventually("Prometheus to answer", answers, 60)
        return prometheus

    def asked(self, expression: str) -> list[dict[str, Any]]:
        """The series that the expression has now, each with ``metric`` and ``value``. Raises Failed."""
        url = f"http://{ADDRESS}"
        argv = (str(program("promtool")), "query", "--format=json", "instant", url, expression)
        found: list[dict[str, Any]] = json.loads(self._cluster.run(*argv))
        return found

    def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        return self._alerts('ALERTS{alertstate="firing"}')

    def fired_since(self, moment: float) -> set[str]:
        """The names of the alerts that fired at any evaluation since ``moment``, by the machine's clock."""
        seconds = math.ceil(time.time() - moment)
        return self._alerts(f'max_over_time(ALERTS{{alertstate="firing"}}[{seconds}s])')

    def wait_for_a_round(self) -> None:
        """Wait until every rule has been evaluated with what every pod has exported from now on."""
        began = time.time()
        eventually("every pod to be scraped", lambda: min(self._scraped()) > began, SCRAPE_SECONDS * 3)
        scraped = time.time()
        eventually("every rule to be evaluated", lambda: min(self._evaluated()) > scraped, EVALUATION_SECONDS * 3)

    def _alerts(self, expression: str) -> set[str]:
        return {series["metric"]["alertname"] for series in self.asked(expression)}

    def _scraped(self) -> list[float]:
        """When each pod was scraped last."""
        return [float(series["value"][1]) for series in self.asked("timestamp(up)")]

    def _evaluated(self) -> list[float]:
        """When each group of rules was evaluated last."""
        answer = json.loads(self._cluster.run(sys.executable, "-c", _READ, f"http://{ADDRESS}/api/v1/rules"))
        groups = answer["data"]["groups"]
        return [datetime.fromisoformat(group["lastEvaluation"]).timestamp() for group in groups]


def _configuration() -> dict[str, Any]:
    discovery = {
        "role": "pod",
        "kubeconfig_file": str(control_plane.Files(INSIDE).kubeconfig("admin")),
        "namespaces": {"names": [OPERATOR, AGENT]},
    }
    keep = [(f"{_POD}_annotation_prometheus_io_scrape", "true"), (f"{_POD}_container_port_name", "metrics")]
    relabel: list[dict[str, Any]] = [
        {"action": "keep", "source_labels": [label], "regex": value} for label, value in keep
    ]
    relabel.append({"source_labels": [f"{_POD}_name"], "target_label": "pod"})
    job = {"job_name": "topomend", "kubernetes_sd_configs": [discovery], "relabel_configs": relabel}
    return {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{EVALUATION_SECONDS}s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [job],
    }
