"""The night's parts are programs of this repository that know their arguments; each has a row, whatever comes of it."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from verify.night.__main__ import last_line, run
from verify.night.parts import PARTS, Part

OWN = {part.module for part in PARTS.values() if part.module.startswith("verify.")}


@pytest.mark.parametrize("module", sorted(OWN))
def test_the_program_of_a_part_knows_its_arguments(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = find_spec(module)
    assert found is not None
    program = import_module(f"{module}.__main__" if found.submodule_search_locations else module)
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    with pytest.raises(SystemExit, match=r"^0$"):
        program.main()
    help_text = capsys.readouterr().out
    for part in PARTS.values():
        if part.module == module:
            flags = [argument.partition("=")[0] for argument in part.arguments if argument.startswith("--")]
            assert [flag for flag in flags if flag not in help_text] == []


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
