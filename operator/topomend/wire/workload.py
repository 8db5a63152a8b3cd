"""Read an apps/v1 ReplicaSet or StatefulSet as the controller of pods that may be evicted."""

from typing import Any

from topomend.model.pods.workload import Workload
from topomend.wire.document import Document
from topomend.wire.pods.pod import read_pod


def read_workload(content: Any) -> Workload:
    """The Workload of its object. Raises MalformedObject.

    Source: pkg/controller/statefulset/stateful_set_utils.go (the revisions in its status differ while it rolls out).
    """
    document = Document(content)
    metadata, spec, status = document["metadata"], document["spec"], document["status"]
    current = status["currentRevision"].text("")
    template = read_pod({"metadata": {"namespace": "", "name": ""}, "spec": spec["template"]["spec"].content})
    return Workload(
        replicas=spec["replicas"].integer(1),
        existing=status["replicas"].integer(0),
        ready=status["readyReplicas"].integer(0),
        ending=not metadata["deletionTimestamp"].absent,
        rolling=current != status["updateRevision"].text(""),
        containers={container.name: container.resources for container in template.containers},
    )
