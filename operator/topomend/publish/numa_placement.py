"""Encode the NUMA node of each container, by which NUMA-aware schedulers simulate an eviction.

Format v001 of github.com/k8stopologyawareschedwg/numaplacement: the containers ordered by a hash of their names; for
each NUMA node but the busiest the places of its containers in that order. A reader knows the containers themselves.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from xxhash import xxh64_intdigest

from topomend.model.nodes.zone import Placement

_LETTERS = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"&<>\\')
"""Those that JSON leaves as they are: 64 that end a number, and 25 that go before."""

_LAST, _FIRST = 64, 25


@dataclass(frozen=True, slots=True)
class NUMAPlacement:
    """The attribute of the object, and the one of each zone by NUMA node."""

    metadata: str
    vectors: Mapping[int, str]


def numa_placement(containers: Iterable[Placement], numa_nodes: int) -> NUMAPlacement:
    """The placement of ``containers`` on a machine whose NUMA nodes have ids below ``numa_nodes``."""
    placed = {_hash(container): container.numa_node for container in containers}
    places: dict[int, list[int]] = defaultdict(list)
    for place, hashed in enumerate(sorted(placed)):
        places[placed[hashed]].append(place)
    busiest = min(places, key=lambda node: (-len(places[node]), node), default=0)
    return NUMAPlacement(
        f"npv0v001::ve=leb89::cc={len(placed)}::nn={numa_nodes}::bn={busiest}",
        {node: vector(there) for node, there in sorted(places.items()) if node != busiest},
    )


def vector(places: Iterable[int]) -> str:
    """Ascending numbers, each as its distance from the one before."""
    before, text = 0, ""
    for place in places:
        text += "".join(_letters(place - before))
        before = place
    return text


def _letters(number: int) -> Iterator[str]:
    """``number`` in letters, the most significant first."""
    if number < _LAST:
        yield _LETTERS[number]
        return
    rest, last = divmod(number - _LAST, _LAST)
    digits = [rest % _FIRST]
    while rest := rest // _FIRST:
        digits.append(rest % _FIRST)
    yield from (_LETTERS[_LAST + digit] for digit in reversed(digits))
    yield _LETTERS[last]


def _hash(container: Placement) -> int:
    return xxh64_intdigest(f"{container.namespace}\0{container.pod}\0{container.container}".encode())
