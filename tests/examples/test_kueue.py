"""Kueue's own kinds take the example, and its page shows no field that the example does not have."""

import re
from collections.abc import Iterator

import pytest
import yaml
from tests.clusters import ROOT, Cluster, served
from tests.waiting import eventually
from verify.kueue.kueue import LOCAL_QUEUES, kinds

from topomend.kube.kueue import ADMISSION_CHECKS, CLUSTER_QUEUES, RESOURCE_FLAVORS
from topomend.kube.resources import JOBS
from topomend.runtime.manifests import documents
from topomend.wire.queued_workload import is_ours

EXAMPLES, PAGE = ROOT / "examples" / "kueue", ROOT / "docs" / "reference" / "kueue.md"

RESOURCES = {
    "AdmissionCheck": ADMISSION_CHECKS,
    "ResourceFlavor": RESOURCE_FLAVORS,
    "ClusterQueue": CLUSTER_QUEUES,
    "LocalQueue": LOCAL_QUEUES,
    "Job": JOBS,
}
OBJECTS = {item["kind"]: item for path in sorted(EXAMPLES.iterdir()) for item in documents(path.read_text())}


@pytest.fixture(scope="module")
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    """Kueue's kinds, and nothing of Kueue that acts on them."""
    used = [kind for kind in kinds() if kind["spec"]["names"]["kind"] in RESOURCES]
    with served(two_nodes.client, used, CLUSTER_QUEUES):
        eventually("all kinds", lambda: [two_nodes.client.list(resource) for resource in RESOURCES.values()])
        yield two_nodes


@pytest.mark.cluster
@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_every_field_of_the_example_is_one_of_kueues(cluster: Cluster, kind: str) -> None:
    content = OBJECTS[kind]
    cluster.client.check(RESOURCES[kind], content, content["metadata"].get("namespace", ""))


def test_the_examples_check_is_ours_and_its_queue_asks_it() -> None:
    assert is_ours(OBJECTS["AdmissionCheck"])
    names = OBJECTS["ClusterQueue"]["spec"]["admissionChecksStrategy"]["admissionChecks"]
    assert names == [{"name": OBJECTS["AdmissionCheck"]["metadata"]["name"]}]
    assert (
        OBJECTS["Job"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == OBJECTS["LocalQueue"]["metadata"]["name"]
    )


def test_what_the_page_adds_to_a_queue_is_what_the_example_has() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    ((field, shown),) = yaml.safe_load(block).items()
    assert OBJECTS["ClusterQueue"]["spec"][field] == shown
