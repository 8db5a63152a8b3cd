"""What becomes of a cluster's pods under several settings: a bar for each simulation, and the same as a table.

Leaves the simulations to ``decide.what_if``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from topomend.decide.simulation.what_if import Outcome
from topomend.picture.drawing.blocks import (
    TITLE,
    Area,
    Block,
    Part,
    at_least,
    bar,
    chip,
    column,
    flow,
    framed,
    row,
    text,
)
from topomend.picture.drawing.document import Drawing, Picture, Section, Table

_WIDTH, _NAME = 900, 250


@dataclass(frozen=True)
class Simulation:
    """The settings in words, what becomes of the pods, and how many of the refused another node would admit."""

    label: str
    outcome: Outcome
    elsewhere: int


def picture_of(simulations: Sequence[Simulation], words: Sequence[str], tables: Sequence[Table]) -> Picture:
    """The picture of the simulations, the first of settings and nodes as they are; ``tables`` come first."""
    title = "What if"
    block = column(
        [
            text("What becomes of the pods", "title", size=TITLE),
            *(framed(_simulation(each), "machine") for each in simulations),
            _key(),
        ],
        10,
    )
    element = Element("g", {"class": "simulations"})
    block.draw(element, Area(0, 0, block.width, block.height))
    first = simulations[0].outcome
    description = (
        f"{len(simulations)} simulations of {first.admitted + len(first.refused) + len(first.waiting)} pods. "
        "The table says the same."
    )
    drawing = Drawing(element, block.width, block.height, description)
    return Picture(title, [Section("Simulations", drawing, words, tables)])


def _simulation(each: Simulation) -> Block:
    outcome = each.outcome
    refused = len(outcome.refused) - each.elsewhere
    parts = [
        Part(outcome.admitted, "h3", f"admitted {outcome.admitted}", f"{outcome.admitted} admitted"),
        Part(each.elsewhere, "h7", f"elsewhere {each.elsewhere}", f"{each.elsewhere} refused, admitted elsewhere"),
        Part(refused, "h4", f"refused {refused}", f"{refused} refused everywhere", hatch=True),
        Part(len(outcome.waiting), "reserved", f"waiting {len(outcome.waiting)}", f"{len(outcome.waiting)} waiting"),
    ]
    aligned = [
        Part(outcome.together, "h0", f"together {outcome.together}", f"{outcome.together} on one NUMA node together"),
        Part(outcome.aligned - outcome.together, "h5", f"aligned {outcome.aligned}", f"{outcome.aligned} aligned"),
    ]
    counts = (
        f"{outcome.nodes} nodes · admitted {outcome.admitted} · refused {len(outcome.refused)}, of these elsewhere "
        f"{each.elsewhere} · waiting {len(outcome.waiting)} · aligned {outcome.aligned} and together "
        f"{outcome.together} of {outcome.exclusive}"
    )
    name = text(each.label, "strong", most=_NAME)
    bars = column([bar(parts, _WIDTH, 20), bar(aligned, _WIDTH, 20, total=outcome.exclusive), text(counts, "muted")], 5)
    return row([at_least(name, _NAME), bars], 10)


def _key() -> Block:
    entries = [
        chip("admitted by its own node, or the best", "h3"),
        chip("refused, but another node admits it", "h7"),
        chip("refused everywhere", "h4", hatch=True),
        chip("waiting without a node", "reserved"),
        chip("all containers on one NUMA node together", "h0"),
        chip("each container on one NUMA node", "h5"),
    ]
    return flow(entries, _WIDTH + _NAME, 6)
