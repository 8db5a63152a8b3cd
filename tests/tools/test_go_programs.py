"""The programs from Go modules: pinned, and an error that says what failed."""

import json
import re
from pathlib import Path

import pytest
from deploy.release.programs import PROGRAMS as OF_A_RELEASE
from tools.chart.programs import PROGRAMS as OF_THE_CHART
from tools.go_programs import GoPrograms, NotBuilt, go
from verify.prometheus.programs import PROGRAMS as OF_PROMETHEUS

READONLY = {"GOFLAGS": "-mod=readonly"}


@pytest.mark.parametrize("programs", [OF_THE_CHART, OF_PROMETHEUS, OF_A_RELEASE], ids=lambda programs: programs.kept)
def test_the_module_pins_each_program_and_no_other(programs: GoPrograms) -> None:
    edited = json.loads(go(programs.module, READONLY, "mod", "edit", "-json"))
    assert {tool["Path"] for tool in edited["Tool"]} == set(programs.packages.values())
    versions = {required["Path"]: required["Version"] for required in edited["Require"]}
    for package in programs.packages.values():
        assert re.fullmatch(r"v\d+\.\d+\.\d+", versions[package.partition("/cmd/")[0]])


def test_a_package_that_cannot_be_built_is_named_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module example.com/none\n")
    with pytest.raises(NotBuilt, match=rf"go build failed in {tmp_path}: .*nothing"):
        go(tmp_path, READONLY, "build", "./nothing")
