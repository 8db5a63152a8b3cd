"""Objects of DRA of any shape, written by whoever may write one: each is read, or is an error that names it, in time.

An API server takes few of these. Files, its later versions, and what stands between it and topomend take the others.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topomend.wire.devices.device_class import read_device_class
from topomend.wire.devices.resource_claim import (
    read_claim_names,
    read_claimed_devices,
    read_claims_by_container,
    read_requests,
    read_taken,
    read_unhealthy,
)
from topomend.wire.devices.resource_slice import (
    offered,
    read_numa_nodes,
    read_slice,
    read_slice_or_why,
    read_taint_rule,
)
from topomend.wire.document import Document, MalformedObject

SECONDS = 2.0
"""Of this thread, for one object: the largest that etcd takes is read in some tenths."""

Reader = Callable[[Any], object]

READERS: Mapping[str, Reader] = {
    "slice": read_slice,
    "slice or why": lambda content: list(offered([read_slice_or_why(content)])),
    "NUMA nodes": lambda content: list(read_numa_nodes(content)),
    "taint rule": lambda content: list(read_taint_rule(content)),
    "class": read_device_class,
    "claim names": read_claim_names,
    "claims by container": read_claims_by_container,
    "claimed devices": lambda content: list(read_claimed_devices(content)),
    "requests": lambda content: read_requests(Document(content)["spec"].content),
    "taken devices": lambda content: list(read_taken(content)),
    "unhealthy devices": lambda content: list(read_unhealthy(content)),
}

# Values

NUMBERS = (0, -1, True, False, 2**63 - 1, 2**63, -(2**63), 10**400, 1e309, -1e309, float("nan"), 1.5)
TEXTS = (
    *(
        "",
        "a",
        "1",
        "-1",
        "0x10",
        "1e309",
        "1e-999",
        "9" * 400,
        "1Ei",
        "1Zi",
        "½",
        "٣",
        "\x00",
        "\ud800",
        "\u202egpu",
        "💥" * 70,
    ),
    *("a/b/c", "/", "resource.kubernetes.io/numaNode", "numa", "device.driver == 'a'", "All", "NoExecute", "Exists"),
    *("device.driver == 'a' && " * 400, "&&" * 5_000, "'" * 999, "(" * 900),
)


def nested(levels: int) -> Any:
    """A list in a list, and so on."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


UNSHOWN: Mapping[str, Any] = {
    "a number of 5,000 digits": 10**5_000,
    "its negative": -(10**5_000),
    "a key of 5,000 digits": {10**5_000: 1},
    "900 levels": nested(900),
    "5,000 levels": nested(5_000),
    "many objects": [{}] * 20_000,
    "many texts": ["a"] * 20_000,
    "many fields": {f"a/{number}": {"int": number, "value": "1"} for number in range(20_000)},
}
"""What Python writes out never or slowly, by what it is."""

ODD: st.SearchStrategy[Any] = st.sampled_from([*NUMBERS, *TEXTS, *UNSHOWN, None, [], {}, [{}], {"": None}, {1: 2}])
SOME_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)

# Whole objects, of which each part may be any other value

Path = tuple[str | int, ...]

