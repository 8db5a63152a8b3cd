"""The flags of check, as far as they need no cluster. The verb itself: tests/check/test_seeded_faults.py."""

import pytest
from click.testing import CliRunner

from topomend.cli.kubectl_numa import numa


def test_a_code_that_is_none_gets_the_nearest_one() -> None:
    result = CliRunner().invoke(numa, ["check", "--skip", "TM999"])
    assert result.exit_code == 2
    assert "--skip TM999: no such check" in result.stderr
    near = CliRunner().invoke(numa, ["check", "--skip", "tm211"])
    assert "did you mean TM211?" in near.stderr


@pytest.mark.parametrize("arguments", [("--wait",), ("--wait", "0"), ("--wait=0",), ()])
def test_wait_takes_a_number_or_none(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.setenv("HOME", "/nonexistent")
    result = CliRunner().invoke(numa, ["check", *arguments])
    assert (result.exit_code, "no cluster is configured" in result.stderr) == (3, True)
