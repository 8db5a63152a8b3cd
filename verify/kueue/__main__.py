"""Run the same random Jobs through a real Kueue onto real kubelets three ways, and compare them in a table.

The ways are Kueue alone, topomend beside it without the component, and with the check numa-fit. Jobs of one pod are of
a plain namespace, those of several of a steered one. Then measure how long it takes from the end of the pod that stood
in the way to the admission of a workload that waited, and how long a decision takes on 5,000 nodes.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

from deploy.manifests import DEPLOY
from tests.audit_log import audited
from tests.clusters import SYSTEM, Cluster, agents_on, cluster_of
from tests.operator_account import operator_account
from tests.operator_process import Operator
from tests.waiting import eventually
from tools.go_programs import NotBuilt
from verify.kueue import decision, kueue
from verify.targets import Target, judge

from topomend.cli.output.table import echo_table
from topomend.kube.kueue import ADMISSION_CHECKS, WORKLOADS
from topomend.kube.resources import JOBS, NAMESPACES, NODE_TOPOLOGIES, PODS
from topomend.runtime.manifests import documents
from topomend.sandbox import NodeSpec
from topomend.sandbox.failures import SandboxUnavailable
from topomend.wire.group import STEER_LABEL
from topomend.wire.queued_workload import API_VERSION, CONTROLLER

NODES, SHAPE = ("numa-0", "numa-1", "numa-2"), "numa:2 cores:4 memory:8Gi"

PLAIN, STEERED = "plain", "steered"
"""The namespaces: Jobs of one pod are of the first, those of several of the second."""

COMPONENT = tuple(documents((DEPLOY / "components" / "kueue" / "role.yaml").read_text()))

OPERATOR = f"system:serviceaccount:{SYSTEM}:topomend-operator"

QUOTA = 1_000
"""CPUs of the ClusterQueue: more than the nodes have, so that Kueue's own counting holds no Job back."""

WAITERS = 5
"""How often the time from a change to the admission of a workload is measured."""

REQUEUED_SECONDS, DECISION_SECONDS = 2.0, 1.0
"""The targets: from the change to the admission, and the 99th percentile of a decision."""

MANY_NODES = 5_000

QUIET_SECONDS = 180.0
"""After how long without any change of a pod or Job those that have not ended are counted as stuck."""


class Way(StrEnum):
    """What runs beside Kueue."""

    ALONE = "Kueue alone"
    OFF = "topomend, check off"
    CHECKED = "with numa-fit"


@dataclass
class Outcome:
    """What became of the Jobs of one run.

    ``retries`` are how often quota was given back for want of room, ``asked`` the requests of topomend's operator about
    objects of Kueue, by the audit log.
    """

    jobs: int
    ended: int = 0
    refused: set[str] = field(default_factory=set)
    retries: int = 0
    seconds: float = 0.0
    asked: int = 0

    def row(self, way: Way) -> tuple[str, ...]:
        """The cells of the table, as in ``HEADING``."""
        figures = (str(len(self.refused)), str(self.retries), str(self.asked))
        return (way, f"{self.ended} of {self.jobs}", f"{self.seconds:.0f} s", *figures)


HEADING = ("WAY", "JOBS-ENDED", "IN", "PODS-REFUSED", "QUOTA-GIVEN-BACK", "REQUESTS-TO-KUEUE'S-API")


