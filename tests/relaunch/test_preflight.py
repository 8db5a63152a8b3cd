"""Whether the API server would create a replacement, asked of a real one while the refused pod still exists."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.builders import pod_manifest
from tests.clusters import Cluster

from topomend.model.relaunch_record import Relaunch
from topomend.relaunch.manifest import digest
from topomend.relaunch.preflight import Preflight, creator_of
from topomend.wire.group import CREATOR_ANNOTATION, UNREVIEWABLE

pytestmark = pytest.mark.cluster

ADMINISTRATORS = "system:masters"


@pytest.fixture
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    yield two_nodes
    two_nodes.remove_all()


@pytest.fixture
def preflight(cluster: Cluster) -> Preflight:
    return Preflight(cluster.client)


def record(creator: str = "", *, container: str = "cpu=2 memory=64Mi", namespace: str = "default") -> Relaunch:
    annotations = {CREATOR_ANNOTATION: creator} if creator else {}
    manifest = pod_manifest("train", container, annotations=annotations)
    return Relaunch(
        namespace,
        "train-1",
        "train",
        "uid",
        "numa-a",
        "TopologyAffinityError",
        "",
        1,
        manifest,
        manifest_hash=digest(manifest),
    )


@pytest.mark.parametrize(
    ("creator", "problem"),
    [
        ("", ""),
        ("somebody", "somebody, who created it, may not create pods in default any more"),
        (f"somebody\n{ADMINISTRATORS}", ""),
        (
            UNREVIEWABLE,
            "the rights of the user who created it depend on more than name and groups; recreate it yourself",
        ),
        (f"{ADMINISTRATORS}\nsomebody", "system:masters, who created it, may not create pods in default any more"),
    ],
    ids=["no stamp", "without the right", "by a group", "a scoped token", "a user who is called as a group"],
)
def test_a_replacement_is_created_only_for_who_may_create_it(creator: str, problem: str, preflight: Preflight) -> None:
    assert preflight.creator_problem(record(creator)) == problem


@pytest.mark.parametrize(
    ("stamp", "creator"),
    [
        ("jane\ndevelopers", ("jane", ["developers", "system:authenticated"])),
        ("system:anonymous\nsystem:unauthenticated", ("system:anonymous", ["system:unauthenticated"])),
        (
            "system:serviceaccount:ns:robot",
            (
                "system:serviceaccount:ns:robot",
                ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
            ),
        ),
    ],
)
def test_the_groups_that_a_stamp_leaves_out_are_asked_about_as_well(stamp: str, creator: tuple[str, list[str]]) -> None:
    assert creator_of(stamp) == creator


def test_what_the_api_server_would_create_is_not_created(preflight: Preflight, cluster: Cluster) -> None:
    assert preflight.denied(record()) == ""
    assert (cluster.pods(), cluster.records()) == ((), ())


def test_the_refused_pod_and_an_earlier_record_do_not_deny_their_successors(
    preflight: Preflight, cluster: Cluster
) -> None:
    cluster.create(pod_manifest("train", "cpu=2 memory=64Mi", gates=("example.com/quota",)))
    assert preflight.denied(record()) == ""


@pytest.mark.parametrize(
    ("denied", "words"),
    [
        (record(container="cpu=-1"), "the API server rejects its replacement: 422 Invalid: "),
        (record(namespace="nowhere"), "the API server rejects its replacement: 404 NotFound: "),
        (replace(record(), refused_by=""), "the API server rejects its Relaunch: 422 Invalid: "),
    ],
    ids=["an invalid pod", "no namespace", "an invalid record"],
)
def test_what_the_api_server_would_refuse_is_denied_in_its_words(
    denied: Relaunch, words: str, preflight: Preflight
) -> None:
    answer = preflight.denied(denied)
    assert answer.startswith(words)
    assert "\n" not in answer
