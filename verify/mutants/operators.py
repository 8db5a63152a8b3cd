"""Generic mutants, made from the syntax tree of a rule: what a slip of the pen could make of any code.

Comparisons at their boundary, numbers one off, ``and`` for ``or``, a condition that always holds or never does, a part
of an expression left out, ``min`` for ``max``, a constant returned, a loop or a statement that does nothing. A rule
that breaks in any other way is in ``rules``. Left out is whatever no rule depends on: annotations, decorators, texts.
"""

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import singledispatch
from hashlib import sha256

from verify.mutants.mutant import REPLAY, ROOT, OutOfStep

EXCLUDED = frozenset({"startup/known_gates.py"})
"""Tables of Kubernetes' own, without a rule."""

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}

_CONSTANTS = {
    "bool": ("True", "False"),
    "int": ("0",),
    "CPUSet": ("0",),
    "NUMAMask": ("0",),
    "str": ("''",),
    "list": ("[]",),
    "tuple": ("()",),
    "dict": ("{}",),
    "set": ("set()",),
    "None": ("None",),
}
"""What a function returns instead, by the parts of its annotation."""

_DROPPED = (ast.Expr, ast.AugAssign, ast.Delete, ast.Raise, ast.Continue, ast.Break)

_UNTOUCHED = ("annotation", "returns", "decorator_list", "type_comment", "bases", "ctx")
"""The fields of a node in which nothing is changed."""

_NOTHING = ast.Tuple([], ast.Load())
_ALWAYS, _NEVER = ast.Constant(value=True), ast.Constant(value=False)

_LISTED = ("iter", "comparators", "value")
"""The fields in which a list of values stands, and no pattern for several variables."""

_ORDERING = frozenset({"key", "reverse", "default"})


@dataclass(frozen=True)
class Change:
    """One piece of code and what stands there instead; ``function`` is its qualified name, empty outside of any."""

    function: str
    old: str
    new: str


@dataclass(frozen=True)
class Generated:
    """The ``number``-th change of a ``file``, which is relative to REPLAY."""

    file: str
    number: int
    change: Change

    @property
    def breaks(self) -> str:
        return f"{self.change.function or 'module'}: {self.change.old} -> {self.change.new}"

    @property
    def order(self) -> str:
        """A hash by which mutants are drawn: neither the file's other rules nor its lines matter."""
        return sha256(f"{self.file} {self.breaks}".encode()).hexdigest()

    def applied_to(self, source: str) -> str:
        """The changed source, without its comments. Raises OutOfStep."""
        tree = ast.parse(source)
        for number, change in enumerate(changes(tree)):
            if number == self.number and change == self.change:
                return ast.unparse(tree)
        raise OutOfStep(f"{self.file} has no change {self.number}: {self.breaks}")


def some_generated(each: int) -> Iterator[Generated]:
    """At most ``each`` mutants of every function of replay, always the same as long as the function is the same."""
    of_function: Counter[tuple[str, str]] = Counter()
    for mutant in sorted(_all(), key=lambda mutant: mutant.order):
        of_function[mutant.file, mutant.change.function] += 1
        if of_function[mutant.file, mutant.change.function] <= each:
            yield mutant


def every_generated(number: int, parts: int) -> Iterator[Generated]:
    """All mutants of one of so many parts, of which the first has number 1."""
    return (mutant for mutant in _all() if int(mutant.order, 16) % parts == number - 1)


def mutants_of(file: str, source: str) -> Iterator[Generated]:
    """Every generic mutant of a file."""
    return (Generated(file, number, change) for number, change in enumerate(changes(ast.parse(source))))


def _all() -> Iterator[Generated]:
    for path in sorted((ROOT / REPLAY).rglob("*.py")):
        file = path.relative_to(ROOT / REPLAY).as_posix()
        if file not in EXCLUDED:
            yield from mutants_of(file, path.read_text())


def changes(tree: ast.Module) -> Iterator[Change]:
    """Make every change in turn: the tree has it while the iterator stands at it."""
    yield from _changes_within(tree, "", None)


@dataclass(frozen=True)
class _Place:
    """Where a node stands: in which field of its parent, in a function that returns what."""

    parent: ast.AST
    field: str
    returns: ast.expr | None

    @property
    def in_function(self) -> bool:
        return not isinstance(self.parent, ast.Module | ast.ClassDef)


def _changes_within(node: ast.AST, function: str, returns: ast.expr | None) -> Iterator[Change]:
    for name, value in ast.iter_fields(node):
        if name in _UNTOUCHED or isinstance(node, ast.JoinedStr):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or _is_docstring(child):
                continue
            within, annotation = function, returns
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                within = f"{function}.{child.name}".lstrip(".")
                annotation = child.returns if isinstance(child, ast.FunctionDef) else None
            for new in _replacements(child, _Place(node, name, annotation)):
                change = Change(function, _text(child), _text(new))
                with _replaced(node, name, index, new):
                    yield change
            yield from _changes_within(child, within, annotation)


@contextmanager
def _replaced(parent: ast.AST, name: str, index: int | None, new: ast.AST) -> Iterator[None]:
    field = getattr(parent, name)
    old = field if index is None else field[index]

    def put(node: ast.AST) -> None:
        if index is None:
            setattr(parent, name, node)
        else:
            field[index] = node

    put(new)
    try:
        yield
    finally:
        put(old)


