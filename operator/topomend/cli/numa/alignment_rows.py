"""The rows, records and pictures of ``kubectl numa aligned``: by container, by owner, by node."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topomend.alignment.container import Alignment, ContainerAlignment, Tally
from topomend.alignment.running import RunningContainer
from topomend.cli.output.formats import Row, object_name
from topomend.cli.output.terminal import BAD, GOOD, QUIET, UNSURE, Style
from topomend.model.bitmask import format_id_list, members
from topomend.model.pods.pod import ContainerKind
from topomend.model.pods.scheduling import Owner

_STYLES: Mapping[Alignment, Style] = {
    Alignment.NUMA_NODE: GOOD,
    Alignment.SOCKET: UNSURE,
    Alignment.SPLIT: BAD,
    Alignment.FLOATING: UNSURE,
    Alignment.UNPINNED: QUIET,
    Alignment.UNKNOWN: UNSURE,
}
"""Of the alignments, and of the numbers of containers that have them."""

Rows = Callable[[Iterable[RunningContainer]], list[Row]]


@dataclass(frozen=True)
class View:
    """One way to show containers: the headings, those of ``wide`` besides, and the rows.

    The first cell of each row is the namespace if the verb shows all namespaces and ``namespaced`` is true.
    """

    heading: tuple[str, ...]
    wide: tuple[str, ...]
    rows: Rows
    namespaced: bool = True


def by_container(containers: Iterable[RunningContainer]) -> list[Row]:
    """A row for each container."""
    return [_container_row(container) for container in containers]


def _container_row(running: RunningContainer) -> Row:
    pod, aligned = running.pod.pod, running.aligned
    known = aligned.alignment is not Alignment.UNKNOWN
    why = running.unknown or running.shared_cpus
    cells = (
        pod.namespace,
        pod.name,
        running.container.name,
        running.pod.node,
        aligned.alignment.value,
        _distance(aligned.distance),
        _numa_nodes(aligned, "cpu") or ("shared" if known else "-"),
        _numa_nodes(aligned, "memory", "hugepages-") or ("any" if known else "-"),
        _devices(aligned) or "-",
        why.reason if why else "-",
    )
    wide = (
        format_id_list(aligned.cpus or aligned.pool) or "-",
        _kind_and_name(running.owner),
        "; ".join(reason.message for reason in running.reasons) or "-",
    )
    key, styles = (pod.namespace, pod.name, running.container.name), {"ALIGNMENT": _STYLES[aligned.alignment]}
    return Row(key, cells, _record(running), f"pod/{pod.name}", wide, styles)


def _numa_nodes(aligned: ContainerAlignment, *prefixes: str) -> str:
    mask = 0
    for allocated in aligned.allocated:
        mask |= allocated.numa_nodes if allocated.resource.startswith(prefixes) and not allocated.devices else 0
    return format_id_list(mask)


def _devices(aligned: ContainerAlignment) -> str:
    """``vendor.com/gpu@0,1``: the resources and the NUMA nodes of their devices."""
    return ",".join(
        f"{allocated.resource}@{format_id_list(allocated.numa_nodes) or 'any'}"
        for allocated in aligned.allocated
        if allocated.devices
    )


def _record(running: RunningContainer) -> dict[str, Any]:
    pod, aligned, unknown = running.pod.pod, running.aligned, running.unknown
    not_pinned = (("cpu", running.shared_cpus), ("memory", running.any_memory))
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "container": running.container.name,
        "init": running.container.kind is ContainerKind.INIT,
        "node": running.pod.node,
        "owner": _owner_record(running.owner),
        "alignment": aligned.alignment.value,
        "numaNodes": list(members(aligned.numa_nodes)),
        "distance": aligned.distance,
        "cpus": format_id_list(aligned.cpus),
        "sharedCpus": format_id_list(aligned.pool),
        "holds": [
            {
                "resource": allocated.resource,
                "numaNodes": list(members(allocated.numa_nodes)),
                "devices": list(allocated.devices),
                "claimed": allocated.claimed,
            }
            for allocated in aligned.allocated
        ],
        "notPinned": [
            {"resource": resource, "reason": why.reason, "message": why.message} for resource, why in not_pinned if why
        ],
        "unknown": {"reason": unknown.reason, "message": unknown.message} if unknown else None,
    }


def by_owner(containers: Iterable[RunningContainer]) -> list[Row]:
    """A row of counts for each workload."""
    return [
        _group_row(
            (namespace, _kind_and_name(owner)),
            {"namespace": namespace, **_owner_record(owner)},
            object_name(owner.api_version, owner.kind, owner.name),
            tally,
        )
        for (namespace, owner), tally in _owners(containers)
    ]


def _owners(containers: Iterable[RunningContainer]) -> list[tuple[tuple[str, Owner], Tally]]:
    groups = defaultdict[tuple[str, Owner], Tally](Tally)
    for running in containers:
        groups[running.pod.pod.namespace, running.owner].add(running.aligned)
    return sorted(groups.items(), key=lambda group: (group[0][0], _kind_and_name(group[0][1])))


def by_node(containers: Iterable[RunningContainer]) -> list[Row]:
    """A row of counts for each node."""
    return [_group_row((name,), {"name": name}, f"node/{name}", tally) for name, tally in _nodes(containers)]


def _nodes(containers: Iterable[RunningContainer]) -> list[tuple[str, Tally]]:
    groups = defaultdict[str, Tally](Tally)
    for running in containers:
        groups[running.pod.node].add(running.aligned)
    return sorted(groups.items())


def _group_row(key: tuple[str, ...], identity: Mapping[str, Any], name: str, tally: Tally) -> Row:
    counts = {alignment.value: tally.counts[alignment] for alignment in Alignment}
    cells = (*key, str(tally.counts.total()), *map(str, counts.values()), _distance(tally.distance))
    record = {
        **identity,
        "containers": tally.counts.total(),
        "byAlignment": counts,
        "distance": tally.distance,
    }
    styles = {each.value.upper(): style for each, style in _STYLES.items() if tally.counts[each]}
    return Row(key, cells, record, name, styles=styles)


def _distance(distance: int | None) -> str:
    return "-" if distance is None else str(distance)


def _owner_record(owner: Owner) -> dict[str, str]:
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name}


def _kind_and_name(owner: Owner) -> str:
    return f"{owner.kind}/{owner.name}"


_COUNTS = ("CONTAINERS", *(alignment.value.upper() for alignment in Alignment), "DISTANCE")

VIEWS = {
    "container": View(
        (
            "NAMESPACE", "POD", "CONTAINER", "NODE", "ALIGNMENT", "DISTANCE", "CPU", "MEMORY", "DEVICES", "REASON",
        ),
        ("CPUS", "OWNER", "WHY"),
        by_container,
    ),
    "owner": View(("NAMESPACE", "OWNER", *_COUNTS), (), by_owner),
    "node": View(("NODE", *_COUNTS), (), by_node, namespaced=False),
}  # fmt: skip


def drawn(by: str, containers: Sequence[RunningContainer], output: str) -> str:
    """The picture of this view, with its rows as a table."""
    # The drawings are loaded where one is asked for.
    from topomend.picture import aligned  # noqa: PLC0415
    from topomend.picture.drawing import page  # noqa: PLC0415
    from topomend.picture.drawing.document import Picture, Table  # noqa: PLC0415

    view = VIEWS[by]
    rows = [(*row.cells, *row.wide) for row in view.rows(containers)]
    table = Table("Running containers, each" if by == "container" else f"By {by}", (*view.heading, *view.wide), rows)
    if by == "container":
        section = aligned.section_of_containers(containers, table)
    elif by == "node":
        section = aligned.section_of_groups(_nodes(containers), table)
    else:
        named = [(f"{namespace} {_kind_and_name(owner)}", tally) for (namespace, owner), tally in _owners(containers)]
        section = aligned.section_of_groups(named, table)
    return page.written(Picture("Alignment of running containers", [section]), output)
