"""Each verb on each resource with each kind of token: an agent writes its own node's object, and no other.

Tried twice on a real API server: with the rights that are installed, and with every right on both kinds given to the
agent's account besides, so that what the admission policy alone holds is seen.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tests.deploy.api import API, Answer, path_of
from tests.deploy.conftest import NAMESPACE, token_of
from tests.waiting import eventually

from topomend.wire import group
from topomend.wire.published import node_resource_topology as zones

pytestmark = pytest.mark.cluster  # needs a real API server: admission policies run nowhere else

MINE, FOREIGN = "matrix-mine", "matrix-foreign"
STRANGER = "topomend-agent"
"""An account of the agent's name in another namespace."""

LABELS = {"tried": "yes"}
STATUS = {"summary": {"numaNodes": 7}}


@dataclass(frozen=True)
class Kind:
    """What agents write; ``content`` is what such an object must have."""

    name: str
    api_version: str
    content: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Of all its objects."""
        return f"/apis/{self.api_version}/{self.name[:-1].lower()}ies"

    @property
    def mine(self) -> str:
        """Of the object MINE."""
        return f"{self.path}/{MINE}"

    def object(self, name: str = MINE, **fields: Any) -> dict[str, Any]:
        return {"apiVersion": self.api_version, "kind": self.name, "metadata": {"name": name}, **self.content, **fields}

    def labelled(self) -> dict[str, Any]:
        return self.object(metadata={"name": MINE, "labels": LABELS})

    def current(self, admin: API, **fields: Any) -> dict[str, Any]:
        """MINE as it is, with other fields: what a PUT wants."""
        return {**admin.get(self.mine).content, **fields}

    def current_labelled(self, admin: API) -> dict[str, Any]:
        return self.current(admin, metadata={**admin.get(self.mine).content["metadata"], "labels": LABELS})

    def reset(self, admin: API, name: str) -> None:
        """Have the object be there, as empty as it can be."""
        admin.delete(f"{self.path}/{name}")
        answer = admin.create(self.path, self.object(name))
        assert answer.allowed, answer.message


TOPOLOGY = Kind(group.NODE_TOPOLOGY, group.API_VERSION, {})
ZONES = Kind("NodeResourceTopology", zones.API_VERSION, {"zones": []})

Attempt = Callable[[Kind, API, API], Answer]
"""Does something to the object MINE of a kind as the second account; the first one is the administrator."""

WRITES: dict[str, Attempt] = {
    "create": lambda kind, _, account: account.create(kind.path, kind.labelled()),
    "apply, creating": lambda kind, _, account: account.apply(kind.mine, kind.labelled()),
    "apply": lambda kind, _, account: account.apply(kind.mine, kind.labelled()),
    "merge patch": lambda kind, _, account: account.patch(kind.mine, {"metadata": {"labels": LABELS}}),
    "JSON patch": lambda kind, _, account: account.patch(
        kind.mine, [{"op": "add", "path": "/metadata/labels", "value": LABELS}]
    ),
    "update": lambda kind, admin, account: account.replace(kind.mine, kind.current_labelled(admin)),
    "delete": lambda kind, _, account: account.delete(kind.mine),
}
STATUS_WRITES: dict[str, Attempt] = {
    "apply status": lambda kind, _, account: account.apply(f"{kind.mine}/status", kind.object(status=STATUS)),
    "merge patch status": lambda kind, _, account: account.patch(f"{kind.mine}/status", {"status": STATUS}),
    "JSON patch status": lambda kind, _, account: account.patch(
        f"{kind.mine}/status", [{"op": "add", "path": "/status", "value": STATUS}]
    ),
    "update status": lambda kind, admin, account: account.replace(
        f"{kind.mine}/status", kind.current(admin, status=STATUS)
    ),
}
EVERY_WRITE = WRITES | STATUS_WRITES
CELLS = [(TOPOLOGY, write) for write in EVERY_WRITE] + [(ZONES, write) for write in WRITES]
CREATING = {"create", "apply, creating"}

NOT_GRANTED = {"update", "update status", "delete"}
"""The writes that the agent's role leaves out: it needs none of them."""


@dataclass(frozen=True)
class Tokens:
    """The accounts that are tried."""

    own: API
    other: API
    unbound: API
    stranger: API


@pytest.fixture(scope="module")
def tokens(admin: API, agent_on: Callable[[str], API], zones_kind: None) -> Iterator[Tokens]:
    del zones_kind  # both kinds are there
    own, other = agent_on(MINE), agent_on(FOREIGN)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": STRANGER}}
    assert admin.apply(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{STRANGER}", account).allowed
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "matrix-stranger"},
        "spec": {"serviceAccountName": STRANGER, "nodeName": MINE, "containers": [{"name": "a", "image": "none"}]},
    }
    made = admin.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    assert made.allowed, made.message
    yield Tokens(
        own,
        other,
        own.as_token(token_of(admin, "topomend-agent", "topomend-agent")),
        own.as_token(token_of(admin, NAMESPACE, STRANGER, made.content)),
    )
    admin.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/matrix-stranger")
    for name in (MINE, FOREIGN):
        admin.delete(f"{TOPOLOGY.path}/{name}")


