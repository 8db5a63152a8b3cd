"""A list is read object by object: whole, in any order of its fields, cut anywhere, and never all of it at once."""

import json
import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topomend.kube.lists import list_stream
from topomend.kube.lists.list_stream import SHAPED_CHARACTERS, BrokenList, ListStream
from topomend.wire.published.node_topology import MAX_STATUS_BYTES

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=5)


def cut(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


@given(OBJECTS, st.dictionaries(st.text(), JSON), st.permutations(["kind", "metadata", "items"]), st.data())
def test_a_list_is_read_as_json_reads_it_wherever_it_is_cut(
    items: list[Any], metadata: dict[str, Any], order: list[str], data: st.DataObject
) -> None:
    fields = {"kind": "PodList", "metadata": metadata, "items": items}
    ascii_only, indent = data.draw(st.booleans()), data.draw(st.sampled_from([None, 1]))
    text = json.dumps({field: fields[field] for field in order}, ensure_ascii=ascii_only, indent=indent)
    content = text.encode(errors="surrogatepass" if ascii_only else "replace")
    expected = json.loads(content)
    stream = ListStream(cut(content, data.draw(st.integers(1, 40))))
    assert list(stream) == expected["items"]
    assert stream.metadata == expected["metadata"]
    assert stream.bytes_read == len(content)


class Inner(TypedDict, total=False):
    b: Any


class Shape(TypedDict, total=False):
    """What is read of the objects of these tests."""

    a: Any
    inner: Inner | None


SHAPED = st.tuples(JSON, st.none() | st.dictionaries(st.sampled_from("bx"), JSON) | JSON, st.text(), JSON)


def listed(objects: Iterable[dict[str, Any]]) -> bytes:
    """As the API server writes a list."""
    return json.dumps({"items": list(objects), "metadata": {"n": 1}}, separators=(",", ":")).encode()


def shaped(content: dict[str, Any]) -> dict[str, Any]:
    inner = content["inner"]
    return {"a": content["a"], "inner": {k: inner[k] for k in inner if k == "b"} if inner else inner}


@given(st.lists(SHAPED, max_size=6), st.integers(1, 300))
def test_an_object_of_a_shape_has_what_is_in_it_and_any_other_object_is_whole(items: list[Any], size: int) -> None:
    objects = [{"a": a, "inner": inner, f"_{name}": other} for a, inner, name, other in items]
    stream = ListStream(cut(listed(objects), size), shape=Shape)
    for read, whole in zip(stream, objects, strict=True):
        assert read == whole or (isinstance(whole["inner"], dict | None) and read == shaped(whole))
    assert stream.metadata == {"n": 1}


@pytest.mark.parametrize("size", [1 << 10, 1 << 16, 1 << 20])
def test_what_is_not_in_the_shape_is_left_out_but_of_the_last(size: int) -> None:
    objects = [{"a": number, "inner": {"b": [{}], "y": 1}, "x": "x" * 200} for number in range(5_000)]
    read = list(ListStream(cut(listed(objects), size), shape=Shape))
    assert read == [*map(shaped, objects[:-1]), objects[-1]]


def test_an_object_of_another_shape_is_whole_and_so_are_those_beside_it() -> None:
    objects = [{"a": number, "inner": {"b": 1}, "x": 1} for number in range(20_000)]
    objects[9]["inner"] = ["no object"]
    read = list(ListStream(cut(listed(objects), 1 << 16), shape=Shape))
    assert read[:10] == objects[:10]
    assert [each["a"] for each in read] == [*range(20_000)]
    assert "x" not in read[-2]


def test_a_list_within_an_object_may_look_like_the_list_itself() -> None:
    objects = [{"a": [{"a": 1}, {"a": 2}] * 9, "inner": {"b": number}} for number in range(30_000)]
    for size in (1 << 18, 999_983):
        assert list(ListStream(cut(listed(objects), size), shape=Shape)) == objects


def test_the_reader_of_an_object_that_is_too_long_has_all_of_it() -> None:
    """By that a NodeTopology is known that is longer than any that an agent writes."""
    assert SHAPED_CHARACTERS <= MAX_STATUS_BYTES
    objects = [{"a": 1, "x": "x" * size} for size in (9, SHAPED_CHARACTERS + 1, 9, 9)]
    stream = ListStream(cut(listed(objects), 1 << 16), shape=Shape)
    read = [(content, stream.is_shaped) for content in stream]
    assert read[1] == (objects[1], False)
    assert [is_shaped for _, is_shaped in read] == ["x" not in content for content, _ in read]
    assert len(read) == len(objects)


@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
@pytest.mark.parametrize("shape", [None, Shape])
def test_every_list_that_is_cut_short_is_broken(chunk: int, shape: type | None) -> None:
    items = [{"a": 12, "s": "\u20ac"}, {"a": 3}, {}]
    content = json.dumps({"metadata": {"a": 1}, "items": items}, ensure_ascii=False, separators=(",", ":")).encode()
    for length in range(len(content)):
        with pytest.raises((BrokenList, UnicodeDecodeError)):
            list(ListStream(cut(content[:length], chunk), shape=shape))


@pytest.mark.parametrize(
    "content", ["[]", '{"items": [1]}', '{"items": [{}}', '{"items": [{};{}]}', '{"metadata": 3}', "\u00a0{}"]
)
def test_what_is_no_list_of_objects_is_broken(content: str) -> None:
    with pytest.raises(BrokenList):
        list(ListStream(cut(content.encode(), 5)))


@pytest.mark.parametrize("shape", [None, Shape])
def test_an_object_may_not_be_nested_without_end(shape: type | None) -> None:
    content = '{"items":[{"a":' + "[" * 200_000
    with pytest.raises(BrokenList):
        list(ListStream(cut(content.encode(), 1 << 16), shape=shape))


@pytest.mark.parametrize("shape", [None, Shape])
@pytest.mark.parametrize("chunk", [7_001, 1 << 16])
def test_an_object_that_is_nested_deeply_loses_its_depths_and_no_other_anything(shape: type | None, chunk: int) -> None:
    """As a ResourceClaim of any user may be: its parameters may be 5,000 lists within one another."""
    deep = '{"inner":{"b":1},"a":' + "[" * 5_000 + "]" * 5_000 + "}"
    content = f'{{"items":[{{"a":1}},{deep},{{"a":2}},{deep},{{"a":3}}]}}'
    read = list(ListStream(cut(content.encode(), chunk), shape=shape))
    assert [each["a"] for each in read[::2]] == [1, 2, 3]
    assert [each["inner"] for each in read[1::2]] == [{"b": 1}, {"b": 1}]
    assert "null" in json.dumps(read[1]["a"])


def test_a_number_without_end_breaks_the_list() -> None:
    """Python reads no whole number of more than 4,300 digits, and says so with a ValueError of no kind of its own."""
    with pytest.raises(BrokenList):
        list(ListStream(cut(b'{"items":[{"a":' + b"1" * 5_000 + b"}]}", 1 << 16)))


def test_an_object_may_not_be_longer_than_any_that_etcd_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_stream, "MAX_OBJECT_CHARACTERS", 1 << 20)
    short, long = ('{"items": [{"a": "' + "x" * size + '"}]}' for size in (1 << 19, 1 << 22))
    assert len(list(ListStream(cut(short.encode(), 1 << 16)))) == 1
    with pytest.raises(BrokenList, match="longer than"):
        list(ListStream(cut(long.encode(), 1 << 16)))


@pytest.mark.parametrize("shape", [None, Shape])
def test_a_list_of_huge_pods_is_read_in_the_memory_of_a_few_objects(shape: type | None) -> None:
    item = json.dumps({"env": [{"name": f"variable-{index}", "value": "value"} for index in range(20_000)]})
    count = 12

    def chunks() -> Iterator[bytes]:
        yield b'{"items":['
        for index in range(count):
            yield (("," if index else "") + item).encode()
        yield b'],"metadata":{}}'

    tracemalloc.start()
    try:
        assert sum(1 for _ in ListStream(chunks(), shape=shape)) == count
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 << 20, f"{peak >> 20} MiB at the most"
