"""What a core/v1 Pod says against its eviction: data that end with it, and the annotations that others know.

Local storage is what Cluster Autoscaler counts as such: directories of the node and emptyDirs that are not memory, but
for those that the pod's annotations call safe. A generic ephemeral volume counts too: its claim ends with the pod.
Sources: cluster-autoscaler utils/drain (HasBlockingLocalStorage, SafeToEvictLocalVolumesKey, PodSafeToEvictKey),
Karpenter pkg/apis/v1 (DoNotDisruptAnnotationKey). Koordinator's descheduler counts every emptyDir; pods that keep none
but shared memory lose there what they lose by any end.
"""

from collections.abc import Iterator
from typing import Any

from topomend.wire.document import Document

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"


def forbidding_annotation(content: Any) -> str:
    """The annotation by which the pod's owner wants it evicted for no better place; empty without one.

    Raises MalformedObject.
    """
    annotations = Document(content)["metadata"]["annotations"]
    forbidding = ((SAFE_TO_EVICT, "false"), (DO_NOT_DISRUPT, "true"))
    return next((name for name, value in forbidding if annotations[name].text("") == value), "")


def local_storage(content: Any) -> str:
    """The name of a volume whose data the pod loses with its node, or with itself; empty without one.

    Raises MalformedObject.
    """
    document = Document(content)
    annotations = document["metadata"]["annotations"]
    if annotations[SAFE_TO_EVICT].text("") == "true":
        return ""
    safe = {name.strip() for name in annotations[SAFE_VOLUMES].text("").split(",")}
    return next((name for name in _local_volumes(document["spec"]["volumes"]) if name not in safe), "")


def _local_volumes(volumes: Document) -> Iterator[str]:
    for volume in volumes:
        directory = volume["emptyDir"]
        is_on_disk = not directory.absent and directory["medium"].text("") != "Memory"
        if is_on_disk or not volume["hostPath"].absent or not volume["ephemeral"].absent:
            yield volume["name"].text("")
