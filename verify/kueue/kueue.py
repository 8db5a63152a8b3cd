"""Kueue's own manager, kinds and webhooks, from a pinned Go module, beside a sandbox.

Its webhooks are those of its release, and the API server calls them by their Service. A sandbox has no network of
Services, so this one is an external name of loopback, and has the manager's port. Kueue makes the certificate itself.
"""

import os
import subprocess
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from tests.clusters import CRDS
from tests.waiting import eventually, stretched
from tools.go_programs import GoPrograms, downloaded

from topomend.kube.client import Client
from topomend.kube.kueue import CLUSTER_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from topomend.kube.resources import JOBS, NAMESPACES, SECRETS, Resource
from topomend.runtime.manifests import documents
from topomend.sandbox.processes.host import free_ports
from topomend.wire.queued_workload import API_VERSION

MODULE = "sigs.k8s.io/kueue"

PROGRAMS = GoPrograms(Path(__file__).parent / "programs", {"kueue": f"{MODULE}/cmd/kueue"}, "kueue")

LOCAL_QUEUES = Resource(API_VERSION, "localqueues")

SYSTEM = "kueue-system"

_SERVICES = Resource("v1", "services")
_SERVICE, _SECRET = "kueue-webhook-service", "kueue-webhook-server-cert"
_CONVERTED = ("localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters")
"""The kinds into whose conversion Kueue writes its certificate, and does not start before."""


@cache
def manager() -> Path:
    """Kueue's manager, built once: four minutes with a cold cache of Go's. Raises NotBuilt, SandboxUnavailable."""
    return PROGRAMS.program("kueue")


@cache
def kinds() -> tuple[dict[str, Any], ...]:
    """The definitions of Kueue's kinds. Raises NotBuilt, SandboxUnavailable."""
    folder = _components() / "crd" / "bases"
    return tuple(documents(path.read_text())[0] for path in sorted(folder.glob("kueue.x-k8s.io_*.yaml")))


def _components() -> Path:
    """The manifests of Kueue's release, as kustomize takes them. Raises NotBuilt, SandboxUnavailable."""
    return downloaded(PROGRAMS.module, {}, MODULE) / "config" / "components"


def _webhooks(service: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The configurations of Kueue's webhooks, as its kustomization makes them, but for the place of their Service."""
    folder = _components() / "webhook"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    patches = [yaml.safe_load(each["patch"]) for each in kustomization["patches"]]
    patched = {webhook["name"]: webhook for patch in patches for webhook in patch["webhooks"]}
    for content in documents((folder / "manifests.yaml").read_text()):
        webhooks = [
            webhook
            | patched.get(webhook["name"], {})
            | {"clientConfig": {"service": {**webhook["clientConfig"]["service"], **service}}}
            for webhook in content["webhooks"]
        ]
        yield content | {"metadata": {"name": f"kueue-{content['metadata']['name']}"}, "webhooks": webhooks}


def _install(client: Client, port: int) -> None:
    """Kueue's kinds and webhooks, which are served on this port, and what its manager writes its certificate into."""
    service = {"namespace": SYSTEM, "name": _SERVICE, "port": port}
    for kind in kinds():
        if kind["spec"]["names"]["plural"] in _CONVERTED:
            webhook = {"clientConfig": {"service": {**service, "path": "/convert"}}, "conversionReviewVersions": ["v1"]}
            kind = {**kind, "spec": {**kind["spec"], "conversion": {"strategy": "Webhook", "webhook": webhook}}}  # noqa: PLW2901
        client.create(CRDS, kind)
    eventually("Kueue's kinds to be served", lambda: [client.list(WORKLOADS)])
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET}}, SYSTEM)
    loopback = {"metadata": {"name": _SERVICE}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    client.create(_SERVICES, {"apiVersion": "v1", "kind": "Service", **loopback}, SYSTEM)
    for content in _webhooks(service):
        plural = f"{content['kind'].lower()}s"
        client.create(Resource(content["apiVersion"], plural, namespaced=False), content)


@contextmanager
def running(client: Client, kubeconfig: Path, folder: Path) -> Iterator[Path]:
    """Kueue, installed on the cluster of this kubeconfig; its manager ends with the context. Its log is the value.

    While it starts no pod or Job can be created, since its webhooks are asked about each.
    """
    log, certificates, settings = folder / "kueue.log", folder / "certificates", folder / "kueue.yaml"
    certificates.mkdir()
    health, metrics, webhook = free_ports(3)
    _install(client, webhook)
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
            eventually("Kueue to suspend new Jobs", lambda: _suspends(client), 60.0)
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


def _suspends(client: Client) -> bool:
    made = client.create(JOBS, job("probe", 1, 1, 1), "default", dry_run=True)
    return bool(made["spec"].get("suspend"))


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
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 1000, "template": {"spec": pod}}
    labels = {"kueue.x-k8s.io/queue-name": "queue"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec}
