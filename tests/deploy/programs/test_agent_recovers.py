"""The agent under its own account and its policy: its object is right again by itself, whatever is done to either.

The agent looks after its object every few minutes; here twice a second, and nothing else of it is changed.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from tests.agent.test_agent_on_cluster import FAILED, UNCHANGED, Looks
from tests.deploy.api import API, Answer
from tests.deploy.conftest import token_of
from tests.deploy.programs.test_programs import environment
from tests.waiting import awake, eventually, stretched

from topomend.sandbox import Sandbox
from topomend.wire.published.node_topology import HEARTBEAT

pytestmark = pytest.mark.cluster  # the agent talks to a real API server, beside a real kubelet

NODE, OTHER = "pods", "wide"
RECHECK_SECONDS, INTERVAL = 0.5, 0.25
LOOKS_UNTIL_RECHECKED = 2 + ceil(RECHECK_SECONDS / INTERVAL)
"""Within which an agent reads its object again: it pauses between two looks."""

BOUND_SECONDS = RECHECK_SECONDS + 11.5
"""The re-check, the longest back-off, and the time that the requests take."""

TOPOLOGIES = "/apis/topomend.io/v1alpha1/nodetopologies"
OBJECT = f"{TOPOLOGIES}/{NODE}"
AGENT_PODS = "/api/v1/namespaces/topomend-agent/pods"


class Account:
    """The agent's account as its pod has it: a token of a pod on the node, which is replaced in its file."""

    def __init__(self, admin: API, folder: Path) -> None:
        self._admin, self._folder = admin, folder
        self._pods: list[dict[str, Any]] = []
        self.renew()

    @property
    def environment(self) -> dict[str, str]:
        """For a process that runs as the pod."""
        made = environment(self._admin.as_token(""), self._folder)
        kubeconfig = Path(made["KUBECONFIG"])
        kubeconfig.write_text(kubeconfig.read_text().replace('"token": ""', '"tokenFile": "token"'))
        return made

    def renew(self) -> None:
        """Put the token of a new pod into the file, as a kubelet does before the old one runs out."""
        spec = {
            "serviceAccountName": "topomend-agent",
            "nodeName": NODE,
            "containers": [{"name": "a", "image": "none"}],
        }
        name = f"agent-{NODE}-{len(self._pods)}"
        pod = self._admin.create(
            AGENT_PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        )
        assert pod.allowed, pod.message
        self._pods.append(pod.content)
        partial = self._folder / "token.new"
        partial.touch(mode=0o600)
        partial.write_text(token_of(self._admin, "topomend-agent", "topomend-agent", pod.content))
        partial.replace(self._folder / "token")

    def revoke(self) -> None:
        """Have no token be worth anything any more: their pods are gone."""
        for pod in self._pods:
            self._admin.delete(f"{AGENT_PODS}/{pod['metadata']['name']}")


@pytest.fixture(scope="module")
def account(admin: API, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    made = Account(admin, tmp_path_factory.mktemp("account"))
    yield made
    made.revoke()
    admin.delete(OBJECT)


@contextmanager
def agent_of(cluster: Sandbox, account: Account, log: Path, *options: str) -> Iterator[None]:
    """The agent of the node, while the block lasts."""
    node = cluster.node(NODE)
    command = [*cluster.exec_prefix(NODE), sys.executable, "-m", "tests.agent.agent_with_short_recheck", "agent"]
    flags = {"node-name": NODE, "kubelet-config": node.kubelet_config, "pod-resources": node.pod_resources}
    command += [*(f"--{name}={value}" for name, value in flags.items()), *options]
    paths = os.pathsep.join(str(Path(__file__).parents[3] / folder) for folder in (".", "operator"))
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            env=account.environment | {"PYTHONPATH": paths, "RECHECK_SECONDS": str(RECHECK_SECONDS)},
            stderr=stream,
        )
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(60) == 0, log.read_text()


@pytest.fixture(scope="module")
def looks() -> Looks:
    """Those of the agent."""
    return Looks()


