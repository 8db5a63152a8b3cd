"""Parse the flags that are named after the kubelet's own. Each function raises ValueError that shows a valid form."""

from topomend.model.kubelet import MemoryReservation
from topomend.model.quantity import parse_quantity, value


def read_options(text: str) -> dict[str, str]:
    """Policy options by name, from ``NAME=VALUE,...``. Raises ValueError."""
    options = {}
    for part in filter(None, text.split(",")):
        name, equals, setting = part.partition("=")
        if not equals or not name:
            raise ValueError(f"{part!r} is not NAME=VALUE")
        options[name.strip()] = setting.strip()
    return options


def read_reservations(text: str) -> tuple[MemoryReservation, ...]:
    """Reserved memory in bytes, from ``NUMA:RESOURCE=QUANTITY,...;...``. Raises ValueError."""
    reservations = []
    for part in filter(None, text.split(";")):
        node, colon, limits = part.partition(":")
        if not colon or not node.strip().isdigit():
            raise ValueError(f"{part!r} is not NUMA:RESOURCE=QUANTITY,..., such as 0:memory=512Mi")
        for limit in filter(None, limits.split(",")):
            resource, equals, quantity = limit.partition("=")
            if not equals:
                raise ValueError(f"{limit!r} is not RESOURCE=QUANTITY, such as memory=512Mi")
            reservations.append(MemoryReservation(int(node), resource.strip(), value(parse_quantity(quantity))))
    return tuple(reservations)
