"""The component that answers Kueue: the flag, and rights on nothing but what an answer needs, on a real API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deploy.manifests import DEPLOY
from tests.deploy.api import API, path_of
from tests.deploy.components.test_components import built
from tests.waiting import eventually
from verify.kueue.kueue import kinds

from topomend.runtime.manifests import documents
from topomend.wire.queued_workload import API_VERSION, CONTROLLER

pytestmark = pytest.mark.cluster  # a real API server decides

GROUP = f"/apis/{API_VERSION}"
CHECK, WORKLOAD = f"{GROUP}/admissionchecks/numa-fit", f"{GROUP}/namespaces/default/workloads/train"
READ = ("admissionchecks", "resourceflavors", "workloads")


@pytest.fixture(scope="module")
def in_force(admin: API, operator: API) -> Iterator[None]:
    """Kueue's kinds that are read, an object of each that is written, and the component's role."""
    definitions = [kind for kind in kinds() if kind["spec"]["names"]["plural"] in READ]
    role = documents((DEPLOY / "components" / "kueue" / "role.yaml").read_text())
    for item in (*definitions, *role):
        assert admin.apply(path_of(item), item).allowed
    check = {"apiVersion": API_VERSION, "kind": "AdmissionCheck", "spec": {"controllerName": CONTROLLER}}

    def is_made() -> bool:
        made = admin.apply(CHECK, {**check, "metadata": {"name": "numa-fit"}}), admin.apply(WORKLOAD, workload())
        return all(answer.allowed for answer in made) and admin.get(f"{GROUP}/resourceflavors").allowed

    eventually("the kinds", is_made)
    eventually("the role", lambda: operator.get(WORKLOAD).code == 200)
    yield
    for path in (CHECK, WORKLOAD):
        admin.delete(path)
    for item in reversed((*definitions, *role)):
        admin.delete(path_of(item))
    eventually("the kinds' end", lambda: not any(admin.get(path_of(kind)).allowed for kind in definitions), 60)


def workload(**status: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "i"}]}}
    spec = {"podSets": [{"name": "main", "count": 1, "template": template}]}
    metadata = {"name": "train", "namespace": "default"}
    content = {"apiVersion": API_VERSION, "kind": "Workload", "metadata": metadata}
    return content | ({"status": status} if status else {"spec": spec})


@pytest.mark.usefixtures("in_force")
def test_the_operators_account_answers_a_check(operator: API) -> None:
    check = {"name": "numa-fit", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    assert operator.apply(f"{WORKLOAD}/status", workload(admissionChecks=[check])).allowed
    assert operator.patch(f"{CHECK}/status", {"status": {"conditions": []}}).allowed
    assert operator.get(f"{GROUP}/resourceflavors/any").code == 404


@pytest.mark.usefixtures("in_force")
def test_it_creates_changes_and_deletes_nothing_of_kueue(operator: API) -> None:
    for path in (CHECK, WORKLOAD):
        assert operator.patch(path, {"metadata": {"labels": {"a": "b"}}}).code == 403
        assert operator.delete(path).code == 403
    assert operator.create(WORKLOAD.rpartition("/")[0], workload()).code == 403


def test_the_component_gives_the_flag(tmp_path: Path) -> None:
    deployment = next(item for item in built(tmp_path, "kueue") if item["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--kueue"
