"""Of each key the newest object is handed out, once in a while."""

from topomend.runtime.queues.newest_by_key import NewestByKey


def test_the_first_is_due_at_once_and_of_those_that_follow_soon_the_newest_later() -> None:
    waiting = NewestByKey[str, int](10.0)
    assert waiting.wait(0.0) is None
    assert waiting.put("a", 1)
    assert not waiting.put("a", 2)
    assert waiting.wait(0.0) == 0.0
    assert waiting.due(0.0) == [2]
    assert waiting.put("a", 3)
    assert waiting.wait(1.0) == 9.0
    assert waiting.put("b", 1)
    assert waiting.wait(1.0) == 0.0
    assert waiting.due(1.0) == [1]
    assert not waiting.put("a", 4)
    assert (waiting.due(9.9), waiting.wait(9.9)) == ([], 10.0 - 9.9)
    assert waiting.due(10.0) == [4]
    assert waiting.due(20.0) == []
    assert waiting.wait(20.0) is None


def test_nothing_is_remembered_of_a_key_that_has_been_quiet() -> None:
    waiting = NewestByKey[int, int](1.0)
    for key in range(1000):
        waiting.put(key, 0)
        waiting.due(float(key))
    waiting.due(2000.0)
    assert not waiting._items
    assert not waiting._quiet_until
    assert not waiting._ready
