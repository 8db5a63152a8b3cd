"""Each page "topomend for ...": its commands, typed in a fresh shell, print what it shows, on the user's own files."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.clusters import ROOT
from tests.sites.site import SITES, of_flags, settings_of
from tests.sites.transcript import PAGES, Shell, Step, name_of, steps_of, up_of
from tests.waiting import TimedOut, eventually

from topomend.cli.main import main
from topomend.cli.sandbox import sandbox
from topomend.sandbox import NodeSpec

MOST_WORDS = 500

PATIENCE = 10.0
"""Seconds in which an answer becomes what the page shows."""

pytestmark = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def linted(steps: tuple[Step, ...]) -> Step:
    return next(step for step in steps if step.arguments[:2] == ["topomend", "lint"])


def nodes_of(step: Step) -> list[NodeSpec]:
    """The nodes that a command brings up."""
    flags = sandbox.up.make_context("up", step.arguments[3:]).params
    settings = {flag: flags[flag] for flag in sandbox._SETTINGS}
    return sandbox._specs(flags["nodes"], flags["machines"], settings)


def test_a_page_is_read_in_minutes(page: Path) -> None:
    text = page.read_text()
    assert len(text.split()) <= MOST_WORDS
    assert text.startswith("# topomend for ")


def test_the_commands_that_need_no_cluster_print_what_the_page_shows(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    steps = steps_of(page)
    alone = steps[: up_of(steps)]
    assert linted(steps) in alone, "what a page begins with"
    for step in alone:
        program, *arguments = step.arguments
        assert program == "topomend"
        answer = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert step.is_shown_by(answer.output), answer.output


def test_the_kubelets_of_the_sandbox_have_the_settings_of_the_users_file(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    steps = steps_of(page)
    lint = linted(steps).arguments
    path = ROOT / lint[2]
    assert path.is_relative_to(SITES / page.stem)
    for node in nodes_of(steps[up_of(steps)]):
        written = settings_of(path, sum(numa.memory for numa in node.machine.numa_nodes))
        assert of_flags(node.kubelet) == of_flags(written)


def test_every_file_of_the_user_is_used(page: Path) -> None:
    words = {word for step in steps_of(page) for word in step.arguments}
    unused = [path for path in (SITES / page.stem).iterdir() if not {str(path.relative_to(ROOT))} & words]
    assert unused == []


@pytest.mark.cluster
@pytest.mark.night
@pytest.mark.timeout(900)
def test_the_commands_lead_from_the_users_files_to_the_first_aligned_pod(page: Path, tmp_path: Path) -> None:
    steps = steps_of(page)
    name = name_of(steps[up_of(steps)])
    try:
        with Shell(tmp_path, name) as shell:
            for step in steps:
                _take(shell, step)
    finally:
        down = [sys.executable, "-m", "topomend.cli", "sandbox", "down", "--name", name]
        subprocess.run(down, cwd=ROOT, check=True, capture_output=True)


def _take(shell: Shell, step: Step) -> None:
    """Type a command, again until it prints what the page shows: the cluster needs a moment, as for the reader."""
    answers: list[str] = []

    def is_as_shown() -> bool:
        code, printed = shell.ask(step.command)
        answers.append(f"{code}: {printed}")
        return step.is_shown_by(printed) if step.shown else code == 0

    is_question = step.arguments[0] == "kubectl" and step.arguments[1] in ("numa", "get")
    with suppress(TimedOut):
        if is_question:
            eventually(step.command, lambda: is_as_shown() or None, PATIENCE, poll=0.5)
            return
    assert not is_question, f"{step.command}\n{answers[-1]}"
    assert is_as_shown(), f"{step.command}\n{answers[-1]}"
