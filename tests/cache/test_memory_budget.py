"""What strangers make large takes no more memory than there is room for."""

from topomend.cache.memory_budget import MemoryBudget


class Part:
    """Anything that is kept."""


def test_large_parts_have_room_as_long_as_others_leave_it() -> None:
    budget = MemoryBudget(1000, ordinary=10)
    first, second = Part(), Part()
    assert budget.take(first, 600)
    assert not budget.has_room(600)
    assert not budget.take(second, 600)
    assert budget.take(second, 400)
    del first
    assert budget.take(Part(), 600)


def test_an_ordinary_part_has_room_always_and_takes_none() -> None:
    budget = MemoryBudget(1000, ordinary=10)
    full, parts = Part(), [Part() for _ in range(1000)]
    assert budget.take(full, 1000)
    assert budget.has_room(10)
    assert all(budget.take(part, 10) for part in parts)
    assert not budget.take(Part(), 11)


def test_one_group_leaves_room_to_others() -> None:
    budget = MemoryBudget(1000, ordinary=10, most_of_group=600)
    parts = [Part(), Part()]
    assert budget.take(parts[0], 600, "a")
    assert not budget.has_room(100, "a")
    assert not budget.take(Part(), 100, "a")
    assert budget.take(parts[1], 400, "b")
    assert not budget.take(Part(), 100, "c")


def test_a_part_that_takes_the_place_of_another_needs_room_for_the_difference_alone() -> None:
    budget, parts = MemoryBudget(1000, ordinary=10), [Part(), Part(), Part()]
    assert budget.take(parts[0], 900)
    assert not budget.take(parts[1], 900)
    assert budget.take(parts[1], 900, freed=900)
    del parts[0]
    assert not budget.has_room(1001, freed=900)
    assert not budget.has_room(101, freed=10), "an ordinary part had no room of its own"
    assert budget.take(parts[1], 1000, freed=900)
