"""Lists as kubectl prints them."""

from typing import Any

import pytest

from topomend.cli.input.lists import is_list, items_of
from topomend.wire.document import Document, MalformedObject


def test_the_items_of_a_list_of_one_kind_need_not_say_so() -> None:
    items = [{"metadata": {"name": "a"}}, {"kind": None}, {"apiVersion": "v2", "kind": "Other"}]
    listed = Document({"apiVersion": "apps/v1", "kind": "DeploymentList", "items": items})
    assert is_list(listed)
    assert [item.content for item in items_of(listed)] == [
        {"metadata": {"name": "a"}, "apiVersion": "apps/v1", "kind": "Deployment"},
        {"apiVersion": "apps/v1", "kind": "Deployment"},
        {"apiVersion": "v2", "kind": "Other"},
    ]


def test_the_items_of_a_list_of_any_kinds_are_as_they_are() -> None:
    listed = Document({"apiVersion": "v1", "kind": "List", "items": [{}, {"kind": "Pod"}, None]})
    assert [item.content for item in items_of(listed)] == [{}, {"kind": "Pod"}, None]
    assert list(items_of(Document({"kind": "PodList", "items": None}))) == []


@pytest.mark.parametrize("content", [{"kind": "AllowList"}, {"items": []}, {"kind": 7, "items": []}, ["List"], None])
def test_an_object_without_items_or_of_another_kind_is_no_list(content: Any) -> None:
    assert not is_list(Document(content))


def test_a_wrong_item_is_named_by_its_place() -> None:
    [item] = items_of(Document({"kind": "PodList", "items": [{"spec": 7}]}))
    with pytest.raises(MalformedObject, match=r"^items\[0\]\.spec: 7 where an object belongs"):
        item["spec"]["containers"]
    with pytest.raises(MalformedObject, match=r"^items: 7 where a list belongs"):
        list(items_of(Document({"kind": "PodList", "items": 7})))
