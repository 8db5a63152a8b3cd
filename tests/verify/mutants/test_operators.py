"""Generic mutants come from the syntax tree: each changes one place, and the same ones are drawn each time."""

import ast
from collections import Counter
from functools import cache

import pytest
from tests.seeds import cases
from verify.mutants.__main__ import enough_killed
from verify.mutants.mutant import REPLAY, ROOT, Mutant, OutOfStep
from verify.mutants.operators import EXCLUDED, Generated, changes, every_generated, mutants_of, some_generated


@cache
def some() -> list[Generated]:
    """One of every function of replay. Not made at the import: each process of ``make test`` imports every test."""
    return list(some_generated(1))


def news(code: str) -> set[str]:
    """What may stand in the place of the pieces of a function's body."""
    lines = "".join(f"    {line}\n" for line in code.splitlines())
    return {change.new for change in changes(ast.parse(f"def f(a, b) -> bool:\n{lines}"))}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("g(a < b)", {"a <= b", "True", "False"}),
        ("g(a < b <= 1)", {"a <= b <= 1", "a < b < 1", "2", "0"}),
        ("g(a not in b)", {"a in b"}),
        ("g(7)", {"8", "6"}),
        ("g(True)", {"False"}),
        ("g(a and b)", {"a or b", "a", "b"}),
        ("g(a or b or c)", {"b or c", "a or c", "a or b", "a and b and c"}),
        ("g(not a)", {"a"}),
        ("g(a & ~b)", {"a | ~b", "a", "~b", "b"}),
        ("g(a + b)", {"a - b", "a", "b"}),
        ("g(a if b else c)", {"a", "c"}),
        ("min(a, b)", {"max(a, b)"}),
        ("any(a)", {"all(a)"}),
        ("sorted(a, key=b)", {"sorted(a)"}),
        ("g(c for c in a if c)", {" for c in a", " for c in () if c"}),
        ("for c in (a, b):\n    g(c)", {"for c in ():", "(a,)", "(b,)", "pass"}),
        ("if a:\n    return False", {"if True:", "if False:", "return True"}),
        ("while a:\n    break", {"while False:", "pass"}),
        ("a.b = 1", {"pass"}),
        ("if b:\n    a = 1", {"pass"}),
        ("a += b", {"pass"}),
        ("raise a", {"pass"}),
    ],
)
def test_an_operator_makes_its_slips(code: str, expected: set[str]) -> None:
    assert {text.strip() for text in expected} <= {text.strip() for text in news(code)}


@pytest.mark.parametrize(
    "code", ["'''What it does.'''", "a = b", "g(f'{a + b}')", "g('text')", "a: int = b", "import c"]
)
def test_what_no_rule_depends_on_is_left_alone(code: str) -> None:
    assert news(code) <= {"pass"}
    assert "pass" not in news(code) or code.startswith("g(")


def test_a_constant_is_returned_by_the_functions_own_annotation() -> None:
    source = "def f(a) -> int | None:\n    return a\n"
    assert [change.new for change in changes(ast.parse(source))] == ["return 0", "return None"]


def test_a_tree_is_as_it_was_after_all_changes() -> None:
    source = (ROOT / REPLAY / "topology" / "merge.py").read_text()
    tree = ast.parse(source)
    before = ast.dump(tree)
    assert sum(1 for _ in changes(tree)) > 100
    assert ast.dump(tree) == before


def test_a_drawn_mutant_is_other_valid_python() -> None:
    for mutant in some()[:: cases(30, 10)]:
        source = (ROOT / REPLAY / mutant.file).read_text()
        broken = mutant.applied_to(source)
        assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(source)), f"{mutant.file}: {mutant.breaks}"


def test_the_same_mutants_are_drawn_of_every_function_whatever_stands_beside_it() -> None:
    assert max(Counter((mutant.file, mutant.change.function) for mutant in some()).values()) == 1
    function = "def f(a):\n    return a + 1\n"
    alone = min(mutants_of("a.py", function), key=lambda mutant: mutant.order)
    beside = min(
        (
            mutant
            for mutant in mutants_of("a.py", f"# A comment.\ndef g(a):\n    return 7\n\n\n{function}")
            if "f:" in mutant.breaks
        ),
        key=lambda mutant: mutant.order,
    )
    assert alone.breaks == beside.breaks


def test_every_file_with_a_rule_has_a_mutant() -> None:
    files = {path.relative_to(ROOT / REPLAY).as_posix() for path in (ROOT / REPLAY).rglob("*.py")}
    assert {name for name in files if not name.endswith("__init__.py")} - EXCLUDED == {mutant.file for mutant in some()}


def test_parts_have_every_mutant_once() -> None:
    parts = [{(mutant.file, mutant.number) for mutant in every_generated(number, 3)} for number in (1, 2, 3)]
    assert sum(map(len, parts)) == len(set.union(*parts))
    assert {(mutant.file, mutant.number) for mutant in some()} <= set.union(*parts)


def test_a_mutant_of_other_code_is_out_of_step() -> None:
    mutant = next(mutants_of("a.py", "def f(a):\n    return a + 1\n"))
    with pytest.raises(OutOfStep, match=r"a\.py has no change"):
        mutant.applied_to("def f(a):\n    return a * 1\n")


def test_none_that_is_written_by_hand_may_survive_and_a_few_generated_ones() -> None:
    assert enough_killed(Mutant, 10, 0)
    assert not enough_killed(Mutant, 10, 1)
    assert enough_killed(Generated, 10, 1)
    assert not enough_killed(Generated, 10, 5)
