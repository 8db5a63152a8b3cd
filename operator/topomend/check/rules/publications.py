"""TM2xx of agents: what they do not publish of their nodes, and why what they publish does not count."""

from collections.abc import Iterator

from topomend.cache.changes import SILENT
from topomend.check.check import check
from topomend.check.facts import Facts, Part
from topomend.check.finding import Found, Severity, node
from topomend.model.condition import Condition

LAYOUTS = "docs/run/layouts.md"
HOST, CONFIGURATION, ALLOCATIONS = "HostDiscovered", "KubeletConfigRead", "AllocationsRead"
ZONES_PUBLISHED, FEATURES_PUBLISHED = "NodeResourceTopologyPublished", "NodeFeaturePublished"


def _agents(facts: Facts, verb: str) -> str:
    """What tells more of the agents."""
    namespace = facts.agents[0].subject.namespace if facts.agents else "topomend-agent"
    return f"see its agent: kubectl -n {namespace} {verb} -l app.kubernetes.io/component=agent"


@check(
    "TM201",
    Severity.ERROR,
    "No agent publishes a node",
    Part.NODES,
    Part.TOPOLOGIES,
    why="No refusal there is explained, and no pod is placed there by topomend.",
    cure="See whether the node's agent runs (TM112), and read its log.",
)
def nodes_are_published(facts: Facts) -> Iterator[Found]:
    """A Linux node has no NodeTopology, or an empty one."""
    for name in sorted(facts.snapshot.nodes):
        if name in facts.snapshot.publications or not facts.node_labels[name].linux:
            continue
        if name not in facts.snapshot.unreadable:
            yield Found(node(name), "no agent publishes its state", _agents(facts, "get pods -o wide"))
        elif name not in facts.published:
            yield Found(node(name), facts.snapshot.unreadable[name], _agents(facts, "logs"))


@check(
    "TM202",
    Severity.ERROR,
    "A node's publication cannot be read",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The node counts as unknown.",
    cure="Delete the NodeTopology: its agent writes it anew.",
)
def publications_are_readable(facts: Facts) -> Iterator[Found]:
    """A field of a NodeTopology has a value that it cannot have, or the object is larger than an agent writes."""
    for name, why in sorted(facts.snapshot.unreadable.items()):
        if name in facts.published and name in facts.snapshot.nodes:
            yield Found(node(name), why, f"kubectl delete ntopo {name}")


@check(
    "TM203",
    Severity.ERROR,
    "An agent is silent",
    Part.NODES,
    Part.TOPOLOGIES,
    why="What it published may be old, so the node counts as unknown.",
    cure="See whether the agent runs and reaches the API server, and whether the node's clock is right.",
)
def agents_confirm(facts: Facts) -> Iterator[Found]:
    """The heartbeat of a NodeTopology is older than half an hour."""
    for name, publication in sorted(facts.snapshot.publications.items()):
        if publication.agent_problem == SILENT and name in facts.snapshot.nodes:
            yield Found(node(name), SILENT.partition(";")[0], _agents(facts, "logs"))


@check(
    "TM204",
    Severity.ERROR,
    "A publication contradicts its Node",
    Part.NODES,
    Part.TOPOLOGIES,
    why="An agent that claims more than its node has is not believed, and the node counts as unknown.",
    cure="Restart the kubelet if the machine has changed since its start. Otherwise see who runs as the agent there.",
)
def publications_are_believed(facts: Facts) -> Iterator[Found]:
    """A NodeTopology has more CPUs, NUMA nodes, memory or devices than its Node."""
    for name, publication in sorted(facts.snapshot.publications.items()):
        if publication.distrust and not publication.agent_problem:
            yield Found(node(name), publication.distrust, "restart the kubelet, or see who runs as the agent there")


@check(
    "TM205",
    Severity.ERROR,
    "A machine cannot be read",
    Part.NODES,
    Part.TOPOLOGIES,
    why="Without the machine nothing can be replayed.",
    cure="The message names the file of sysfs. Virtual machines may lack some.",
)
def machines_are_known(facts: Facts) -> Iterator[Found]:
    """The condition `HostDiscovered` of a NodeTopology is not True."""
    yield from _conditions(facts, HOST, "the message names the file of /sys that is missing or wrong")


