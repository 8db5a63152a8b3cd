"""The programs that try the chart: of their generations, and without the user's settings."""

import pytest
from tools.chart.programs import run


@pytest.mark.parametrize(("name", "major"), [("helm3", "v3"), ("helm4", "v4")])
def test_each_helm_is_of_its_generation_and_ignores_the_users_settings(
    name: str, major: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELM_NAMESPACE", "of-the-user")
    assert run(name, "version", "--template={{ .Version }}").stdout.startswith(major)
    settings = run(name, "env").stdout
    assert "topomend/chart/settings" in settings
    assert "of-the-user" not in settings
