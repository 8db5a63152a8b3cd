"""What pure rooms keep in their modules: no more than is listed here, and less in time."""

import ast
from collections.abc import Iterator
from pathlib import Path

import topomend

PURE = ("alignment", "base", "cache", "decide", "explain", "model", "replay", "wire")

KEPT = {
    "replay/container_manager.py: _started": "the kubelet of a machine and settings, as long as the machine exists",
    "replay/container_manager.py: _by_content": "the same, shared by equal machines",
    "replay/effort.py: _meter": "how long this thread may work on one node",
    "replay/fast_path/admission.py: _answers": "what a state answers to kinds of pods, as long as it exists",
    "replay/fast_path/capacity.py: _free": "what is free in a state, as long as it exists",
}
"""Each is a function of frozen values remembered, but the meter."""


def test_no_module_of_a_pure_room_keeps_anything_else() -> None:
    package = Path(topomend.__file__).parent
    found = {
        f"{path.relative_to(package).as_posix()}: {name}"
        for room in PURE
        for path in (package / room).rglob("*.py")
        for name in _variables(ast.parse(path.read_text()))
        if name != "__all__"
    }
    assert found == set(KEPT)


def _variables(module: ast.Module) -> Iterator[str]:
    """The variables of a module, and the global ones of its functions: what is a constant has a name in capitals."""
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and _may_change(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (name.id for name in targets if isinstance(name, ast.Name) and name.id.strip("_").islower())
    yield from (name for node in ast.walk(module) if isinstance(node, ast.Global) for name in node.names)


def _may_change(value: ast.expr) -> bool:
    """Whether it is an object that is made here, and no function or type."""
    if isinstance(value, ast.Call):
        return not (isinstance(value.func, ast.Name) and value.func.id in ("attrgetter", "itemgetter", "partial"))
    return isinstance(value, ast.Dict | ast.List | ast.Set)