def main() -> int:
    """Run both ways, measure, and compare with the targets."""
    parser = argparse.ArgumentParser(prog="python -m verify.kueue", description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--decisions", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        kueue.manager()
    except (NotBuilt, SandboxUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    outcomes, waits = dict[Way, Outcome](), list[float]()
    with tempfile.TemporaryDirectory(prefix="topomend-kueue-") as folder:
        for way in Way:
            outcomes[way], waits = run(options.jobs, options.seed, Path(folder) / way.name, way)
    echo_table([HEADING, *(outcome.row(way) for way, outcome in outcomes.items())])
    _say(f"from the change to the admission: {', '.join(f'{wait:.2f}' for wait in waits)} s")
    taken = sorted(decision.measure(MANY_NODES, options.decisions, options.seed))
    p99 = taken[int(len(taken) * 0.99)]
    _say(f"a decision on {MANY_NODES} nodes: median {taken[len(taken) // 2]:.3f} s, p99 {p99:.3f} s of CPU time")
    checked, untouched = outcomes[Way.CHECKED], outcomes[Way.OFF]
    return judge(
        [
            Target("refused by kubelets, with numa-fit", len(checked.refused), 0),
            Target("Jobs that did not end, with numa-fit", checked.jobs - checked.ended, 0),
            Target("Kueue alone refuses something: runs without", float(not outcomes[Way.ALONE].refused), 0),
            Target("requests to Kueue's API, check off", untouched.asked, 0),
            Target("Jobs that did not end, check off", untouched.jobs - untouched.ended, 0),
            Target("from the change to the admission, at most", max(waits), REQUEUED_SECONDS, "s"),
            Target(f"decision on {MANY_NODES} nodes, p99", p99, DECISION_SECONDS, "s"),
        ]
    )


def run(jobs: int, seed: int, folder: Path, way: Way, *, waiters: int = WAITERS) -> tuple[Outcome, list[float]]:
    """What became of the Jobs, and where the check is asked the seconds that workloads waited after the change."""
    folder.mkdir()
    with _cluster(folder, way) as cluster:
        outcome = _play(cluster, list(_jobs(jobs, Random(seed))))
        _say(f"{way}: {outcome.ended} of {outcome.jobs} Jobs ended, {len(outcome.refused)} pods were refused")
        return outcome, [_wait(cluster, number) for number in range(waiters)] if way is Way.CHECKED else []


@contextmanager
def _cluster(folder: Path, way: Way) -> Iterator[Cluster]:
    """Kubelets, Kueue and its queue; unless Kueue is alone also agents and an operator."""
    settings = {"topology_manager_policy": "single-numa-node", "cpu_manager_policy": "static"}
    specs = [NodeSpec.of_shape(name, SHAPE, **settings) for name in NODES]
    with cluster_of(specs) as cluster, ExitStack() as stack:
        client = cluster.client
        stack.enter_context(kueue.running(client, cluster.sandbox.kubeconfig, folder))
        for name in (PLAIN, STEERED):
            labels = {STEER_LABEL: "enabled"} if name == STEERED else {}
            metadata = {"name": name, "labels": labels}
            client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        if way is not Way.ALONE:
            _start_topomend(cluster, folder, stack, way)
        if way is Way.CHECKED:
            head = {"apiVersion": API_VERSION, "kind": "AdmissionCheck", "metadata": {"name": "numa-fit"}}
            client.create(ADMISSION_CHECKS, head | {"spec": {"controllerName": CONTROLLER}})
        kueue.create_queue(client, QUOTA, (PLAIN, STEERED), ["numa-fit"] if way is Way.CHECKED else [])
        yield cluster


def _start_topomend(cluster: Cluster, folder: Path, stack: ExitStack, way: Way) -> None:
    """Agents, and an operator that gates pods of the steered namespace, with the component where the check is asked."""
    role, flags = (COMPONENT, ["--kueue"]) if way is Way.CHECKED else ((), [])
    stack.enter_context(agents_on(cluster, folder / "agents.log"))
    account = stack.enter_context(operator_account(cluster, folder, role))
    operator = Operator(account, folder / "operator.log", *flags)
    stack.callback(operator.terminate)
    operator.wait_until_it_watches()
    eventually("the agents to publish", lambda: len(cluster.client.list(NODE_TOPOLOGIES).items) == len(NODES))
    eventually("pods to be gated", lambda: "applied for new pods" in operator.text(), 120.0)


def _jobs(count: int, chance: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """Jobs of random sizes with their namespaces: most of one pod, one in four of two or three."""
    for number in range(count):
        pods = chance.choice((1, 1, 1, 1, 1, 1, 2, 3))
        cpus, seconds = chance.choice((1, 2, 3, 3, 4)), chance.randint(1, 6)
        yield PLAIN if pods == 1 else STEERED, kueue.job(f"job-{number}", cpus, pods, seconds)


def _play(cluster: Cluster, jobs: Sequence[tuple[str, dict[str, Any]]]) -> Outcome:
    """Create all Jobs, and wait until all have ended or nothing happens any more."""
    client, outcome, began = cluster.client, Outcome(len(jobs)), time.monotonic()
    version = client.list(PODS).version
    for namespace, content in jobs:
        made = client.create(JOBS, content, namespace)
        assert made["spec"]["suspend"], "Kueue's webhook has not suspended the Job"
    seen, changed = ("", -1), began
    while outcome.ended < len(jobs) and time.monotonic() < changed + QUIET_SECONDS:
        for event in _events(cluster, version):
            version = event["metadata"]["resourceVersion"]
            if event.get("status", {}).get("reason") == "TopologyAffinityError":
                outcome.refused.add(event["metadata"]["uid"])
        outcome.ended = sum(_has_ended(job) for job in client.list(JOBS).items)
        if (version, outcome.ended) != seen:
            seen, changed = (version, outcome.ended), time.monotonic()
    checks = [
        check for item in client.list(WORKLOADS).items for check in item.get("status", {}).get("admissionChecks", ())
    ]
    outcome.retries = sum(check.get("retryCount", 0) for check in checks)
    outcome.seconds = time.monotonic() - began
    outcome.asked = _requests_to_kueue(cluster)
    return outcome


def _requests_to_kueue(cluster: Cluster) -> int:
    """How often topomend's operator has asked the API server about objects of Kueue."""
    assert cluster.sandbox.audit_log
    return len(
        {
            event["auditID"]  # of a watch the log has its begin and its end
            for event in audited(cluster.sandbox.audit_log)
            if event["user"]["username"] == OPERATOR and event["requestURI"].startswith("/apis/kueue.x-k8s.io/")
        }
    )


def _events(cluster: Cluster, version: str) -> Iterator[dict[str, Any]]:
    """The pods that were created or changed since, within the next second."""
    with cluster.client.watch_lines(PODS, version, 1) as lines:
        for line in lines:
            content: dict[str, Any] = json.loads(line)["object"]
            yield content


def _has_ended(job: dict[str, Any]) -> bool:
    return bool(job.get("status", {}).get("succeeded", 0) == job["spec"]["completions"])


def _wait(cluster: Cluster, number: int) -> float:
    """Seconds from the end of the first pod of a Job that fills every node to the admission of one that waits for it.

    A node has one NUMA node with four CPUs free. The end is when the API server first shows it.
    """
    filler, waiter = f"filler-{number}", f"waiter-{number}"
    cluster.client.create(JOBS, kueue.job(filler, 4, len(NODES), 20), STEERED)
    eventually("the nodes to be full", lambda: _phases(cluster, filler) == ["Running"] * len(NODES), 120.0)
    cluster.client.create(JOBS, kueue.job(waiter, 4, 1, 1), PLAIN)
    eventually("a workload to wait", lambda: _workload(cluster, waiter).get("requeueState", {}).get("requeueAt"), 60.0)
    assert "Succeeded" not in _phases(cluster, filler), "a pod ended before the workload waited"
    ended = eventually(
        "a pod to end", lambda: "Succeeded" in _phases(cluster, filler) and time.monotonic(), 120.0, poll=0
    )
    eventually("the workload to be admitted", lambda: _is_admitted(cluster, waiter), 120.0, poll=0.02)
    waited = time.monotonic() - ended
    eventually("both to end", lambda: all(map(_has_ended, cluster.client.list(JOBS).items)), 180.0)
    return waited


def _phases(cluster: Cluster, job: str) -> list[str]:
    """The phases of the Job's pods."""
    pods = cluster.client.list(PODS, namespace=STEERED, labels=f"batch.kubernetes.io/job-name={job}").items
    return [pod.get("status", {}).get("phase", "") for pod in pods]


def _workload(cluster: Cluster, job: str) -> dict[str, Any]:
    """The status of the Job's Workload; empty before there is one."""
    for item in cluster.client.list(WORKLOADS).items:
        if any(owner["name"] == job for owner in item["metadata"].get("ownerReferences", ())):
            status: dict[str, Any] = item.get("status", {})
            return status
    return {}


def _is_admitted(cluster: Cluster, job: str) -> bool:
    conditions = _workload(cluster, job).get("conditions", ())
    return any(each["type"] == "Admitted" and each["status"] == "True" for each in conditions)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
