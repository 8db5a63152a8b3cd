"""``kubectl numa relaunches`` has the columns of ``kubectl get relaunches``."""

from pathlib import Path
from typing import Any

import yaml

from topomend.cli.numa.relaunches import HEADING, WIDE

CRD = Path(__file__).parents[3] / "crds" / "topomend.io_relaunches.yaml"


def columns(*, wide: bool) -> tuple[str, ...]:
    [version] = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    listed: list[dict[str, Any]] = version["additionalPrinterColumns"]
    return tuple(column["name"].upper() for column in listed if bool(column.get("priority")) == wide)


def test_the_columns_are_those_of_the_kind() -> None:
    assert ("NAME", *columns(wide=False)) == HEADING
    assert columns(wide=True) == WIDE
