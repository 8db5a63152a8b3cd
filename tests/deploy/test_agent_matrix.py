"""Each verb on each resource with each kind of token: an agent writes its own node's object, and nobody another's.

Tried twice on a real API server: with the rights that are installed, and with every right on NodeTopologies given to
the agent's account besides, so that what the admission policy alone holds is seen.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.deploy.api import API, Answer, path_of
from tests.deploy.conftest import NAMESPACE, token_of, wait_until

from topomend.wire import group

pytestmark = pytest.mark.cluster  # needs a real API server: admission policies run nowhere else

TOPOLOGIES = f"/apis/{group.API_VERSION}/nodetopologies"
MINE, FOREIGN = "matrix-mine", "matrix-foreign"
STRANGER = "topomend-agent"
"""An account of the agent's name in another namespace."""


def body(**fields: Any) -> dict[str, Any]:
    metadata = {"name": MINE, "labels": {"tried": "yes"}}
    return {"apiVersion": group.API_VERSION, "kind": group.NODE_TOPOLOGY, "metadata": metadata, **fields}


STATUS = {"summary": {"numaNodes": 7}}
LABELS = [{"op": "add", "path": "/metadata/labels", "value": {"tried": "yes"}}]
NEW_STATUS = [{"op": "add", "path": "/status", "value": STATUS}]


def current(admin: API, **fields: Any) -> dict[str, Any]:
    """The object as it is, with other fields: what a PUT wants."""
    return {**admin.get(f"{TOPOLOGIES}/{MINE}").content, **fields}


Attempt = Callable[[API, API], Answer]
"""Does something to the object MINE as the second account; the first one is the administrator."""

OBJECT, OBJECT_STATUS = f"{TOPOLOGIES}/{MINE}", f"{TOPOLOGIES}/{MINE}/status"

WRITES: dict[str, Attempt] = {
    "create": lambda _, who: who.create(TOPOLOGIES, body()),
    "apply, creating": lambda _, who: who.apply(OBJECT, body()),
    "apply": lambda _, who: who.apply(OBJECT, body()),
    "merge patch": lambda _, who: who.patch(OBJECT, {"metadata": {"labels": {"tried": "yes"}}}),
    "JSON patch": lambda _, who: who.patch(OBJECT, LABELS),
    "update": lambda admin, who: who.replace(OBJECT, current(admin, metadata=_labelled(admin))),
    "apply status": lambda _, who: who.apply(OBJECT_STATUS, body(status=STATUS)),
    "merge patch status": lambda _, who: who.patch(OBJECT_STATUS, {"status": STATUS}),
    "JSON patch status": lambda _, who: who.patch(OBJECT_STATUS, NEW_STATUS),
    "update status": lambda admin, who: who.replace(OBJECT_STATUS, current(admin, status=STATUS)),
    "delete": lambda _, who: who.delete(OBJECT),
}
CREATING = {"create", "apply, creating"}

INSTALLED = set(WRITES) - {"update", "update status", "delete"}
"""The writes that the agent's role grants: it needs no others."""


def _labelled(admin: API) -> dict[str, Any]:
    return {**admin.get(OBJECT).content["metadata"], "labels": {"tried": "yes"}}


@dataclass(frozen=True)
class Tokens:
    """The accounts that are tried."""

    own: API
    other: API
    unbound: API
    stranger: API


@pytest.fixture(scope="module")
def tokens(admin: API, agent_on: Callable[[str], API]) -> Iterator[Tokens]:
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
        admin.delete(f"{TOPOLOGIES}/{name}")


@pytest.fixture
def scene(admin: API, tokens: Tokens) -> Tokens:
    """Both nodes have an empty object, and the policy is at work."""
    for name in (MINE, FOREIGN):
        reset(admin, name)
    wait_until(lambda: tokens.other.apply(OBJECT, body()).code == 403, "the agent's policy")
    return tokens


def reset(admin: API, name: str) -> None:
    admin.delete(f"{TOPOLOGIES}/{name}")
    assert admin.create(TOPOLOGIES, {**body(), "metadata": {"name": name}}).allowed


