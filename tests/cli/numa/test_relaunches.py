"""``kubectl numa relaunches`` has the columns of ``kubectl get relaunches``."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import ServedLists

from topomend.cli.kubectl_numa import numa
from topomend.cli.numa.relaunches import HEADING, WIDE
from topomend.model.relaunch_record import Relaunch, Step
from topomend.relaunch.conditions import Conditions, at_step, waiting
from topomend.wire.relaunch_record import relaunch_object, relaunch_status

CRD = Path(__file__).parents[3] / "crds" / "topomend.io_relaunches.yaml"


def columns(*, wide: bool) -> tuple[str, ...]:
    [version] = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    listed: list[dict[str, Any]] = version["additionalPrinterColumns"]
    return tuple(column["name"].upper() for column in listed if bool(column.get("priority")) == wide)


def test_the_columns_are_those_of_the_kind() -> None:
    assert ("NAME", *columns(wide=False)) == HEADING
    assert columns(wide=True) == WIDE


RECORD = Relaunch("default", "train-1", "train", "1", "a", "TopologyAffinityError", "", 1, {})
NOW = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("conditions", "status", "style"),
    [
        (at_step(RECORD, Step.LAUNCHED, "", NOW), "Launched", {"fg": "green"}),
        (at_step(RECORD, Step.CANCELLED, "", NOW), "Cancelled", {"dim": True}),
        (waiting(RECORD, "NoNodeAdmitsNow", "", NOW, never=False), "NoNodeAdmitsNow", {"fg": "yellow"}),
        (waiting(RECORD, "NoNodeAdmitsNow", "", NOW, never=True), "NoNodeCanEverAdmit", {"fg": "red"}),
    ],
)
def test_on_a_terminal_the_status_is_painted_by_what_became_of_the_pod(
    conditions: Conditions, status: str, style: dict[str, Any], tmp_path: Path
) -> None:
    record = replace(RECORD, conditions=conditions, creation_time=NOW)
    content = relaunch_object(record) | {"status": relaunch_status(record)}
    with kubeconfig_of(ServedLists({"relaunches": [content]}), tmp_path) as config:
        arguments = ["relaunches", "--kubeconfig", str(config)]
        painted, plain = (CliRunner().invoke(numa, arguments, color=color).stdout for color in (True, False))
    assert click.style(status, **style) in painted
    assert click.unstyle(painted) == plain