@check(
    "TM206",
    Severity.ERROR,
    "A kubelet's settings are not known",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The policies decide what the kubelet admits. Without them nothing can be replayed.",
    cure=f"Add the component of `deploy/` that the message names to your kustomization. {LAYOUTS} lists all.",
)
def settings_are_known(facts: Facts) -> Iterator[Found]:
    """The condition `KubeletConfigRead` of a NodeTopology is not True."""
    yield from _conditions(facts, CONFIGURATION, f"the message names what cures this; see {LAYOUTS}")


@check(
    "TM207",
    Severity.ERROR,
    "A node's allocations are not known",
    Part.NODES,
    Part.TOPOLOGIES,
    why="Which CPUs, memory and devices are free is not known.",
    cure="The message names the socket or the file. The component kubelet-root is for another root folder.",
)
def allocations_are_known(facts: Facts) -> Iterator[Found]:
    """The condition `AllocationsRead` of a NodeTopology is not True."""
    yield from _conditions(facts, ALLOCATIONS, f"the message names the socket or file; see {LAYOUTS}")


def _conditions(facts: Facts, kind: str, cure: str) -> Iterator[Found]:
    for name, condition in _published(facts, kind):
        if condition.status != "True":
            yield Found(node(name), f"{condition.reason}: {condition.message}", cure)


def _published(facts: Facts, *kinds: str) -> Iterator[tuple[str, Condition]]:
    """The conditions of these kinds that NodeTopologies have, by the name of their node."""
    for name in sorted(facts.snapshot.nodes):
        published = facts.published.get(name)
        for kind in kinds:
            if published and (condition := published.condition(kind)):
                yield name, condition


@check(
    "TM219",
    Severity.WARNING,
    "Two write a node's NodeResourceTopology",
    Part.NODES,
    Part.TOPOLOGIES,
    why="Each overwrites the other's zones, and the scheduler plugin reads whichever came last.",
    cure="Take the component node-resource-topology out, or the other exporter off. Then delete its object.",
)
def zones_have_one_writer(facts: Facts) -> Iterator[Found]:
    """The agent found that another program writes the NodeResourceTopology of its node."""
    for name, condition in _published(facts, ZONES_PUBLISHED):
        if condition.reason == "OtherWriter":
            yield Found(node(name), condition.message, "take the component node-resource-topology out")


@check(
    "TM222",
    Severity.ERROR,
    "An agent does not vouch for its node",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The node counts as unknown: no pod is placed there by topomend.",
    cure="The message is the agent's own. Its log has more.",
)
def agents_vouch(facts: Facts) -> Iterator[Found]:
    """The condition `Ready` of a NodeTopology is not True, and none of its other conditions says why."""
    for name, publication in sorted(facts.snapshot.publications.items()):
        published = facts.published.get(name)
        said = [published.condition(kind) for kind in (HOST, CONFIGURATION, ALLOCATIONS)] if published else []
        is_explained = any(condition and condition.status != "True" for condition in said)
        problem = publication.agent_problem
        if problem and problem != SILENT and not is_explained and name in facts.snapshot.nodes:
            yield Found(node(name), problem, _agents(facts, "logs"))


@check(
    "TM223",
    Severity.WARNING,
    "An enabled object is not published",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The program that reads it decides without it, or by an old one.",
    cure="Install the kind, mend its webhooks, apply the component's rights, or take the component out.",
)
def components_publish(facts: Facts) -> Iterator[Found]:
    """The API server refuses an agent, or fails at, the NodeResourceTopology or the NodeFeature of its node."""
    for name, condition in _published(facts, ZONES_PUBLISHED, FEATURES_PUBLISHED):
        if condition.reason in _NOT_PUBLISHED:
            yield Found(node(name), condition.message, "do so, or take the component out")


_NOT_PUBLISHED = {"KindNotInstalled", "Forbidden", "Refused", "ServerFailed"}
