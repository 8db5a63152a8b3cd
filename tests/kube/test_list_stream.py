"""A list is read object by object: whole, in any order of its fields, cut anywhere, and never all of it at once."""

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topomend.kube import list_stream
from topomend.kube.list_stream import BrokenList, ListStream

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


@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
def test_every_list_that_is_cut_short_is_broken(chunk: int) -> None:
    content = json.dumps({"metadata": {"a": 1}, "items": [{"n": 12, "s": "\u20ac"}, {}]}, ensure_ascii=False).encode()
    for length in range(len(content)):
        with pytest.raises((BrokenList, UnicodeDecodeError)):
            list(ListStream(cut(content[:length], chunk)))


@pytest.mark.parametrize(
    "content", ["[]", '{"items": [1]}', '{"items": [{}}', '{"items": [{};{}]}', '{"metadata": 3}', "\u00a0{}"]
)
def test_what_is_no_list_of_objects_is_broken(content: str) -> None:
    with pytest.raises(BrokenList):
        list(ListStream(cut(content.encode(), 5)))


def test_an_object_may_not_be_nested_without_end() -> None:
    content = '{"items": [{"a":' + "[" * 200_000 + "]" * 200_000 + "}]}"
    with pytest.raises(BrokenList):
        list(ListStream(cut(content.encode(), 1 << 16)))


def test_an_object_may_not_be_longer_than_any_that_etcd_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_stream, "MAX_OBJECT_CHARACTERS", 1 << 20)
    short, long = ('{"items": [{"a": "' + "x" * size + '"}]}' for size in (1 << 19, 1 << 22))
    assert len(list(ListStream(cut(short.encode(), 1 << 16)))) == 1
    with pytest.raises(BrokenList, match="longer than"):
        list(ListStream(cut(long.encode(), 1 << 16)))


def test_a_list_of_huge_pods_is_read_in_the_memory_of_a_few_objects() -> None:
    item = json.dumps({"env": [{"name": f"variable-{index}", "value": "value"} for index in range(20_000)]})
    count = 12

    def chunks() -> Iterator[bytes]:
        yield b'{"items":['
        for index in range(count):
            yield (("," if index else "") + item).encode()
        yield b'],"metadata":{}}'

    tracemalloc.start()
    try:
        assert sum(1 for _ in ListStream(chunks())) == count
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 << 20, f"{peak >> 20} MiB at the most"
