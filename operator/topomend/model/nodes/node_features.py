"""Facts about a node that change seldom, as Node Feature Discovery knows them: labels, attributes and instances."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeFeatures:
    """``labels`` are to be the Node's, without a prefix.

    ``attributes`` are sets of named values, ``instances`` sets of things that have attributes, each set by its name.
    """

    labels: Mapping[str, str]
    attributes: Mapping[str, Mapping[str, str]]
    instances: Mapping[str, tuple[Mapping[str, str], ...]]
