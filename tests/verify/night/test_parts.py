"""The night's parts are programs of this repository that know their arguments; each has a row, whatever comes of it."""

import subprocess
import sys
from pathlib import Path

import pytest
from verify.night.__main__ import last_line, run
from verify.night.parts import PARTS, Part

OWN = {part.module for part in PARTS.values() if part.module.startswith("verify.")}


@pytest.mark.parametrize("module", sorted(OWN))
def test_the_program_of_a_part_knows_its_arguments(module: str) -> None:
    asked = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True)
    for part in PARTS.values():
        if part.module == module:
            flags = [argument.partition("=")[0] for argument in part.arguments if argument.startswith("--")]
            assert [flag for flag in flags if flag not in asked.stdout] == []


@pytest.mark.parametrize(("code", "result"), [("print('all agree')", "passed"), ("raise SystemExit(3)", "FAILED (3)")])
def test_a_part_has_a_row_whether_it_passes_or_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, result: str
) -> None:
    (tmp_path / "part.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert run("one", Part("part"))[1] == result
    assert (tmp_path / "build" / "night" / "one.log").exists()


def test_the_last_line_is_the_last_one_that_says_anything() -> None:
    assert last_line("seed 1\n30000 cases agree\n\n") == "30000 cases agree"
    assert last_line("") == "no output"