@pytest.fixture
def scene(admin: API, tokens: Tokens) -> Tokens:
    """Both nodes have an empty object of each kind, and role and policy are at work."""
    for kind in (TOPOLOGY, ZONES):
        for name in (MINE, FOREIGN):
            kind.reset(admin, name)
        eventually("the role", lambda kind=kind: tokens.own.apply(kind.mine, kind.object(), dry_run=True).allowed)  # type: ignore[misc]
        eventually("the policy", lambda kind=kind: tokens.other.apply(kind.mine, kind.object()).code == 403)  # type: ignore[misc]
    return tokens


def attempt(kind: Kind, admin: API, account: API, write: str) -> Answer:
    """The write on an object that is as empty as before, or is not there where it is to be made."""
    if write in CREATING:
        admin.delete(kind.mine)
    else:
        kind.reset(admin, MINE)
    return EVERY_WRITE[write](kind, admin, account)


def was_written(kind: Kind, admin: API, write: str) -> bool:
    answer = admin.get(kind.mine)
    if write == "delete":
        return answer.code == 404
    if write in STATUS_WRITES:
        return bool(answer.content.get("status"))
    return answer.allowed and answer.content["metadata"].get("labels") == LABELS


@pytest.mark.parametrize(("kind", "write"), CELLS, ids=[f"{kind.name}: {write}" for kind, write in CELLS])
def test_with_the_rights_installed_an_agent_writes_its_own_object_and_nobody_else_does(
    admin: API, scene: Tokens, kind: Kind, write: str
) -> None:
    for token in ("other", "unbound", "stranger"):
        answer = attempt(kind, admin, getattr(scene, token), write)
        assert (token, answer.code, was_written(kind, admin, write)) == (token, 403, False), answer.message
    answer = attempt(kind, admin, scene.own, write)
    granted = write not in NOT_GRANTED
    assert (answer.allowed, was_written(kind, admin, write)) == (granted, granted), answer.message


@pytest.fixture
def widened(admin: API, scene: Tokens) -> Iterator[Tokens]:
    """Every right on both kinds for the agent's account and for the stranger."""
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "matrix-everything"}}
    rules = [{"apiGroups": ["topomend.io", "topology.node.k8s.io"], "resources": ["*"], "verbs": ["*"]}]
    accounts = [("topomend-agent", "topomend-agent"), (NAMESPACE, STRANGER)]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "matrix-everything"}
    role: dict[str, Any] = {**head, "kind": "ClusterRole", "rules": rules}
    binding = {
        **head,
        "kind": "ClusterRoleBinding",
        "roleRef": reference,
        "subjects": [{"kind": "ServiceAccount", "namespace": where, "name": name} for where, name in accounts],
    }
    for item in (role, binding):
        assert admin.apply(path_of(item), item).allowed
    both = (scene.stranger, scene.own)
    eventually("the role", lambda: all(account.get(TOPOLOGY.path).allowed for account in both))
    yield scene
    for item in (binding, role):
        admin.delete(path_of(item))
    eventually("the end of the role", lambda: all(account.get(TOPOLOGY.path).code == 403 for account in both))


WORDS = {"other": f"the agent of node {FOREIGN} may not write the object of {MINE}", "unbound": "names no node"}


def test_with_every_right_the_policy_alone_keeps_agents_from_each_others_objects(admin: API, widened: Tokens) -> None:
    for kind, write in CELLS:
        for token, words in WORDS.items():
            answer = attempt(kind, admin, getattr(widened, token), write)
            seen = (kind.name, write, token, answer.code, was_written(kind, admin, write))
            assert seen == (kind.name, write, token, 403, False), answer.message
            assert words in answer.message
        # Accounts that are no agent's are nothing of this policy's: what they may do is for roles to say.
        for token in ("own", "stranger"):
            answer = attempt(kind, admin, getattr(widened, token), write)
            seen = (kind.name, write, token, answer.code < 300, was_written(kind, admin, write))
            assert seen == (kind.name, write, token, True, True), answer.message


@pytest.mark.parametrize("kind", [TOPOLOGY, ZONES], ids=lambda kind: str(kind.name))
def test_no_agent_deletes_all_objects_at_once(admin: API, widened: Tokens, kind: Kind) -> None:
    for token in ("own", "other", "unbound"):
        answer = getattr(widened, token).delete(kind.path)
        left = {name for name in (MINE, FOREIGN) if admin.get(f"{kind.path}/{name}").allowed}
        assert (token, answer.code) == (token, 403)
        assert left >= {"own": {FOREIGN}, "other": {MINE}, "unbound": {MINE, FOREIGN}}[token]
        for name in (MINE, FOREIGN):
            kind.reset(admin, name)


@pytest.mark.parametrize("namespace", ["default", NAMESPACE, "topomend-agent", "kube-system"])
def test_an_agent_reads_one_object_at_a_time_and_nothing_else(scene: Tokens, namespace: str) -> None:
    for kind in (TOPOLOGY, ZONES):
        for name in (MINE, FOREIGN):
            assert scene.own.get(f"{kind.path}/{name}").allowed
            assert scene.stranger.get(f"{kind.path}/{name}").code == 403
        assert scene.own.get(kind.path).code == 403
    core = f"/api/v1/namespaces/{namespace}"
    for path in (
        "/api/v1/nodes",
        "/api/v1/pods",
        *(f"{core}/{resource}" for resource in ("pods", "secrets", "configmaps")),
    ):
        assert (path, scene.own.get(path).code) == (path, 403)
