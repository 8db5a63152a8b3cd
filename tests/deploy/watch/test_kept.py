"""Rules, board and page of runbooks are what the code makes, and name no series that the programs do not export."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from deploy.manifests import ROOT
from deploy.watch.alerts import ALERTS
from deploy.watch.board import queries
from deploy.watch.kept import BOARD, RULE, RULES, kept
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector
from verify.prometheus.programs import promtool
from verify.reference.alerts import page
from verify.reference.page import agent_registry, operator_registry

OF_EVERY_PROCESS = {"job", "instance"}
"""Labels that Prometheus itself adds."""


def exported() -> dict[str, set[str]]:
    """The labels of each series that operator and agent export, by name, with those of histograms."""
    found: dict[str, set[str]] = {}
    for registry in (operator_registry(), agent_registry()):
        for collector in collectors(registry):
            for family in collector.describe() if hasattr(collector, "describe") else collector.collect():
                labels = set(getattr(collector, "_labelnames", ())) or set(getattr(family, "_labelnames", ()))
                suffixes = {"counter": ("_total",), "info": ("_info",), "histogram": ("_bucket", "_sum", "_count")}
                for suffix in suffixes.get(family.type, ("",)):
                    found[family.name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


def collectors(registry: CollectorRegistry) -> Iterator[Collector]:
    yield from registry._collector_to_names


@pytest.mark.parametrize("path", list(kept()), ids=lambda path: path.name)
def test_what_is_kept_is_what_the_code_makes(path: Any) -> None:
    assert path.read_text() == kept()[path], "run make generate"


def test_the_page_of_runbooks_is_what_the_code_makes() -> None:
    assert (ROOT / "docs" / "reference" / "alerts.md").read_text() == page(), "run make generate"


def test_the_rule_of_the_operator_has_the_groups_of_the_file() -> None:
    assert yaml.safe_load(RULE.read_text())["spec"] == yaml.safe_load(RULES.read_text())


EXPRESSIONS = [*(alert.expression for alert in ALERTS), *queries()]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_names_series_and_labels_that_the_programs_export(expression: str) -> None:
    series = exported()
    names = set(re.findall(r"\b(?:topomend|process)_\w+", expression))
    assert names
    assert names <= series.keys()
    labels = set(re.findall(r'(\w+)\s*!?=~?\s*"', expression))
    for grouped in re.findall(r"\b(?:by|on|group_left)\s*\(([^)]*)\)", expression):
        labels |= set(re.findall(r"\w+", grouped))
    assert labels <= OF_EVERY_PROCESS.union(*(series[name] for name in names))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_prometheus_reads_an_expression(expression: str) -> None:
    done = promtool("--experimental", "promql", "format", expression)
    assert done.returncode == 0, done.stderr


def test_the_board_asks_what_its_source_says_and_the_users_own_datasource() -> None:
    board = json.loads(BOARD.read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert [target["expr"] for panel in panels for target in panel["targets"]] == queries()
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource"]


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in json.loads(BOARD.read_text())["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
