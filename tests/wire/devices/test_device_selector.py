"""Which selectors are understood: comparisons of the driver and of attributes, and nothing else."""

import time

import pytest

from topomend.model.devices.offered_device import OfferedDevice, Selector
from topomend.wire.devices.device_selector import MAX_EXPRESSION, read_selectors
from topomend.wire.document import Document


def read(expression: str) -> Selector | None:
    (selector,) = read_selectors(Document({"selectors": [{"cel": {"expression": expression}}]}))
    return selector


@pytest.mark.parametrize(
    ("expression", "selector"),
    [
        ("device.driver == 'gpu.example.com'", Selector("gpu.example.com")),
        ('  device.driver=="a" ', Selector("a")),
        ('device.attributes["d.io"].numaNode == 1', Selector(attributes=(("d.io/numaNode", 1),))),
        (
            "device.driver == 'a' && device.attributes['a'].on == true &&\ndevice.attributes['a'].m == 'x && y'",
            Selector("a", (("a/on", True), ("a/m", "x && y"))),
        ),
    ],
)
def test_comparisons_are_understood(expression: str, selector: Selector) -> None:
    assert read(expression) == selector


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "device.driver != 'a'",
        "device.driver == 'a' || true",
        "!(device.driver == 'a')",
        "device.driver == 'a' && device.driver == 'b'",
        "device.driver == 'a\\'b'",
        "device.driver == 1",
        "device.attributes['d'].x > 1",
        "device.capacity['d'].x == 1",
        "'a' == device.driver",
        "device.driver == 'a' && " + " " * MAX_EXPRESSION,
    ],
)
def test_nothing_else_is(expression: str) -> None:
    assert read(expression) is None


def test_a_selector_selects_by_all_that_it_compares_and_says_nothing_of_a_device_without_the_attribute() -> None:
    device = OfferedDevice("a", "p", "x", attributes={"a/on": True, "a/one": 1})
    assert Selector("a").selects(device) is True
    assert Selector("b", (("a/gone", 1),)).selects(device) is False
    assert Selector("a", (("a/on", True), ("a/one", 1))).selects(device) is True
    assert Selector("a", (("a/on", 1),)).selects(device) is False
    assert Selector("a", (("a/gone", 1),)).selects(device) is None
    assert Selector("a", (("a/gone", 1), ("a/one", 2))).selects(device) is False


def test_a_thousand_selectors_of_many_terms_are_read_in_time() -> None:
    """A request has 32 selectors at most, and a claim 32 requests."""
    terms = " && ".join(["true"] * 120)
    expressions = [f"{terms} && {number}" for number in range(1_000)]
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    began = time.thread_time()
    assert set(read_selectors(Document({"selectors": selectors}))) == {None}
    assert time.thread_time() - began < 0.5


def test_the_same_expression_of_many_claims_is_kept_once() -> None:
    expression = "device.attributes['d.io'].numaNode == 1"
    assert read(expression) is read(str(bytes(expression, "ascii"), "ascii"))
