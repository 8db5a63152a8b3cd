"""Where a pod may run for its PersistentVolumeClaims, as the operator and kube-scheduler judge it.

Owns which claims are asked about, and what a user is told of those that cannot be read.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.kube.claim_volumes import NotItsVolume, NoVolume, Terms, read_terms_of
from topomend.kube.errors import APIError, NotFound
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pods.scheduling import MAX_CLAIMS, read_claim_names


def located(cluster: Cluster, asked: RequestedPod) -> tuple[RequestedPod, tuple[str, ...]]:
    """The pod, which has to run where its volumes are, and why it is not known of some; nothing where it is of all.

    A pod of a user who may not list nodes may run on any.
    """
    if not cluster.nodes_read:
        return replace(asked, placement=cluster.as_readable(asked.placement)), ()
    terms, problems, claims = list[Terms](), list[str](), list[str]()
    try:
        claims += islice(_claims(asked), MAX_CLAIMS)
    except MalformedObject as error:
        problems.append(f"on which nodes its volumes are is not known: {error}")
    for claim in claims:
        try:
            found = _terms_of(cluster, asked, claim)
        except NoVolume:
            problems.append(f"on which node claim {claim} gets its volume is for the scheduler to say")
        except (APIError, MalformedObject, NotItsVolume) as error:
            why = "it does not exist" if isinstance(error, NotFound) else error
            problems.append(f"on which nodes claim {claim} has its volume is not known: {why}")
        else:
            terms += [] if found is None else [found]
    return replace(asked, placement=replace(asked.placement, volumes=tuple(terms))), tuple(problems)


def _claims(asked: RequestedPod) -> Iterator[str]:
    """The pod's claims; for a pod that does not exist yet, those that are made for it have no names.

    Raises MalformedObject.
    """
    document = Document(asked.content)
    if _uid(asked):
        return read_claim_names(document["metadata"]["name"].text(""), document["spec"]["volumes"])
    return (
        name
        for volume in document["spec"]["volumes"]
        if (name := volume["persistentVolumeClaim"]["claimName"].text(""))
    )


def _terms_of(cluster: Cluster, asked: RequestedPod, claim: str) -> Terms | None:
    document = Document(asked.content)
    namespace = document["metadata"]["namespace"].text("") or cluster.namespace
    is_refused = document["status"]["phase"].text("") == "Failed"
    replaced = _uid(asked) if is_refused else ""
    return read_terms_of(cluster.client.get, namespace, claim, replaced=replaced)


def _uid(asked: RequestedPod) -> str:
    return Document(asked.content)["metadata"]["uid"].text("")
