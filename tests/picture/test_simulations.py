"""The bars of simulations have the figures of their outcomes."""

from tests.builders import pod
from tests.picture.drawn import svg_of, texts, titles

from topomend.decide.simulation.what_if import Arrival, Outcome, Refused
from topomend.picture.simulations import Simulation, picture_of


def outcome(admitted: int, refused: int, waiting: int) -> Outcome:
    arrival = Arrival(pod("p", "cpu=1"))
    return Outcome(3, admitted, (Refused(arrival, "x"),) * refused, (arrival,) * waiting, 9, 7, 6, {})


def test_every_figure_of_a_simulation_is_in_its_bars() -> None:
    simulations = [Simulation("as it is", outcome(8, 3, 1), 2), Simulation("restricted", outcome(12, 0, 0), 0)]
    [section] = picture_of(simulations, ["said"], []).sections
    svg = svg_of(section)
    assert {"as it is", "restricted", "admitted 8", "elsewhere 2", "refused 1", "waiting 1"} <= set(texts(svg))
    assert {"8 admitted", "2 refused, admitted elsewhere", "6 on one NUMA node together", "7 aligned"} <= set(
        titles(svg)
    )
    assert "0 waiting" not in titles(svg)
    assert section.drawing
    assert section.drawing.description.startswith("2 simulations of 12 pods.")
