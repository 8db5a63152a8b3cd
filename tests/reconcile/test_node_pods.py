"""What is remembered of the pods on a node, by a clock that the test moves, against pods that the test lists."""

from typing import Any

from topomend.kube.client import Listing, Resource
from topomend.model.pod import Pod
from topomend.reconcile.node_pods import FRESH_SECONDS, NodePods


class Pods:
    """The pods on any node, by their uids."""

    def __init__(self, *uids: str) -> None:
        self.uids, self.asked = list(uids), 0

    def list(self, _: Resource, *, fields: str, cached: bool) -> Listing:
        self.asked += 1
        assert fields.startswith("spec.nodeName=")
        assert cached
        return Listing(tuple(_pod(uid) for uid in self.uids), "1")


def _pod(uid: str) -> dict[str, Any]:
    metadata = {"namespace": "ns", "name": uid, "uid": uid}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}}


def test_a_list_is_believed_for_a_moment_with_what_was_let_go_since() -> None:
    now, there = [1000.0], Pods("a")
    pods = NodePods(there, lambda: now[0])  # type: ignore[arg-type]
    assert pods.on("node") is None
    assert set(pods.ask("node")) == {"a"}
    pods.ungate(Pod("ns", "b", "b"), ["node", "other"])
    there.uids = []
    now[0] += FRESH_SECONDS / 2
    assert set(pods.on("node") or ()) == {"a", "b"}
    assert pods.on("other") is None
    now[0] += FRESH_SECONDS
    assert pods.on("node") is None
    assert there.asked == 1


def test_who_asks_gets_what_is_there_now() -> None:
    there = Pods("a")
    pods = NodePods(there)  # type: ignore[arg-type]
    pods.ask("node")
    there.uids = ["b"]
    assert set(pods.ask("node")) == {"b"}
    assert set(pods.on("node") or ()) == {"b"}