@pytest.fixture(scope="module")
def published(
    admin: API, cluster: Sandbox, account: Account, looks: Looks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """The object as the agent makes it, which runs on. Pods of earlier tests are gone from it."""
    admin.delete(OBJECT)
    log = tmp_path_factory.mktemp("agent") / "log"
    with agent_of(cluster, account, log, looks.flag, f"--interval={INTERVAL}"):
        yield eventually("the first publication", lambda: idle(admin))
    assert "Traceback" not in log.read_text()
    assert token_text(account) not in log.read_text()


def token_text(account: Account) -> str:
    return (account._folder / "token").read_text()


def idle(admin: API) -> dict[str, Any] | None:
    """The object, once it is ready and without pods."""
    content: dict[str, Any] = admin.get(OBJECT).content
    status = content["status"] if isinstance(content.get("status"), dict) else {}
    ready = ("Ready", "True") in [(each["type"], each["status"]) for each in status.get("conditions", ())]
    return content if ready and not status.get("pods") else None


def essence(content: dict[str, Any]) -> dict[str, Any]:
    """What the agent says: owners, and the status without its times."""
    status = {key: value for key, value in content.get("status", {}).items() if key != HEARTBEAT}
    status["conditions"] = sorted(
        (
            {k: v for k, v in condition.items() if k != "lastTransitionTime"}
            for condition in status.get("conditions", [])
        ),
        key=lambda condition: str(condition["type"]),
    )
    return {"owners": content["metadata"].get("ownerReferences"), "status": status, "spec": content.get("spec")}


def is_right(admin: API, published: dict[str, Any]) -> bool:
    answer = admin.get(OBJECT)
    return answer.allowed and essence(answer.content) == essence(published)


def right_again(admin: API, published: dict[str, Any], looks: Looks) -> float:
    """The seconds until the object is as it was published, and stays so without being written again."""
    began = awake()
    while not is_right(admin, published):
        assert awake() < began + stretched(BOUND_SECONDS), admin.get(OBJECT).content
        time.sleep(0.1)
    took = awake() - began
    version = admin.get(OBJECT).content["metadata"]["resourceVersion"]
    looks.wait(LOOKS_UNTIL_RECHECKED, UNCHANGED)
    assert admin.get(OBJECT).content["metadata"]["resourceVersion"] == version
    return took


def owner_of(admin: API, node: str) -> dict[str, Any]:
    uid = admin.get(f"/api/v1/nodes/{node}").content["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}


def merged(status: dict[str, Any]) -> Callable[[API], Answer]:
    return lambda admin: admin.patch(f"{OBJECT}/status", {"status": status})


def applied(status: dict[str, Any]) -> Callable[[API], Answer]:
    """By server-side apply, which makes another manager the owner of the fields."""
    head = {"apiVersion": "topomend.io/v1alpha1", "kind": "NodeTopology", "metadata": {"name": NODE}}
    return lambda admin: admin.apply(f"{OBJECT}/status", head | {"status": status})


INVENTED = {"namespace": "default", "name": "invented", "containers": [{"name": "c", "cpus": "3"}]}
NEWS = {
    "type": "Invented",
    "status": "True",
    "reason": "R",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}

EDITS: dict[str, Callable[[API], Answer]] = {
    "a figure": merged({"summary": {"cpusFree": "99,99"}}),
    "a figure, applied": applied({"summary": {"numaNodes": 99}}),
    "a pod that is not there": merged({"pods": [INVENTED]}),
    "a pod that is not there, applied": applied({"pods": [INVENTED]}),
    "a feature gate within": merged({"kubelet": {"featureGates": {"Invented": True}}}),
    "a feature gate within, applied": applied({"kubelet": {"featureGates": {"Invented": True}}}),
    "a condition, applied": applied({"conditions": [NEWS]}),
    "no conditions": merged({"conditions": []}),
    "no status": lambda admin: admin.patch(f"{OBJECT}/status", [{"op": "replace", "path": "/status", "value": {}}]),
    "no owner": lambda admin: admin.patch(OBJECT, {"metadata": {"ownerReferences": None}}),
    "another owner": lambda admin: admin.patch(OBJECT, {"metadata": {"ownerReferences": [owner_of(admin, OTHER)]}}),
    "one owner more": lambda admin: admin.patch(
        OBJECT, [{"op": "add", "path": "/metadata/ownerReferences/-", "value": owner_of(admin, OTHER)}]
    ),
    "one owner more, applied": lambda admin: admin.apply(
        OBJECT,
        {
            "apiVersion": "topomend.io/v1alpha1",
            "kind": "NodeTopology",
            "metadata": {"name": NODE, "ownerReferences": [owner_of(admin, OTHER)]},
        },
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_was_edited_by_hand_is_right_again_and_then_left_alone(
    admin: API, published: dict[str, Any], looks: Looks, edit: str
) -> None:
    answer = EDITS[edit](admin)
    assert answer.allowed, answer.message
    assert essence(answer.content) != essence(published)
    print(f"{edit}: right again after {right_again(admin, published, looks):.1f} s")


def test_an_object_that_was_deleted_comes_back(admin: API, published: dict[str, Any], looks: Looks) -> None:
    before = admin.get(OBJECT).content["metadata"]["uid"]
    assert admin.delete(OBJECT).allowed
    print(f"right again after {right_again(admin, published, looks):.1f} s")
    assert admin.get(OBJECT).content["metadata"]["uid"] != before


def test_labels_and_a_spec_are_nothing_of_the_agents(admin: API, published: dict[str, Any], looks: Looks) -> None:
    """A label is its writer's and stays, a spec is nothing that the kind has: neither is a reason to write."""
    mark = [{"op": "add", "path": "/metadata/labels", "value": {"team": "a"}}]
    marked = admin.patch(OBJECT, mark).content["metadata"]["resourceVersion"]
    refused = admin.patch(OBJECT, {"spec": {"numaNodes": 3}})
    assert (refused.allowed, "unknown field" in refused.message) == (False, True)
    looks.wait(LOOKS_UNTIL_RECHECKED)
    after = admin.get(OBJECT).content
    assert after["metadata"]["resourceVersion"] == marked
    assert after["metadata"]["labels"] == {"team": "a"}
    assert essence(after) == essence(published)


def test_a_token_that_is_replaced_is_used_at_once_and_one_that_ran_out_is_waited_for(
    admin: API, published: dict[str, Any], account: Account, looks: Looks
) -> None:
    account.renew()
    assert merged({"summary": {"cpusFree": "99"}})(admin).allowed
    right_again(admin, published, looks)
    account.revoke()
    # The server may believe a token that it has seen for 10 s more.
    probe = admin.as_token(token_text(account))
    eventually("the end of the token", lambda: probe.get(OBJECT).code == 401)
    assert merged({"summary": {"cpusFree": "99"}})(admin).allowed
    looks.wait(2, FAILED)
    assert not is_right(admin, published)
    account.renew()
    print(f"right again after {right_again(admin, published, looks):.1f} s")
