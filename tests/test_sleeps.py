"""No test of ``make test`` sleeps for long: it waits for an event, which comes as soon as the machine allows."""

import ast
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[1]

MOST_SECONDS = 1.0

OF_THE_NIGHT = {"_stall", "_retried", "_go_through"}
"""Functions that only tests of the night call."""

WITHOUT_AN_EVENT = {"test_kubelets_that_do_not_answer_are_read_by_their_files"}
"""What a kubelet remembers of a right ends without a word."""


def test_no_test_sleeps_for_more_than_a_second() -> None:
    files = [*PROJECT.glob("tests/**/*.py"), *PROJECT.glob("verify/e2e/e2e_*.py")]
    assert len(files) > 500, "the files were found"
    texts = {str(path.relative_to(PROJECT)): path.read_text() for path in files}
    sleeping = {name: text for name, text in texts.items() if "time.sleep(" in text}
    found = [(name, function) for name, text in sleeping.items() for function in _sleepers(ast.parse(text))]
    assert not found, "wait for an event that comes after what must not happen"


def test_a_sleep_is_found_by_number_and_by_name() -> None:
    text = "LONG = 2.0\ndef a():\n    time.sleep(3)\ndef b():\n    time.sleep(LONG)\ndef c():\n    time.sleep(0.5)\n"
    assert list(_sleepers(ast.parse(text))) == ["a", "b"]


def _sleepers(module: ast.Module) -> Iterator[str]:
    """The functions that call ``time.sleep`` with a number, or the name of one, above MOST_SECONDS."""
    numbers = {
        target.id: ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef) or function.name in OF_THE_NIGHT | WITHOUT_AN_EVENT:
            continue
        if any("night" in ast.unparse(decorator) for decorator in function.decorator_list):
            continue
        if any(_seconds(call, numbers) > MOST_SECONDS for call in ast.walk(function) if isinstance(call, ast.Call)):
            yield function.name


def _seconds(call: ast.Call, numbers: dict[str, object]) -> float:
    """How long the call sleeps; 0 for one of something else."""
    if ast.unparse(call.func) != "time.sleep":
        return 0.0
    (argument,) = call.args
    length = numbers.get(argument.id) if isinstance(argument, ast.Name) else getattr(argument, "value", 0.0)
    return float(length) if isinstance(length, int | float) else 0.0
