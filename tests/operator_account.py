"""The operator's own account on a sandbox's API server, with the roles and policies that the manifests give it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from deploy.manifests import objects
from tests.clusters import Cluster, wait_until_no_policy_acts
from tests.deploy.api import administrator, path_of
from tests.deploy.conftest import token_of
from tests.deploy.rights import wait_for_rights

_WORKLOADS = ("DaemonSet", "Deployment")


@contextmanager
def operator_account(cluster: Cluster, folder: Path, component: Sequence[dict[str, Any]] = ()) -> Iterator[Path]:
    """A kubeconfig of the account, in ``folder``. ``component`` are objects that are installed beside the base."""
    admin = administrator(cluster.sandbox.kubeconfig)
    for item in (*objects(), *component):
        if item["kind"] not in _WORKLOADS:
            answer = admin.apply(path_of(item), item)
            assert answer.allowed, answer.message
    wait_for_rights(admin, (*objects(), *component))
    configuration = yaml.safe_load(cluster.sandbox.kubeconfig.read_text())
    configuration["users"][0]["user"] = {"token": token_of(admin, "topomend-system", "topomend-operator")}
    path = folder / "operator.kubeconfig"
    path.write_text(yaml.safe_dump(configuration))
    path.chmod(0o600)
    yield path
    for item in (*component, *objects()):
        if item in component or item["apiVersion"].startswith("admissionregistration.k8s.io/"):
            admin.delete(path_of(item))
    wait_until_no_policy_acts(cluster)
