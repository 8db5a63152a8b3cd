"""The pods of the last hours or days, each with its beginning and its end, as far as the API server still has them.

Owns when a pod came and ended. Leaves what becomes of it to ``decide/simulation/history``.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from topomend.cache.changes import ENDED
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.numa.cluster.pods.arrivals import Arrivals, LeftOut, arrival_of
from topomend.decide.simulation.history import Stay
from topomend.kube.resources import PODS
from topomend.wire.document import Document, MalformedObject

REFUSED = "its kubelet refused it, so nobody knows how long it would have run; the pod that came after it counts"


def stays_of(cluster: Cluster, since: timedelta) -> Arrivals:
    """The pods of the cluster that came, ran or waited in this time. Raises APIError."""
    now = datetime.now(UTC).timestamp()
    read = cluster.client.read(PODS, lambda content: read_stay(content, now - since.total_seconds())).items
    return _in_time(read)


def stays_in(contents: Iterable[dict[str, Any]], since: timedelta) -> Arrivals:
    """The same of Pod objects that were recorded: the time ends with the last coming or end that they show."""
    pods = list(contents)
    everything = [each for content in pods for each in read_stay(content, 0.0)]
    latest = max((each.ended or each.came for each in everything if isinstance(each, Stay)), default=0.0)
    begin = latest - since.total_seconds()
    return _in_time([each for each in everything if isinstance(each, LeftOut) or _is_in_time(each, begin)])


def read_stay(content: Mapping[str, Any], begin: float) -> Iterator[Stay | LeftOut]:
    """The stay of a Pod object; none that ended before the time ``begin`` in seconds."""
    pod = Document(content)
    metadata = content.get("metadata", {})
    name = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
    try:
        arrival, status = arrival_of(pod), pod["status"]
        came = _seconds(
            status["startTime"]
            if arrival.node and not status["startTime"].absent
            else pod["metadata"]["creationTimestamp"]
        )
        has_ended = status["phase"].text("") in ENDED
        ended = max(_ends(status), default=None) if has_ended else None
    except MalformedObject as error:
        yield LeftOut(*name, str(error))
        return
    if has_ended and ended is None:
        yield LeftOut(*name, REFUSED if status["reason"].text("") else "it has ended, and nothing says when")
        return
    stay = Stay(arrival, came, None if ended is None else max(came, ended))
    if _is_in_time(stay, begin):
        yield stay


def _is_in_time(stay: Stay, begin: float) -> bool:
    return stay.ended is None or stay.ended >= begin


def _in_time(read: Iterable[Stay | LeftOut]) -> Arrivals:
    each = list(read)
    stays = sorted((one for one in each if isinstance(one, Stay)), key=lambda stay: stay.came)
    left_out = [one for one in each if isinstance(one, LeftOut)]
    return Arrivals([stay.arrival for stay in stays], left_out, stays)


def _ends(status: Document) -> Iterator[float]:
    """When the pod's containers ended."""
    for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for container in status[kind]:
            finished = container["state"]["terminated"]["finishedAt"]
            if not finished.absent:
                yield _seconds(finished)


def _seconds(moment: Document) -> float:
    """A time in RFC 3339. Raises MalformedObject."""
    try:
        return datetime.fromisoformat(moment.text()).timestamp()
    except (ValueError, OverflowError) as error:  # a year that the machine's clock does not have
        raise moment.wrong("a time") from error