_QUANTITIES = {
    "value": "1e3",
    "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1", "max": "4"}, "validValues": ["1"]},
}
_REQUEST = {
    "name": "one",
    "exactly": {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 2,
        "adminAccess": False,
        "selectors": [{"cel": {"expression": "device.attributes['a'].numa == 1"}}],
        "tolerations": [{"key": "a", "operator": "Exists", "value": "", "effect": "NoSchedule"}],
        "capacity": {"requests": {"memory": "1Gi"}},
    },
}
_RESULT = {
    "request": "one",
    "driver": "a",
    "pool": "p",
    "device": "d",
    "adminAccess": False,
    "consumedCapacity": {"memory": "1"},
}
SLICE = {
    "metadata": {"name": "slice"},
    "spec": {
        "driver": "a",
        "nodeName": "n",
        "perDeviceNodeSelection": False,
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": "d",
                "nodeName": "n",
                "attributes": {
                    "numa": {"int": 1},
                    "ints": {"ints": [1, 0]},
                    "on": {"bool": True},
                    "m": {"string": "x"},
                },
                "capacity": {"memory": _QUANTITIES},
                "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
                "consumesCounters": [{"counterSet": "c"}],
                "allowMultipleAllocations": True,
            }
        ],
    },
}
CLAIM = {
    "metadata": {"name": "claim"},
    "spec": {"devices": {"requests": [_REQUEST], "constraints": [{"requests": ["one"], "matchAttribute": "a/b"}]}},
    "status": {"allocation": {"devices": {"results": [_RESULT]}}},
}
CLASS = {
    "metadata": {"name": "gpu"},
    "spec": {"extendedResourceName": "a/gpu", "selectors": [{"cel": {"expression": "device.driver == 'a'"}}]},
}
RULE = {
    "metadata": {"name": "rule"},
    "spec": {
        "deviceSelector": {"driver": "a", "pool": "p", "device": "d"},
        "taint": {"key": "a", "effect": "NoExecute"},
    },
}
POD = {
    "metadata": {"name": "train", "namespace": "ns"},
    "spec": {
        "nodeName": "",
        "resourceClaims": [
            {"name": "gpu", "resourceClaimName": "claim"},
            {"name": "t", "resourceClaimTemplateName": "t"},
        ],
        "initContainers": [{"name": "i", "resources": {"claims": [{"name": "t"}]}}],
        "containers": [{"name": "c0", "resources": {"claims": [{"name": "gpu", "request": "one"}]}}],
    },
    "status": {
        "resourceClaimStatuses": [{"name": "t", "resourceClaimName": "made"}],
        "extendedResourceClaimStatus": {
            "resourceClaimName": "x",
            "requestMappings": [{"containerName": "c0", "resourceName": "a/gpu", "requestName": "r"}],
        },
        "containerStatuses": [
            {
                "name": "c0",
                "allocatedResourcesStatus": [
                    {"name": "claim:gpu", "resources": [{"resourceID": "d", "health": "Unhealthy", "message": "hot"}]}
                ],
            }
        ],
    },
}
OBJECTS = (SLICE, CLAIM, CLASS, RULE, POD)


def paths(content: Any, path: Path = ()) -> Iterator[Path]:
    """Where each value is in it, the whole first."""
    yield path
    steps = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for step, inner in steps:
        yield from paths(inner, (*path, step))


def changed(content: Any, path: Path, value: Any) -> Any:
    """The same object with another value there."""
    if not path:
        return value
    step, *rest = path
    if isinstance(content, dict):
        return content | {step: changed(content[step], tuple(rest), value)}
    return [changed(inner, tuple(rest), value) if index == step else inner for index, inner in enumerate(content)]


PLACES = [(content, path) for content in OBJECTS for path in paths(content)]


Recipe = tuple[Any, Sequence[tuple[int, Any]]]
"""An object, and what is to be in the place of which of its values."""


def recipes(*objects: Any) -> st.SearchStrategy[Recipe]:
    """Of hostile objects: up to three values of one are others."""
    replaced = st.tuples(st.integers(0, 60), ODD | SOME_JSON)
    return st.tuples(st.sampled_from(objects), st.lists(replaced, min_size=1, max_size=3))


def made(recipe: Recipe) -> Any:
    """The object."""
    content, replacements = recipe
    for number, value in replacements:
        places = list(paths(content))
        odd = UNSHOWN.get(value, value) if isinstance(value, str) else value
        content = changed(content, places[number % len(places)], odd)
        if odd is not value:
            return content  # a place within that would be one too many
    return content


def attempt(read: Reader, content: Any) -> object:
    """What is read, or None of a malformed object, whose error is one line that can be shown and written."""
    began, problem = time.thread_time(), ""
    try:
        return read(content)
    except MalformedObject as error:
        problem = str(error)
        return None
    finally:
        assert time.thread_time() - began < SECONDS
        assert len(problem.encode()) < 1_000
        assert not problem or problem.isprintable()


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_the_objects_of_these_tests_are_sound(read: Reader) -> None:
    assert any(attempt(read, content) for content in OBJECTS)


@pytest.mark.parametrize("value", [*NUMBERS, *TEXTS, *UNSHOWN.values()], ids=itertools.count())
def test_each_value_of_each_object_may_be_odd(value: Any) -> None:
    for content, path in PLACES:
        odd = changed(content, path, value)
        for read in READERS.values():
            attempt(read, odd)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(sorted(READERS)), recipes(*OBJECTS))
def test_an_object_of_any_shape_is_read_or_malformed(reader: str, recipe: Recipe) -> None:
    attempt(READERS[reader], made(recipe))


@given(SOME_JSON)
def test_what_is_no_object_of_the_kind_at_all_is_read_or_malformed(content: Any) -> None:
    for read in READERS.values():
        attempt(read, content)
