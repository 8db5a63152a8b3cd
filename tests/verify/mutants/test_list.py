"""Every mutant of the list applies to the source; ``make mutants`` shows whether the suite kills it."""

from collections import Counter

import pytest
from verify.mutants.mutant import REPLAY, ROOT, Mutant, OutOfStep
from verify.mutants.rules import mutants

MUTANTS = list(mutants())


def test_there_are_enough_mutants_with_different_descriptions() -> None:
    assert len(MUTANTS) >= 60
    assert [name for name, count in Counter(mutant.breaks for mutant in MUTANTS).items() if count > 1] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.breaks for mutant in MUTANTS])
def test_a_mutant_changes_one_place_of_its_file_into_other_valid_python(mutant: Mutant) -> None:
    source = (ROOT / REPLAY / mutant.file).read_text()
    broken = mutant.applied_to(source)
    assert broken != source
    compile(broken, mutant.file, "exec")


CODE = """
class Box:
    def weigh(self, things):
        return sum(thing.weight for thing in things)  # all of them

    def count(self, things):
        return sum(1 for thing in things)
"""


@pytest.mark.parametrize(
    "changed",
    [
        CODE,
        CODE.replace(
            "sum(thing.weight for thing in things)", "sum(\n            thing.weight for thing in things\n        )"
        ),
        CODE.replace("thing in things", "part in parts").replace("things)", "parts)").replace("thing.", "part."),
        CODE.replace("def weigh", "def total_weight"),
        CODE.replace(".weight", ".mass"),
    ],
    ids=["as it is", "wrapped", "a variable renamed", "the function renamed", "a field renamed"],
)
def test_a_mutant_outlives_what_is_no_change_of_a_rule(changed: str) -> None:
    mutant = Mutant(
        "the heaviest counts", "box.py", "Box.weigh", "sum(thing.weight for thing", "max(thing.weight for thing"
    )
    broken = mutant.applied_to(changed)
    assert (broken.count("max("), broken.count("sum(")) == (1, 1)
    assert broken.replace("max(", "sum(").split() == changed.replace("sum(\n            ", "sum(").split()


@pytest.mark.parametrize("changed", [CODE.replace("sum(thing", "len(thing"), CODE.replace(" for thing", " for one")])
def test_a_mutant_whose_rule_changed_is_out_of_step(changed: str) -> None:
    mutant = Mutant(
        "the heaviest counts", "box.py", "Box.weigh", "sum(thing.weight for thing", "max(thing.weight for thing"
    )
    with pytest.raises(OutOfStep, match=r"box.py:Box.weigh has .* 0 times"):
        mutant.applied_to(changed)


def test_a_piece_that_stands_twice_is_out_of_step() -> None:
    with pytest.raises(OutOfStep, match="2 times"):
        Mutant("", "box.py", "Box.gone", "for thing in things", "for thing in []").applied_to(CODE)
