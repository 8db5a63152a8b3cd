"""What strangers make large takes no more memory than there is room for."""

from topomend.cache.room import Room


class Part:
    """Anything that is kept."""


def test_large_parts_have_room_as_long_as_others_leave_it() -> None:
    room = Room(1000, ordinary=10)
    first, second = Part(), Part()
    assert room.take(first, 600)
    assert not room.has(600)
    assert not room.take(second, 600)
    assert room.take(second, 400)
    del first
    assert room.take(Part(), 600)


def test_an_ordinary_part_has_room_always_and_takes_none() -> None:
    room = Room(1000, ordinary=10)
    full, parts = Part(), [Part() for _ in range(1000)]
    assert room.take(full, 1000)
    assert room.has(10)
    assert all(room.take(part, 10) for part in parts)
    assert not room.take(Part(), 11)


def test_one_group_leaves_room_to_others() -> None:
    room = Room(1000, ordinary=10, most_of_group=600)
    parts = [Part(), Part()]
    assert room.take(parts[0], 600, "a")
    assert not room.has(100, "a")
    assert not room.take(Part(), 100, "a")
    assert room.take(parts[1], 400, "b")
    assert not room.take(Part(), 100, "c")
