"""Kueue's own manager and kinds, from a pinned Go module, beside a sandbox.

Kueue's webhooks are off: a sandbox has no Services through which the API server could reach them. Its manager serves
them on loopback, and nobody calls. So whoever creates a Job suspends it, as Kueue's webhook would have done. Kinds are
asked for in the version in which they are stored, so that nothing is converted.
"""

import os
import subprocess
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from tests.clusters import CRDS
from tests.waiting import eventually, stretched
from tools.go_programs import GoPrograms, downloaded

from topomend.kube.client import NAMESPACES, SECRETS, Client, Resource
from topomend.kube.kueue import CLUSTER_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from topomend.sandbox.processes.host import free_ports
from topomend.wire.queued_workload import API_VERSION

MODULE = "sigs.k8s.io/kueue"

PROGRAMS = GoPrograms(Path(__file__).parent / "programs", {"kueue": f"{MODULE}/cmd/kueue"}, "kueue")

LOCAL_QUEUES = Resource(API_VERSION, "localqueues")

SYSTEM = "kueue-system"

_SERVICE, _SECRET = "kueue-webhook-service", "kueue-webhook-server-cert"
_WEBHOOKS = ("mutating", "validating")
_CONVERTED = ("localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters")
"""The kinds into whose conversion Kueue writes its certificate, and does not start before."""


@cache
def manager() -> Path:
    """Kueue's manager, built once: four minutes with a cold cache of Go's. Raises NotBuilt, SandboxUnavailable."""
    return PROGRAMS.program("kueue")


@cache
def kinds() -> tuple[dict[str, Any], ...]:
    """The definitions of Kueue's kinds. Raises NotBuilt, SandboxUnavailable."""
    folder = downloaded(PROGRAMS.module, {}, MODULE) / "config" / "components" / "crd" / "bases"
    return tuple(yaml.safe_load(path.read_text()) for path in sorted(folder.glob("kueue.x-k8s.io_*.yaml")))


def install(client: Client) -> None:
    """Kueue's kinds, and the objects into which its manager writes the certificate of its webhooks."""
    for kind in kinds():
        if kind["spec"]["names"]["plural"] in _CONVERTED:
            service = {"namespace": SYSTEM, "name": _SERVICE, "path": "/convert"}
            webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
            kind = {**kind, "spec": {**kind["spec"], "conversion": {"strategy": "Webhook", "webhook": webhook}}}  # noqa: PLW2901
        client.create(CRDS, kind)
    eventually("Kueue's kinds to be served", lambda: [client.list(WORKLOADS)])
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET}}, SYSTEM)
    for webhook_kind in _WEBHOOKS:
        version = "admissionregistration.k8s.io/v1"
        resource = Resource(version, f"{webhook_kind}webhookconfigurations", namespaced=False)
        metadata = {"name": f"kueue-{webhook_kind}-webhook-configuration"}
        words = f"{webhook_kind.capitalize()}WebhookConfiguration"
        client.create(resource, {"apiVersion": version, "kind": words, "metadata": metadata, "webhooks": []})


@contextmanager
def running(client: Client, kubeconfig: Path, folder: Path) -> Iterator[Path]:
    """Kueue's manager beside the cluster of this kubeconfig; it ends with the context. Its log is the value."""
    log, certificates, settings = folder / "kueue.log", folder / "certificates", folder / "kueue.yaml"
    certificates.mkdir()
    health, metrics, webhook = free_ports(3)
    settings.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                "kind": "Configuration",
                "namespace": SYSTEM,
                "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
                "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
                "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(certificates)},
                "leaderElection": {"leaderElect": False},
                "internalCertManagement": {
                    "enable": True,
                    "webhookServiceName": _SERVICE,
                    "webhookSecretName": _SECRET,
                },
                "integrations": {"frameworks": ["batch/job"]},
                "clientConnection": {"qps": 200, "burst": 400},
            }
        )
    )
    command = [str(manager()), f"--config={settings}", "--feature-gates=VisibilityOnDemand=false", "--zap-log-level=2"]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    with log.open("w") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
        try:
            eventually("Kueue to write its certificate", lambda: _mounted(client, certificates), 60.0)
            eventually("Kueue to schedule", lambda: "clusterqueue-reconciler" in log.read_text(), 120.0)
            yield log
            if process.poll() is not None:
                raise AssertionError(f"Kueue ended: {log.read_text()[-2000:]}")
        finally:
            process.terminate()
            process.wait(stretched(30))


def _mounted(client: Client, folder: Path) -> bool:
    """Whether the Secret has a certificate, which is then in the folder, as a kubelet would mount it."""
    data = client.get(SECRETS, _SECRET, SYSTEM).get("data") or {}
    for name, content in data.items():
        (folder / name).write_bytes(b64decode(content))
    return bool(data)


def create_queue(client: Client, cpus: int, namespaces: Sequence[str], checks: Sequence[str] = ()) -> None:
    """One ClusterQueue of this quota, with these admission checks, and a LocalQueue ``queue`` in each namespace."""
    flavor = {"apiVersion": API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}}
    client.create(RESOURCE_FLAVORS, flavor)
    quotas = [{"name": "cpu", "nominalQuota": cpus}, {"name": "memory", "nominalQuota": "1Ti"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "any", "resources": quotas}]}
    spec: dict[str, Any] = {"namespaceSelector": {}, "resourceGroups": [group]}
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": name} for name in checks]}
    queue = {"apiVersion": API_VERSION, "kind": "ClusterQueue", "metadata": {"name": "pool"}, "spec": spec}
    client.create(CLUSTER_QUEUES, queue)
    for namespace in namespaces:
        local = {"metadata": {"name": "queue"}, "spec": {"clusterQueue": "pool"}}
        client.create(LOCAL_QUEUES, {"apiVersion": API_VERSION, "kind": "LocalQueue", **local}, namespace)


def job(name: str, cpus: int, pods: int, seconds: int) -> dict[str, Any]:
    """A Job of the LocalQueue ``queue``: so many pods at a time, each of which runs for so many seconds."""
    container = {
        "name": "main",
        "image": "sandbox/sleep",
        "command": ["sleep", str(seconds)],
        "resources": {"limits": {"cpu": str(cpus), "memory": f"{64 * cpus}Mi"}},
    }
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    spec = {"parallelism": pods, "completions": pods, "suspend": True, "backoffLimit": 1000, "template": {"spec": pod}}
    labels = {"kueue.x-k8s.io/queue-name": "queue"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec}
