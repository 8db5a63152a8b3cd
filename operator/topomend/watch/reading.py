"""A NodeTopology object as the event that it is: readable, not ready, or malformed."""

from datetime import datetime
from typing import Any

from topomend.replay.fit import prepare
from topomend.watch import events
from topomend.wire.node_topology import HEARTBEAT, heartbeat_age, read_conditions, read_node_topology


def published(content: dict[str, Any], date: datetime, now: float = 0.0) -> events.Published | events.Unreadable:
    """The event that a NodeTopology object is, seen at ``date``, which is ``now`` by the clock of the view.

    Raises MalformedObject.
    """
    if not content.get("status"):  # an agent creates the object first and writes its status after that
        return events.Unreadable(content["metadata"]["name"], "its agent has not published yet")
    not_ready = [each for each in read_conditions(content) if each.type == "Ready" and each.status != "True"]
    problem = f"its agent says {not_ready[0].reason}: {not_ready[0].message}" if not_ready else ""
    state = read_node_topology(content)
    prepare(state)
    age = heartbeat_age(content, date)
    heartbeat = None if age is None else events.Heartbeat(content["status"][HEARTBEAT], age, now)
    return events.Published(state, content["metadata"].get("resourceVersion", ""), problem, heartbeat)
