"""The reference page is what the code says, and has every name that the code posts, exports or reads."""

import ast
import re
from pathlib import Path

from deploy.manifests import ROOT
from verify.reference.page import page
from verify.reference.sources import documented_constants, events


def test_the_committed_page_is_what_the_code_says() -> None:
    assert (ROOT / "docs" / "reference.md").read_text() == page(), "run make generate"


def test_an_event_is_found_by_a_literal_reason_and_by_a_variable(tmp_path: Path) -> None:
    source = tmp_path / "announcer.py"
    source.write_text(
        "def one(self):\n    '''Says one.'''\n    self._emit(x, WARNING, 'One', 'Act', note)\n"
        "def two(self):\n    '''Says two.'''\n    why = 'Two' if x else 'Three'\n"
        "    self.r.emit(x, NORMAL, why, 'Act', note)\n"
        "def _emit(self, x, kind, reason, action, note):\n    self.r.emit(x, kind, reason, action, note)\n"
    )
    found = [(event.reason, event.type, event.meaning) for event in events(str(source))]
    assert found == [
        ("One", "Warning", "Says one."),
        ("Three", "Normal", "Says two."),
        ("Two", "Normal", "Says two."),
    ]


def test_a_constant_without_a_docstring_is_not_documented(tmp_path: Path) -> None:
    source = tmp_path / "names.py"
    source.write_text("A = 1\nB = 2\n'''The second.'''\n")
    assert documented_constants(str(source)) == {"B": "The second."}


def test_each_condition_and_reason_that_the_page_lists_is_one_that_the_code_has() -> None:
    rows = (ROOT / "verify" / "reference" / "conditions.md").read_text().splitlines()[2:]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", "|".join(row.split("|")[:4]))}
    trees = [ast.parse(path.read_text()) for path in (ROOT / "operator" / "topomend").rglob("*.py")]
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert listed - texts == set()