@singledispatch
def _replacements(node: ast.AST, place: _Place) -> Iterator[ast.AST]:
    """What may stand in the place of a node: nothing else, unless its kind says so."""
    if isinstance(node, _DROPPED) and place.in_function:
        yield ast.Pass()


@_replacements.register
def _(node: ast.Compare, place: _Place) -> Iterator[ast.AST]:
    for index, operator in enumerate(node.ops):
        other = _COMPARISONS[type(operator)]()
        yield _with(node, ops=[*node.ops[:index], other, *node.ops[index + 1 :]])
    yield from _either(place)


@_replacements.register
def _(node: ast.Constant, _place: _Place) -> Iterator[ast.AST]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield from (ast.Constant(node.value + 1), ast.Constant(node.value - 1))


@_replacements.register
def _(node: ast.BoolOp, _place: _Place) -> Iterator[ast.AST]:
    yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    for index in range(len(node.values)):
        left = _without(node, "values", index)
        yield left if len(node.values) > 2 else node.values[1 - index]


@_replacements.register
def _(node: ast.UnaryOp, place: _Place) -> Iterator[ast.AST]:
    yield node.operand
    if isinstance(node.op, ast.Not):
        yield from _either(place)


@_replacements.register
def _(node: ast.BinOp, _place: _Place) -> Iterator[ast.AST]:
    if type(node.op) in _ARITHMETIC:
        yield _with(node, op=_ARITHMETIC[type(node.op)]())
    yield from (node.left, node.right)


@_replacements.register
def _(node: ast.IfExp, _place: _Place) -> Iterator[ast.AST]:
    yield from (node.body, node.orelse)


@_replacements.register
def _(node: ast.Call, _place: _Place) -> Iterator[ast.AST]:
    if isinstance(node.func, ast.Name) and node.func.id in _OPPOSITES:
        yield _with(node, func=ast.Name(_OPPOSITES[node.func.id], ast.Load()))
    for index, keyword in enumerate(node.keywords):
        if keyword.arg in _ORDERING:
            yield _without(node, "keywords", index)


@_replacements.register
def _(node: ast.comprehension, _place: _Place) -> Iterator[ast.AST]:
    yield from (_without(node, "ifs", index) for index in range(len(node.ifs)))
    yield _with(node, iter=_NOTHING)


@_replacements.register
def _(node: ast.For, _place: _Place) -> Iterator[ast.AST]:
    yield _with(node, iter=_NOTHING)


@_replacements.register(ast.Tuple)
@_replacements.register(ast.List)
@_replacements.register(ast.Set)
def _(node: ast.Tuple | ast.List | ast.Set, place: _Place) -> Iterator[ast.AST]:
    if len(node.elts) > 1 and (place.field in _LISTED or isinstance(node, ast.Set)):
        yield from (_without(node, "elts", index) for index in range(len(node.elts)))


@_replacements.register
def _(node: ast.While, _place: _Place) -> Iterator[ast.AST]:
    yield _with(node, test=_NEVER)


@_replacements.register
def _(node: ast.If, _place: _Place) -> Iterator[ast.AST]:
    yield from (_with(node, test=_NEVER), _with(node, test=_ALWAYS))


@_replacements.register
def _(node: ast.Return, place: _Place) -> Iterator[ast.AST]:
    value = _text(node.value) if node.value else "None"
    yield from (ast.Return(constant) for constant in _constants(place.returns) if _text(constant) != value)


@_replacements.register
def _(node: ast.Assign, place: _Place) -> Iterator[ast.AST]:
    """An assignment is dropped if the name may have a value without it: in a branch or a loop, or part of an object."""
    in_branch = isinstance(place.parent, ast.For | ast.While | ast.If | ast.With)
    if place.in_function and (in_branch or not isinstance(node.targets[0], ast.Name | ast.Tuple)):
        yield ast.Pass()


def _either(place: _Place) -> Iterator[ast.AST]:
    """A truth that always holds, and one that never does; ``If`` and ``While`` see to their own."""
    if place.field != "test":
        yield from (_ALWAYS, _NEVER)


def _constants(returns: ast.expr | None) -> Iterator[ast.expr]:
    """The constants that a function with this annotation may return."""
    match returns:
        case ast.BinOp(left=left, right=right):
            yield from (*_constants(left), *_constants(right))
        case ast.Subscript(value=ast.Name(id=name)) | ast.Name(id=name):
            yield from (ast.parse(text, mode="eval").body for text in _CONSTANTS.get(name, ()))
        case ast.Constant(value=None):
            yield ast.Constant(None)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _without(node: ast.AST, name: str, index: int) -> ast.AST:
    """The node without an element of a field."""
    return _with(node, **{name: [element for number, element in enumerate(getattr(node, name)) if number != index]})


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _text(node: ast.AST) -> str:
    """A node in one line: of a statement with a body its head alone."""
    head = _with(node, body=[], orelse=[]) if isinstance(node, ast.If | ast.For | ast.While) else node
    return ast.unparse(head).strip()
