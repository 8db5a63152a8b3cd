"""Pure rooms have no state of their own: what is kept or limited is in an object that somebody owns and hands over."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import topomend

PURE = ("alignment", "base", "cache", "check", "decide", "explain", "model", "picture", "replay", "selftest", "wire")

REMEMBERED = {
    "model/quantity.py: _parsed": "by a text of at most 90 characters",
    "replay/cpu/topology.py: _topology": "the CPUs of some cores, which thousands of machines have alike",
    "replay/devices/manager.py: numa_mask": "the mask of some NUMA ids",
    "replay/fast_path/admission.py: shape_of": "the digest of what a pod asks for",
    "replay/startup/feature_gates.py: _dependencies": "a table of the source, read",
    "replay/startup/feature_gates.py: known_in": "a table of the source, read",
    "replay/topology/merge.py: _by_width": "all masks of so many NUMA nodes in order",
    "replay/topology/search.py: _submasks": "all masks within one in order",
    "wire/devices/device_selector.py: _understood": "by an expression of at most 1,000 characters",
}
"""Functions of values alone whose last answers Python's own cache remembers. It locks itself."""

_ANOTHER = "another function of this name"

WITHOUT_LIMIT = {
    "alignment/pinning.py: why_shared_cpus: CPUManager": "what a container requests takes no search",
    "decide/bind_order.py: _fit_one_numa_node: FastAdmission": "the outcome is read from the free amounts",
    "decide/bind_order.py: _orders: FastAdmission": "the shape of a pod takes no search",
    "decide/simulation/history.py: come: question_about": "the plugin asks, for one user",
    "decide/queue/room.py: room_on: admission_of": "the plugin asks, for one user",
    "decide/queue/room.py: are_admitted: FastAdmission": "the plugin asks, for one user",
    "decide/queue/room.py: room: admit": "the plugin asks, for one user",
    "decide/diagnosis/totals.py: ask_with_totals: admit": "the plugin asks, for one user",
    "decide/simulation/what_if.py: ask: admit": "the plugin asks, for one user",
    "decide/simulation/what_if.py: place: diagnose": "the plugin asks, for one user",
    "explain/pinned_memory.py: _fits: least_width": "the steps of its search are bounded",
    "explain/pinned_memory.py: memory_before: providers_of": "the steps of its search are bounded",
    "explain/remedy.py: remedy_in: remedy_of": "the commands simulate, and users of the library",
    "explain/refused_merge.py: _cause_of_memory: least_width": "the steps of its search are bounded",
    "explain/refused_merge.py: _holds: least_width": "the steps of its search are bounded",
    "reconcile/placement/reservations.py: _decide: decide": _ANOTHER,
    "reconcile/placement/reservations.py: _reserve: decide": _ANOTHER,
    "reconcile/placement/reservations.py: choose_for_all: decide": _ANOTHER,
    "replay/admission.py: release: providers_of": "the end of a pod takes no search",
    "replay/cpu/assignment.py: _take_distributed: Strategy": _ANOTHER,
    "replay/cpu/static.py: rules_of: Strategy": _ANOTHER,
    "replay/cpu/static.py: _take_reserved: take": "a kubelet chooses the CPUs for the system once, as it starts",
    "replay/lifecycle/allocation_manager.py: can_admit_pod: admit": "the commands simulate",
    "replay/resize.py: _admitted_again: admit": "the commands simulate",
    "replay/resize.py: is_shown: admit": "the commands simulate",
}
"""Calls that may take as long as they need."""

EVERYWHERE = {".check", ".wait"}
"""Names that many classes have."""

EFFORTS = {"effort", "for_group", "for_one", "new_shares", "Shares"}

LIMITED = ("alignment", "cache", "decide", "explain", "reconcile", "replay")
"""The rooms that work for the operator, which limits what replay may take for a pod."""

PACKAGE = Path(topomend.__file__).parent


def test_no_module_of_a_pure_room_keeps_anything() -> None:
    found = [f"{where}: {name}" for where, tree in _modules(PURE) for name in _variables(tree) if name != "__all__"]
    assert found == []


def test_pure_functions_remember_no_answers_but_those_of_values_alone() -> None:
    found = {
        f"{where}: {function.name}"
        for where, tree in _modules(PURE)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and _names(function.decorator_list) & {"lru_cache", "cache"}
    }
    assert found == set(REMEMBERED)


def test_whoever_has_replay_asked_for_the_operator_hands_its_effort_on() -> None:
    """Otherwise what a node publishes could keep the operator for minutes (``replay.effort``)."""
    takers = {name for _, tree in _modules(LIMITED) for name in _takers(tree)} - EVERYWHERE
    assert {"admit", "FastAdmission", "remedy_of", "choose", ".state_with_assumed"} <= takers
    found = {
        f"{where}: {function.name}: {name}"
        for where, tree in _modules(LIMITED)
        for function, name in _calls_without_effort(tree, takers)
    }
    assert found == set(WITHOUT_LIMIT)


def _modules(rooms: tuple[str, ...]) -> Iterator[tuple[str, ast.Module]]:
    for path in (path for room in rooms for path in sorted((PACKAGE / room).rglob("*.py"))):
        yield path.relative_to(PACKAGE).as_posix(), _parsed(path)


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


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


def _takers(module: ast.Module) -> Iterator[str]:
    """The functions and classes of a module that take an effort, and methods that no other class has by this name."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and _takes(node):
            yield node.name
        if isinstance(node, ast.ClassDef):
            methods = [method for method in node.body if isinstance(method, ast.FunctionDef) and _takes(method)]
            yield from (node.name if method.name == "__init__" else f".{method.name}" for method in methods)
            if any(isinstance(field, ast.AnnAssign) and _name(field.target) == "effort" for field in node.body):
                yield node.name


def _takes(function: ast.FunctionDef) -> bool:
    """Whether it has a parameter ``effort`` that a caller may forget: mypy finds it where it has no default."""
    arguments = function.args
    optional = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    optional += [name for name, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default]
    return any(argument.arg == "effort" for argument in optional)


def _calls_without_effort(module: ast.Module, takers: set[str]) -> Iterator[tuple[ast.FunctionDef, str]]:
    """The calls of ``takers`` in a module that hand no effort on: where, and what is called."""
    imports = [node for node in module.body if isinstance(node, ast.ImportFrom)]
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    for function in (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)):
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            is_method = isinstance(call.func, ast.Attribute) and _name(call.func.value) not in imported
            name = f".{_name(call.func)}" if is_method else _name(call.func)
            if name in takers and not _hands_on(call):
                yield function, name


def _hands_on(call: ast.Call) -> bool:
    arguments = (*call.args, *(keyword.value for keyword in call.keywords))
    return any(_name(argument).lstrip("_") in EFFORTS for argument in arguments)


def _name(node: ast.AST) -> str:
    """``effort`` of ``effort``, ``self.effort`` and ``effort()``; empty for what has no name."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _names(nodes: list[ast.expr]) -> set[str]:
    return set(map(_name, nodes))
