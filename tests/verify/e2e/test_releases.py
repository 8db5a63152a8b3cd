"""The release of ``make e2e``: which one is the newest, which older one CI builds, and what is none."""

import re
from pathlib import Path

import pytest
from tests.verify.versions.test_trial import OLDER
from verify.e2e.__main__ import main

from topomend.model.nodes.kubelet import DEFAULT_VERSION

ROOT = Path(__file__).parents[3]


def test_what_is_no_release_is_named_before_anything_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["1.34.4"]) == 1
    assert capsys.readouterr().err == "make e2e: '1.34.4' is not a release from v1.30.0 on, such as v1.36.3\n"


def test_the_newest_release_is_the_sandboxes() -> None:
    (newest,) = re.findall(r"^NEWEST := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert newest == DEFAULT_VERSION


def test_ci_builds_one_older_release() -> None:
    assert re.findall(r"KUBERNETES=(\S+)", (ROOT / ".ci" / "run").read_text()) == [OLDER]
