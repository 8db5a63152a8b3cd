"""The page of the checks is what the code says, and each check says what a reader needs."""

import re

import pytest
from deploy.manifests import ROOT
from verify.reference.checks import page

from topomend.check.catalogue import CHECKS, GROUPS
from topomend.check.check import Check
from topomend.check.rules import lint

ALL_CHECKS = (*CHECKS, *lint.LINT_CHECKS)


def test_the_committed_page_is_what_the_code_says() -> None:
    assert (ROOT / "docs" / "reference" / "checks.md").read_text() == page(), "run make generate"


def test_each_code_belongs_to_one_check_and_to_a_group() -> None:
    codes = [check.code for check in ALL_CHECKS]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"TM[1234]\d\d", code) and code[:3] in (*GROUPS, lint.GROUP[0]) for code in codes)


@pytest.mark.parametrize("check", ALL_CHECKS, ids=[check.code for check in ALL_CHECKS])
def test_a_check_says_what_it_finds_why_that_matters_and_what_helps(check: Check) -> None:
    for text in (check.title, check.meaning, check.why, check.cure):
        assert text
        assert text == text.strip()
    assert check.meaning.endswith(".")
    assert f"### {check.code}\n" in page()
