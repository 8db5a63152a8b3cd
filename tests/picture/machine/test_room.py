"""The picture of room: the node, and in it those marked that have to go."""

from tests.builders import guaranteed_pod, node_state

from topomend.decide.queue.room import Occupant, Room
from topomend.picture.machine.room import picture_of


def occupant(name: str, *, leaving: bool = False) -> Occupant:
    return Occupant("ns", name, name, 5, {}, owner="Job/x", leaving=leaving)


def test_pods_that_have_to_go_or_are_leaving_are_in_the_table_and_marked() -> None:
    state = node_state(pods=[guaranteed_pod("x", 2), guaranteed_pod("y", 2)])
    room = Room("a", (occupant("x"),), (occupant("y", leaving=True),), 1)
    [section] = picture_of("wide", room, state, ["wide fits on a"]).sections
    assert section.words[0] == "wide fits on a"
    assert section.tables[0].rows == [
        ("ns/y", "5", "Job/x", "is being deleted"),
        ("ns/x", "5", "Job/x", "has to go"),
    ]
    assert [row[1] for row in section.tables[1].rows] == ["ns/x c0 (has to go)", "ns/y c0 (has to go)"]


def test_where_nobody_has_to_go_there_is_no_table_of_pods() -> None:
    [section] = picture_of("wide", Room("a", (), (), 1), node_state(), []).sections
    assert section.tables[0].caption.startswith("NUMA nodes")


def test_where_there_is_no_room_the_words_say_so() -> None:
    [section] = picture_of("wide", None, None, ["no node would admit it"]).sections
    assert (section.drawing, section.words) == (None, ["no node would admit it"])
