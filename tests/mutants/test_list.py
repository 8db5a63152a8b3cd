"""The list of mutants is in step with the source; that the suite notices them is what ``make mutants`` finds out."""

from collections import Counter

import pytest
from tests.mutants.mutant import REPLAY, ROOT, Mutant
from tests.mutants.rules import mutants

MUTANTS = list(mutants())


def test_there_are_enough_mutants_and_each_says_something_of_its_own() -> None:
    assert len(MUTANTS) >= 60
    assert [name for name, count in Counter(each.breaks for each in MUTANTS).items() if count > 1] == []


def test_every_file_with_a_rule_has_mutants() -> None:
    files = {path.relative_to(ROOT / REPLAY).as_posix() for path in (ROOT / REPLAY).rglob("*.py")}
    assert {name for name in files if not name.endswith("__init__.py")} <= {each.file for each in MUTANTS}


@pytest.mark.parametrize("mutant", MUTANTS, ids=[each.breaks for each in MUTANTS])
def test_a_mutant_changes_one_place_of_its_file_into_other_valid_python(mutant: Mutant) -> None:
    source = (ROOT / REPLAY / mutant.file).read_text()
    broken = mutant.applied_to(source)
    assert broken != source
    compile(broken, mutant.file, "exec")