def attempt(admin: API, who: API, write: str) -> Answer:
    """The write on an object that is as empty as before, or is not there where it is to be made."""
    if write in CREATING:
        admin.delete(OBJECT)
    else:
        reset(admin, MINE)
    return WRITES[write](admin, who)


def was_written(admin: API, write: str) -> bool:
    found = admin.get(OBJECT)
    if write == "delete":
        return found.code == 404
    if "status" in write:
        return bool(found.content.get("status"))
    return found.allowed and found.content["metadata"].get("labels") == {"tried": "yes"}


@pytest.mark.parametrize("write", WRITES)
def test_with_the_rights_installed_an_agent_writes_its_own_object_and_nobody_else_does(
    admin: API, scene: Tokens, write: str
) -> None:
    for token in ("other", "unbound", "stranger"):
        answer = attempt(admin, getattr(scene, token), write)
        assert (token, answer.code, was_written(admin, write)) == (token, 403, False), answer.message
    answer = attempt(admin, scene.own, write)
    allowed = write in INSTALLED
    assert (answer.allowed, was_written(admin, write)) == (allowed, allowed), answer.message


@pytest.fixture
def widened(admin: API, tokens: Tokens) -> Iterator[Tokens]:
    """Every right on NodeTopologies for the agent's account and for the stranger."""
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "matrix-everything"}}
    rules = [{"apiGroups": ["topomend.io"], "resources": ["*"], "verbs": ["*"]}]
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
    wait_until(lambda: tokens.stranger.get(TOPOLOGIES).allowed and tokens.own.get(TOPOLOGIES).allowed, "the role")
    yield tokens
    for item in (binding, role):
        admin.delete(path_of(item))
    wait_until(lambda: tokens.own.get(TOPOLOGIES).code == 403, "the end of the role")


WORDS = {"other": f"the agent of node {FOREIGN} may not write the object of {MINE}", "unbound": "names no node"}


@pytest.mark.usefixtures("scene")
def test_with_every_right_the_policy_alone_keeps_agents_from_each_others_objects(admin: API, widened: Tokens) -> None:
    for write in WRITES:
        for token, words in WORDS.items():
            answer = attempt(admin, getattr(widened, token), write)
            assert (write, token, answer.code, was_written(admin, write)) == (write, token, 403, False), answer.message
            assert words in answer.message
        # Accounts that are no agent's are nothing of this policy's: what they may do is for roles to say.
        for token in ("own", "stranger"):
            answer = attempt(admin, getattr(widened, token), write)
            assert (write, token, answer.allowed, was_written(admin, write)) == (write, token, True, True), (
                answer.message
            )


@pytest.mark.usefixtures("scene")
def test_no_agent_deletes_all_objects_at_once(admin: API, widened: Tokens) -> None:
    for token in ("own", "other", "unbound"):
        answer = getattr(widened, token).delete(TOPOLOGIES)
        left = {name for name in (MINE, FOREIGN) if admin.get(f"{TOPOLOGIES}/{name}").allowed}
        assert (token, answer.code) == (token, 403)
        assert left >= {"own": {FOREIGN}, "other": {MINE}, "unbound": {MINE, FOREIGN}}[token]
        for name in (MINE, FOREIGN):
            reset(admin, name)


@pytest.mark.usefixtures("scene")
@pytest.mark.parametrize("namespace", ["default", NAMESPACE, "topomend-agent", "kube-system"])
def test_an_agent_reads_one_object_at_a_time_and_nothing_else(tokens: Tokens, namespace: str) -> None:
    for name in (MINE, FOREIGN):
        assert tokens.own.get(f"{TOPOLOGIES}/{name}").allowed
        assert tokens.stranger.get(f"{TOPOLOGIES}/{name}").code == 403
    core = f"/api/v1/namespaces/{namespace}"
    for path in (TOPOLOGIES, "/api/v1/nodes", "/api/v1/pods", *(f"{core}/{each}" for each in ("pods", "secrets"))):
        assert (path, tokens.own.get(path).code) == (path, 403)
