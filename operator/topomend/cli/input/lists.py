"""The lists in a file, as kubectl prints them: of kind List, and PodList, DeploymentList or any other that ends so."""

from collections.abc import Iterator

from topomend.wire.document import Document

_LIST = "List"


def is_list(document: Document) -> bool:
    """Whether the object is a list. One of a kind of somebody's own, such as AllowList, need not be."""
    content = document.content
    return isinstance(content, dict) and "items" in content and str(content.get("kind")).endswith(_LIST)


def items_of(listed: Document) -> Iterator[Document]:
    """The items of a list. Those of a PodList are Pods, and need not say so. Raises MalformedObject."""
    kind = listed["kind"].text().removesuffix(_LIST)
    fields = {"apiVersion": listed["apiVersion"].content, "kind": kind} if kind else {}
    for item in listed["items"]:
        yield item.with_defaults(fields)
