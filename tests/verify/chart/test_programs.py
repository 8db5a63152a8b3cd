"""The programs that try the chart: pinned, and an error that says what failed."""

import json
import re
from pathlib import Path

import pytest
from verify.chart.programs import MODULE, PACKAGES, NotBuilt, go, run

READONLY = {"GOFLAGS": "-mod=readonly"}


def test_the_module_pins_each_program_and_no_other() -> None:
    edited = json.loads(go(MODULE, READONLY, "mod", "edit", "-json"))
    assert {tool["Path"] for tool in edited["Tool"]} == set(PACKAGES.values())
    versions = {required["Path"]: required["Version"] for required in edited["Require"]}
    for package in PACKAGES.values():
        assert re.fullmatch(r"v\d+\.\d+\.\d+", versions[package.partition("/cmd/")[0]])


def test_a_package_that_cannot_be_built_is_named_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module example.com/none\n")
    with pytest.raises(NotBuilt, match=rf"go build failed in {tmp_path}: .*nothing"):
        go(tmp_path, READONLY, "build", "./nothing")


@pytest.mark.parametrize(("name", "major"), [("helm3", "v3"), ("helm4", "v4")])
def test_each_helm_is_of_its_generation_and_ignores_the_users_settings(
    name: str, major: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELM_NAMESPACE", "of-the-user")
    assert run(name, "version", "--template={{ .Version }}").stdout.startswith(major)
    settings = run(name, "env").stdout
    assert "topomend/chart/settings" in settings
    assert "of-the-user" not in settings
