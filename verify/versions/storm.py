"""A ReplicaSet of which no node admits a pod."""

from contextlib import suppress

from verify.background import Background
from verify.versions.cluster import wide_pod

from topomend.kube.client import Client
from topomend.kube.errors import APIError
from topomend.kube.resources import PODS, Resource

REPLICA_SETS = Resource("apps/v1", "replicasets")
MOST_REFUSED = 3
"""The refused pods of a storm of one replica before the brake takes effect."""


class Storm(Background):
    """Creates a ReplicaSet of one replica, and counts its pods."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        labels = {"app": "storm"}
        template = {"metadata": {"labels": labels}, "spec": wide_pod("storm")["spec"]}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        self._client, self._uids = client, set[str]()
        content = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "storm"}, "spec": spec}
        client.create(REPLICA_SETS, content, "default")

    @property
    def refused(self) -> int:
        """How many of its pods were refused; one replica is not."""
        return len(self._uids) - 1

    def run(self) -> None:
        """Count, also while the API server is being replaced."""
        while not self.ended.wait(0.05):
            with suppress(APIError):
                listed = self._client.list(PODS, namespace="default", labels="app=storm").items
                self._uids |= {pod["metadata"]["uid"] for pod in listed}
