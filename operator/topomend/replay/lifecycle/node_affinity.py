"""Whether a node matches a pod's node selector and required node affinity.

A term that cannot be parsed, such as one with ``Gt`` and two values, matches no node. The API server refuses such pods,
so that those of a cluster need no ``parsed``.
Source: component-helpers/scheduling/corev1/nodeaffinity:RequiredNodeAffinity, apimachinery pkg/labels/selector.go.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from topomend.model.pods.scheduling import NodeSelectorTerm, Placement, Requirement
from topomend.replay.lifecycle.int64 import parse_int

_VALUE, _MAX_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"), 63
"""A label's value (apimachinery pkg/util/validation:IsValidLabelValue)."""


def matches_selector(placement: Placement, labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels has all that the pod's ``nodeSelector`` names."""
    return all(labels.get(key) == value for key, value in placement.node_selector.items())


def matches_terms(placement: Placement, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the node of this name matches one term of the required node affinity; any does where there is none."""
    return placement.terms is None or any(_term_matches(term, name, labels) for term in placement.terms)


def parsed(placement: Placement) -> Placement:
    """The placement without terms that cannot be parsed."""
    if placement.terms is None:
        return placement
    return replace(placement, terms=tuple(filter(_is_parsed, placement.terms)))


def _is_parsed(term: NodeSelectorTerm) -> bool:
    return all(map(_is_valid, term.expressions)) and all(map(_is_valid_field, term.fields))


def _term_matches(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    if not term.expressions and not term.fields:
        return False
    fields = {"metadata.name": name}
    return all(_matches(requirement, labels) for requirement in term.expressions) and all(
        _matches_field(requirement, fields) for requirement in term.fields
    )


def _is_valid(requirement: Requirement) -> bool:
    """Source: labels/selector.go:NewRequirement. The API server checks the form of keys."""
    if not all(len(value) <= _MAX_VALUE and _VALUE.fullmatch(value) for value in requirement.values):
        return False
    match requirement.operator:
        case "In" | "NotIn":
            return bool(requirement.values)
        case "Exists" | "DoesNotExist":
            return not requirement.values
        case "Gt" | "Lt":
            return len(requirement.values) == 1 and parse_int(requirement.values[0]) is not None
    return False


def _is_valid_field(requirement: Requirement) -> bool:
    """Source: nodeaffinity.go:nodeSelectorRequirementsAsFieldSelector."""
    return requirement.operator in ("In", "NotIn") and len(requirement.values) == 1


def _matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    label = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return label in requirement.values
        case "NotIn":
            return label not in requirement.values
        case "Exists":
            return label is not None
        case "DoesNotExist":
            return label is None
        case "Gt" | "Lt":
            return label is not None and _compares(requirement, label)
    return False


def _matches_field(requirement: Requirement, fields: Mapping[str, str]) -> bool:
    """A field that a node does not have counts as an empty text (apimachinery pkg/fields:hasTerm, notHasTerm)."""
    return (fields.get(requirement.key, "") in requirement.values) == (requirement.operator == "In")


def _compares(requirement: Requirement, label: str) -> bool:
    number, bound = parse_int(label), parse_int(next(iter(requirement.values), ""))
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound
